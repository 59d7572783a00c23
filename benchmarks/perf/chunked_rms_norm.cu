#include "perf/chunked_algorithm.cuh"
#include "perf/chunked_rms_norm.hpp"
#include "perf/norm_call.cuh"

#include <devcomm/devcomm.cuh>

namespace perf {
namespace {

using namespace devcomm;

/// Puts residuals, with the sums added by the rank that reduces them, into all ranks' windows, and norms rows there.
template <class T>
struct norm_in_windows {
  const warp_span& group;
  const norm_tensors<T>& tensors;
  sym_ptr<T> residual_out;

  __device__ pack<T> map(std::uint64_t i, const pack<T>& sums) const {
    return add(sums, load_pack_streaming(tensors.residual + i * pack<T>::size));
  }
  __device__ void store(int member, std::uint64_t i, const pack<T>& residual) const {
    store_pack(residual_out.lsa(member) + i * pack<T>::size, residual);
  }
  __device__ void operator()(std::uint64_t i, const pack<T>& residual) const {
    store_pack(tensors.residual_out + i * pack<T>::size, residual);
  }
  __device__ void complete(collective::slice packs) const {
    normalize_rows(group, tensors, packs.begin, static_cast<std::uint32_t>(packs.size()) / tensors.row_packs);
  }
};

/// Large tensors, in chunks of whole rows: each residual crosses the links once, and its norm is made of it where it
/// arrives, while other blocks' chunks travel. Each group takes `group_packs` packs, which are whole rows.
template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    norm_of_chunks(device_comm comm, collective::chunk_buffers buffers, std::uint32_t chunk_packs,
                   norm_tensors<T> tensors, sym_ptr<T> residual_out, std::uint64_t group_packs, unsigned groups) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const chunk_group part(groups);
  lsa::barrier_session barrier{part.group, comm, part.index};
  const std::uint64_t packs = std::uint64_t{tensors.rows} * tensors.row_packs;
  collective::all_reduce_two_shot_chunked<T>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, chunk_packs, part.index, tensors.row_packs),
      collective::shard_of_length(packs, group_packs, static_cast<int>(part.index)),
      [&tensors](std::uint64_t i) { return load_pack_streaming(tensors.partial + i * pack<T>::size); },
      norm_in_windows<T>{part.group, tensors, residual_out}, sum{});
}

class chunked_rms_norm final : public chunked_algorithm {
 public:
  using chunked_algorithm::chunked_algorithm;

  [[nodiscard]] std::string name() const override { return "two_shot_chunked_to_window"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    const std::string reason = why_no_norm(what);
    return reason.empty() && packs_for(max_groups_of_block, granularity_of(what)) == 0
               ? "a row does not fit into a chunk"
               : reason;
  }
  [[nodiscard]] launch_shape fitted(const work& what) const override {
    launch_shape shape = what.shape;
    while (shape.blocks > 1 && packs_for(groups_of(shape), granularity_of(what)) == 0) --shape.blocks;
    return shape;
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    std::vector<launch_shape> fitting;
    for (const launch_shape& shape : usual_shapes((what.bytes + 15) / 16, is_simulated()))
      if (shape.blocks <= rows_of(what) && packs_for(groups_of(shape), granularity_of(what)) != 0)
        fitting.push_back(shape);
    return fitting;
  }
  void start(const work& what) override {
    const std::uint32_t packs = chunk_packs(what.shape, granularity_of(what));
    const std::uint64_t groups = groups_of(what.shape);
    with_layer_type(what.type, [&]<class T>(T) {
      const norm_tensors<T> tensors = tensors_of<T>(what);
      launch(norm_of_chunks<T>, shape_of(what), device_comm_->get(), buffers_, packs, tensors,
             in_window<T>(tensors.residual_out), (tensors.rows + groups - 1) / groups * tensors.row_packs,
             groups_of_block(what.shape));
    });
  }

 private:
  /// Packs of a row.
  static std::uint32_t granularity_of(const work& what) { return static_cast<std::uint32_t>(row_bytes(what) / 16); }
};

}  // namespace

void add_chunked_rms_norm(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<chunked_rms_norm>(context));
}

}  // namespace perf
