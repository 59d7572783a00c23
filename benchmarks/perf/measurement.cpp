#include "perf/measurement.hpp"

#include "common/captured_graph.hpp"

#include <algorithm>

namespace perf {
namespace {

using chain = std::function<void(cudaStream_t)>;

/// The value that `share` of the sorted values are not above.
template <class T>
const T& percentile(const std::vector<T>& sorted, double share) {
  const auto place = static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[place];
}

void overwrite(std::byte* memory, std::uint64_t bytes, int value, cudaStream_t stream) {
  devcomm::check_cuda(cudaMemsetAsync(memory, value, bytes, stream), "cudaMemsetAsync");
}

}  // namespace

std::byte* measurement::place(const operation& what, algorithm& how, work& call) const {
  std::byte* memory = how.memory();
  if (memory == nullptr) memory = static_cast<std::byte*>(context_.window->data());
  std::byte* const outputs = memory + context_.max_bytes;
  call.output = outputs;
  call.input = call.in_place ? outputs : memory;
  what.place(call);
  return outputs;
}

void measurement::wait_for(algorithm& how, const char* what) {
  devcomm::check_cuda(cudaStreamSynchronize(watch_.stream()), what);
  how.check();
  comm_.check();
}

/// One call on new random data, with the output poisoned before. The elements that are wrong here.
std::uint64_t measurement::check(const operation& what, algorithm& how, const work& call, std::byte* outputs,
                                 std::uint64_t seed) {
  overwrite(outputs, what.region(call), 0xff, call.stream);
  what.fill(call, seed);
  wait_for(how, "preparing the data");
  comm_.barrier();
  how.start(call);
  wait_for(how, "the checked call");
  comm_.barrier();  // counting frees memory, which waits for kernels of others on the GPU, and holds up copies for them
  const std::uint64_t wrong = what.count_wrong(call, seed);
  comm_.barrier();
  return wrong;
}

std::vector<measurement::timed> measurement::times(const chain& start, const std::function<void()>& check,
                                                   std::uint64_t late, int replays) {
  std::optional<benchmark::captured_graph> graph;
  if (settings_.graph) graph.emplace(watch_.stream(), start);
  const std::chrono::microseconds mine(comm_.rank() == comm_.size() - 1 ? late : 0);
  std::vector<timed> all;
  for (int r = 0; r <= replays; ++r) {
    const double slowest = start_line_.slowest(mine, [&] {
      const float milliseconds = watch_.time([&](cudaStream_t stream) {
        graph ? graph->start(stream) : start(stream);
        start_line_.launched();
      });
      check();
      return milliseconds;
    });
    if (r > 0) all.push_back({slowest * 1e3, start_line_.launch_lag()});  // 0: warm-up
  }
  std::sort(all.begin(), all.end(), [](const timed& a, const timed& b) { return a.us < b.us; });
  return all;
}

row measurement::measure(const operation& what, algorithm& how, work call, const lateness& late, int launches,
                         int replays) {
  call.stream = watch_.stream();
  call.dependent = call.dependent && how.can_be_dependent();
  std::byte* const outputs = place(what, how, call);
  if (launches == 0) launches = settings_.launches != 0 ? settings_.launches : usual_launches(call.bytes);
  if (replays == 0) replays = settings_.replays;

  std::uint64_t wrong = check(what, how, call, outputs, 1) + check(what, how, call, outputs, 2);

  // Repeated in place, sums would grow without end; zeros stay.
  overwrite(outputs, what.region(call), call.in_place ? 0 : 0xff, call.stream);
  if (!call.in_place) what.fill(call, 3);
  wait_for(how, "preparing the data");
  const auto spin_before = [&](int i, cudaStream_t stream) {
    if (late.jitter != 0) spin(jitter_of(call.rank, i, late.jitter * 1000), stream);
  };
  const chain calls = [&](cudaStream_t stream) {
    for (int i = 0; i < launches; ++i) {
      spin_before(i, stream);
      how.start(call);
    }
  };
  const auto check_calls = [&] { wait_for(how, "the measured calls"); };
  const std::vector<timed> chains = times(calls, check_calls, late.late, replays);
  if (!call.in_place) wrong += what.count_wrong(call, 3);
  double of_spins = 0;  // microseconds of the chain with nothing else
  if (late.jitter != 0) {
    const chain spins = [&](cudaStream_t stream) {
      for (int i = 0; i < launches; ++i) spin_before(i, stream);
    };
    of_spins = percentile(times(spins, check_calls, 0, replays), 0.5).us;
  }

  const int done = launches * how.times_in_call(call);
  row result;
  result.operation = what.name();
  result.implementation = how.implementation();
  result.algorithm = how.name();
  result.protocol = how.protocol();
  result.ranks = comm_.size();
  result.bytes = call.bytes;
  result.type = call.type;
  result.in_place = call.in_place;
  result.graph = settings_.graph;
  result.dependent = call.dependent;
  result.shape = call.shape;
  result.calls = done;
  result.late = late;
  result.mean_late = mean_lateness(late, comm_.size(), launches) * launches / done;
  result.spin = of_spins / done;
  result.spun = max_spun(late, comm_.size(), launches) * launches / done;
  result.median = percentile(chains, 0.5).us / done;
  result.p99 = percentile(chains, 0.99).us / done;
  result.most = chains.back().us / done;
  result.lag_of_most = chains.back().lag;
  result.least = chains.front().us / done;
  result.bus_factor = what.bus_factor(comm_.size());
  result.wrong = exchange_.total(wrong);
  return result;
}

}  // namespace perf
