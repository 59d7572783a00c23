/// \file planted.hpp
/// Kernels with one mistake each. Every kernel takes `wrong`: with it the mistake is there, without it the
/// kernel is right, and nothing else differs.
#pragma once

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support/ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace planted {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 32;
using output = test::device_array<std::uint32_t>;

constexpr unsigned words = blocks * threads;  ///< of a board and of a result: one for each thread of a rank

/// One rank's part in a run.
struct bench {
  devcomm::host::communicator& ranks;
  const devcomm::host::device_communicator& device;  ///< with `blocks` barriers
  devcomm::sym_ptr<std::uint32_t> board;             ///< zeros at first
  bool wrong;

  [[nodiscard]] devcomm::device_comm comm() const { return device.get(); }
  [[nodiscard]] static devcomm::launch_config config() {
    return {.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
  }
  /// Waits for this rank's kernels; throws what they failed of.
  void finish() const {
    test::finish("kernel");
    device.check();
  }
  /// Throws "wrong result" unless `out[i]` is `of(i)` for each thread of the rank.
  template <class Expected>
  void expect(const test::device_array<std::uint32_t>& out, Expected of) const {
    const std::vector<std::uint32_t> got = out.read();
    for (std::uint32_t i = 0; i < got.size(); ++i) {
      if (got[i] == of(i)) continue;
      throw std::runtime_error("wrong result: rank " + std::to_string(ranks.rank()) + " has " + std::to_string(got[i]) +
                               " at index " + std::to_string(i) + ", expected " + std::to_string(of(i)));
    }
  }
};

struct bug {
  const char* name;
  void (*run)(const bench&);
};

}  // namespace planted
