/// \file mistakes.hpp
/// Programs with one mistake each. Where `wrong` is set it is made; otherwise the program is right, and nothing else
/// differs.
#pragma once

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support/ranks.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace mistakes {

using devcomm::check_cuda;
using devcomm::host::communicator;
using devcomm::host::device_communicator;
using devcomm::host::symmetric_memory;

/// Throws unless each of `got` is `of(i)`.
template <class T, class Expected>
void require_values(const communicator& comm, const std::vector<T>& got, Expected of) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T expected = of(static_cast<T>(i));
    if (got[i] == expected) continue;
    throw std::runtime_error("wrong result: rank " + std::to_string(comm.rank()) + " has " + std::to_string(got[i]) +
                             " at index " + std::to_string(i) + ", expected " + std::to_string(expected));
  }
}

// --- programs as users write them ---

/// Waits for the kernels of this rank, and throws what they failed of.
inline void finish(const device_communicator& device) {
  check_cuda(cudaDeviceSynchronize(), "kernel");
  device.check();
}

/// Throws unless the `count` numbers of this rank at `memory` are `of(i)`.
template <class Expected>
void expect(const communicator& comm, const int* memory, int count, Expected of) {
  std::vector<int> got(static_cast<std::size_t>(count));
  check_cuda(cudaMemcpy(got.data(), memory, got.size() * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
  require_values(comm, got, of);
}

// --- kernels on a board ---

constexpr unsigned blocks = 2;
constexpr unsigned threads = 32;
using output = test::device_array<std::uint32_t>;

constexpr unsigned words = blocks * threads;  ///< of a board and of a result: one for each thread of a rank

/// One rank's part in a run.
struct bench {
  communicator& ranks;
  const device_communicator& device;      ///< with `blocks` barriers
  devcomm::sym_ptr<std::uint32_t> board;  ///< zeros at first
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
  void expect(const output& out, Expected of) const {
    require_values(ranks, out.read(), of);
  }
};

// --- the table ---

class mistake {
 public:
  const char* name;
  int ranks = 3;
  int lsa_size = 0;
  const char* variable = nullptr;  ///< set in the environment where wrong
  const char* value = nullptr;

  using program = void (*)(communicator& comm, bool wrong);
  using on_board = void (*)(const bench& b);
  mistake(const char* its_name, on_board kernels) : name(its_name), on_board_(kernels) {}
  mistake(const char* its_name, program whole, int its_ranks = 3, int its_lsa_size = 0,
          const char* its_variable = nullptr, const char* its_value = nullptr)
      : name(its_name),
        ranks(its_ranks),
        lsa_size(its_lsa_size),
        variable(its_variable),
        value(its_value),
        program_(whole) {}

  /// One rank's part.
  void run(communicator& comm, bool wrong) const {
    if (program_ != nullptr) return program_(comm, wrong);
    const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
    const auto memory = comm.allocate(2 * words * sizeof(std::uint32_t), "board");
    on_board_({comm, device, memory.pointer<std::uint32_t>(), wrong});
    comm.barrier();
  }

 private:
  program program_ = nullptr;
  on_board on_board_ = nullptr;
};

}  // namespace mistakes
