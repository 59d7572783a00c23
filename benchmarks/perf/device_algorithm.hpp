/// \file device_algorithm.hpp
/// What devcomm's own algorithms share.
#pragma once

#include "perf/algorithm.hpp"
#include "perf/options.hpp"

#include <devcomm/launch.hpp>

#include <optional>
#include <vector>

namespace perf {

/// Powers of two, and all multiprocessors; no more threads than half of them would have work.
inline std::vector<launch_shape> usual_shapes(std::uint64_t packs, bool few) {
  std::vector<launch_shape> shapes;
  if (few) return {{1, 32}, {2, 32}};
  for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, max_blocks})
    for (const unsigned threads : {64u, 128u, 256u, max_threads})
      if ((blocks == 1 && threads == 64) || std::uint64_t{blocks} * threads <= 2 * packs)
        shapes.push_back({blocks, threads});
  return shapes;
}

/// Which of a collective's vectors the ranks share out, a shard for each.
///
/// A class `Collective` of the templates that follow has `name`, `in_shards`, and `only_moves`, which says that it
/// brings elements as they are.
enum class shards { none, of_input, of_output, of_both };

/// Bytes that blocks share out: of the vector, or of each rank's shard.
template <class Collective>
std::uint64_t length_of_call(const work& what) {
  return Collective::in_shards == shards::none ? what.bytes : what.shard() * bytes_of(what.type);
}
template <class Collective>
std::uint64_t packs_of_call(const work& what) {
  return (length_of_call<Collective>(what) + 15) / 16;
}

/// Calls `run` with a value of the element type; where elements only move, of one type of 2 bytes, as a kernel for each
/// would be the same.
template <class Collective, class Run>
void with_element(data_type type, Run&& run) {
  if constexpr (Collective::only_moves) {
    run(__nv_bfloat16{});
  } else {
    with_type(type, run);
  }
}

/// What the algorithms share: resources on the device, made together.
class device_algorithm : public algorithm {
 public:
  explicit device_algorithm(const rank_context& context) : context_(context) {}

  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes((what.bytes + 15) / 16, is_simulated());
  }
  void check() override {
    if (device_comm_) device_comm_->check();
  }

 protected:
  [[nodiscard]] bool is_simulated() const { return !context_.comm->properties().timing.available; }
  [[nodiscard]] devcomm::launch_config shape_of(const work& what) const {
    return {.grid = what.shape.blocks,
            .block = what.shape.threads,
            .stream = what.stream,
            .programmatic_dependent = what.dependent};
  }
  /// The place in the window of memory that lies there.
  template <class T>
  [[nodiscard]] devcomm::sym_ptr<T> in_window(void* address) const {
    const auto* base = static_cast<const std::byte*>(context_.window->data());
    return {context_.window->window(), static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base)};
  }
  [[nodiscard]] devcomm::host::communicator& comm() const { return *context_.comm; }
  [[nodiscard]] const rank_context& context() const { return context_; }

  std::optional<devcomm::host::device_communicator> device_comm_;

 private:
  rank_context context_;
};

}  // namespace perf
