/// \file window_algorithm.cuh
/// Collectives between the ranks' windows.
#pragma once

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

#include <optional>

namespace perf::windows {

using namespace devcomm;

template <class Collective, class T>
__global__ void __launch_bounds__(max_threads, 1)
    through_windows(device_comm comm, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  Collective::run(barrier, input, output, count);
}

/// Whether a collective alternates between two outputs: `Collective::in_turn`.
template <class Collective>
constexpr bool is_in_turn = [] {
  if constexpr (requires { Collective::in_turn; }) return Collective::in_turn;
  return false;
}();

/// `Collective` has, beside what `device_algorithm.hpp` asks for, `run(barrier, input, output, count)`. Places
/// that its function does not want in a window lie in one as well, and are taken by their local address. Where outputs
/// are in turn a call is two, the first of which uses memory of its own.
template <class Collective>
class window_algorithm final : public device_algorithm {
 public:
  explicit window_algorithm(const rank_context& context) : device_algorithm(context) {
    device_comm_ = comm().create_device_comm(comm().requirements().lsa_barriers(max_blocks));
    if (is_in_turn<Collective>) other_.emplace(comm().allocate(context.max_bytes));
  }

  [[nodiscard]] std::string name() const override { return Collective::name; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  [[nodiscard]] int times_in_call(const work&) const override { return is_in_turn<Collective> ? 2 : 1; }
  void start(const work& what) override {
    with_element<Collective>(what.type, [&]<class T>(T) {
      const auto run = [&](const sym_ptr<T>& output) {
        launch(through_windows<Collective, T>, shape_of(what), device_comm_->get(), in_window<T>(what.input), output,
               what.bytes / sizeof(T));
      };
      if (is_in_turn<Collective>) run(other_->template pointer<T>());
      run(in_window<T>(what.output));
    });
  }

 private:
  std::optional<host::symmetric_memory> other_;
};

}  // namespace perf::windows
