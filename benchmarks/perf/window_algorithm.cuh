/// \file window_algorithm.cuh
/// Collectives between the ranks' windows.
#pragma once

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

namespace perf::windows {

using namespace devcomm;

template <class Collective, class T>
__global__ void __launch_bounds__(max_threads, 1)
    through_windows(device_comm comm, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  Collective::run(barrier, input, output, count);
}

/// `Collective` has, beside what `device_algorithm.hpp` asks for, `run(barrier, input, output, count)`. Places
/// that its function does not want in a window lie in one as well, and are taken by their local address.
template <class Collective>
class window_algorithm final : public device_algorithm {
 public:
  explicit window_algorithm(const rank_context& context) : device_algorithm(context) {
    device_comm_ = comm().create_device_comm(comm().requirements().lsa_barriers(max_blocks));
  }

  [[nodiscard]] std::string name() const override { return Collective::name; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  void start(const work& what) override {
    with_element<Collective>(what.type, [&]<class T>(T) {
      launch(through_windows<Collective, T>, shape_of(what), device_comm_->get(), in_window<T>(what.input),
             in_window<T>(what.output), what.bytes / sizeof(T));
    });
  }
};

}  // namespace perf::windows
