#include "perf/chunked_algorithm.cuh"
#include "perf/chunked_all_reduce.hpp"

#include <devcomm/devcomm.cuh>

#include <algorithm>

namespace perf {
namespace {

using namespace devcomm;

template <class T, class Consume>
__global__ void __launch_bounds__(max_threads, 1)
    through_chunks(device_comm comm, collective::chunk_buffers buffers, std::uint32_t chunk_packs, const T* input,
                   Consume consume, std::uint64_t count, std::uint64_t group_packs, unsigned groups) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const chunk_group part(groups);
  lsa::barrier_session barrier{part.group, comm, part.index};
  collective::all_reduce_two_shot_chunked<T>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, chunk_packs, part.index),
      collective::shard_of_length(collective::packs_of<T>(count), group_packs, static_cast<int>(part.index)),
      collective::from_memory<T>{input, count}, consume, sum{});
}

/// Results through memory of the library's to outputs anywhere, or straight into a window.
template <bool IntoWindow>
class chunked_all_reduce final : public chunked_algorithm {
 public:
  using chunked_algorithm::chunked_algorithm;

  [[nodiscard]] std::string name() const override {
    return IntoWindow ? "two_shot_chunked_to_window" : "two_shot_chunked";
  }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      if constexpr (IntoWindow) {
        run(what, collective::to_window<T>{in_window<T>(what.output), what.count()});
      } else {
        run(what, collective::to_memory<T>{static_cast<T*>(what.output), what.count()});
      }
    });
  }

 private:
  template <class T, template <class> class Consume>
  void run(const work& what, const Consume<T>& consume) {
    launch(through_chunks<T, Consume<T>>, shape_of(what), device_comm_->get(), buffers_, chunk_packs(what.shape),
           static_cast<const T*>(what.input), consume, what.count(),
           collective::packs_per_block(collective::packs_of<T>(what.count()), groups_of(what.shape)),
           groups_of_block(what.shape));
  }
};

}  // namespace

void add_chunked_all_reduce(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<chunked_all_reduce<false>>(context));
  made.push_back(std::make_unique<chunked_all_reduce<true>>(context));
}

}  // namespace perf
