/// Random collectives one after the other: `random_collectives CALLS [SEED]`. Of each call the collective, its
/// protocol, size, alignment, shape, root, and how late which rank comes are random; all outputs, and what lies around
/// them, are checked on the device. `DEVCOMM_RANKS` sets the ranks, which may share GPUs.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/prepare.hpp>
#include <devcomm/host/run_ranks.hpp>

#include "support/ranks.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
namespace arch = devcomm::arch;

namespace {

constexpr std::uint64_t around = 8;  // elements before and after an output that must stay as they are
constexpr float poison = -1234567;
constexpr unsigned max_threads = 512;  // of a block

enum class operation : unsigned { all_reduce, reduce_scatter, all_gather, broadcast };

struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::ll128_handle ll128;
  lsa::lamport_handle lamport;
  collective::chunk_buffers chunks;
};

/// One call, as all ranks have it.
struct call {
  operation what;
  unsigned number;
  std::uint64_t count;  ///< elements of the whole vector
  sym_ptr<float> input;
  sym_ptr<float> output;
  int root;
  int rank;
  int ranks;

  __device__ collective::slice own() const { return collective::shard_of(count, ranks, rank); }
  __device__ std::uint64_t length() const { return collective::shard_length(count, ranks); }
  __device__ std::uint64_t inputs() const { return what == operation::all_gather ? own().size() : count; }
  __device__ std::uint64_t outputs() const { return what == operation::reduce_scatter ? own().size() : count; }

  /// Element `i` of what `of` has: a small integer, so that sums are exact.
  __device__ float value(int of, std::uint64_t i) const {
    std::uint64_t x =
        i * 0x9e3779b97f4a7c15u + (std::uint64_t{number} * 1024 + static_cast<unsigned>(of)) * 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return static_cast<float>(static_cast<int>(x * 0xd6e8feb86659fd93u >> 60) - 7);
  }
  __device__ float expected(std::uint64_t i) const {
    if (what == operation::all_gather) return value(0, i);
    if (what == operation::broadcast) return value(root, i);
    float sum = 0;
    const std::uint64_t at = what == operation::reduce_scatter ? own().begin + i : i;
    for (int of = 0; of < ranks; ++of) sum += value(of, at);
    return sum;
  }
};

struct mistakes {
  std::uint64_t number;
  std::uint64_t call;   ///< of one of them
  std::uint64_t index;  ///< from the output's start on; may be negative
  float got;
  float expected;
};

/// Waits for `late` nanoseconds, fills the input, and poisons the output and what is around it.
__global__ void __launch_bounds__(max_threads) fill(call now, std::uint64_t late) {
  if (late != 0) {
    const std::uint64_t begin = arch::global_time();
    while (arch::global_time() - begin < late) arch::sleep(1000);
  }
  const std::uint64_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  const bool in_place = now.input == now.output;
  for (std::uint64_t i = first; i < now.outputs() + 2 * around; i += step)
    if (!in_place || i < around || i >= around + now.inputs()) (now.output.local() - around)[i] = poison;
  const std::uint64_t begin = now.what == operation::all_gather ? now.own().begin : 0;
  const int of = now.what == operation::all_gather ? 0 : now.rank;
  for (std::uint64_t i = first; i < now.inputs(); i += step) now.input.local()[i] = now.value(of, begin + i);
}

__global__ void __launch_bounds__(max_threads) check(call now, mistakes* found) {
  const std::uint64_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  for (std::uint64_t i = first; i < now.outputs() + 2 * around; i += step) {
    const bool outside = i < around || i >= around + now.outputs();
    const float expected = outside ? poison : now.expected(i - around);
    const float got = (now.output.local() - around)[i];
    if (got == expected) continue;
    if (arch::fetch_add<memory_order::relaxed, scope::device>(&found->number, std::uint64_t{1}) != 0) continue;
    found->call = now.number;
    found->index = i - around;
    found->got = got;
    found->expected = expected;
  }
}

// The ways of the operations.

struct one_shot {
  template <class Session>
  __device__ static void run(Session& session, const call& now) {
    collective::all_reduce_one_shot<float>(session, collective::slice_of_block(collective::packs_of<float>(now.count)),
                                           collective::from_memory<float>{now.input.local(), now.count},
                                           collective::to_memory<float>{now.output.local(), now.count}, sum{});
  }
};
struct two_shot {
  template <class Session>
  __device__ static void run(Session& session, const call& now) {
    collective::all_reduce_two_shot<float>(session, collective::slice_of_block(collective::packs_of<float>(now.count)),
                                           collective::from_memory<float>{now.input.local(), now.count},
                                           collective::to_memory<float>{now.output.local(), now.count}, sum{});
  }
};
struct scatter {
  template <class Session>
  __device__ static void run(Session& session, const call& now) {
    collective::reduce_scatter<float>(session, collective::slice_of_block(collective::packs_of<float>(now.length())),
                                      collective::from_shards<float>{now.input.local(), now.count, now.length()},
                                      collective::to_memory<float>{now.output.local(), now.own().size()}, sum{});
  }
};
struct gather {
  template <class Session>
  __device__ static void run(Session& session, const call& now) {
    collective::all_gather<float>(session, collective::slice_of_block(collective::packs_of<float>(now.length())),
                                  collective::from_memory<float>{now.input.local(), now.own().size()},
                                  collective::to_shards<float>{now.output.local(), now.count, now.length()});
  }
};
struct from_root {
  template <class Session>
  __device__ static void run(Session& session, const call& now) {
    collective::broadcast<float>(session, now.root, collective::slice_of_block(collective::packs_of<float>(now.count)),
                                 collective::from_memory<float>{now.input.local(), now.count},
                                 collective::to_memory<float>{now.output.local(), now.count});
  }
};

template <class Algorithm>
__global__ void __launch_bounds__(max_threads) over_ll(resources at, call now) {
  lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
  Algorithm::run(session, now);
}
template <class Algorithm>
__global__ void __launch_bounds__(max_threads) over_ll128(resources at, call now) {
  lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
  Algorithm::run(session, now);
}
template <class Algorithm>
__global__ void __launch_bounds__(max_threads) over_lamport(resources at, call now) {
  lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
  Algorithm::run(session, now);
}
__global__ void __launch_bounds__(max_threads) between_windows(resources at, call now) {
  lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
  switch (now.what) {
    case operation::all_reduce:
      return collective::all_reduce_two_shot_zero_copy<float>(barrier, now.input, now.output, now.count, sum{});
    case operation::reduce_scatter:
      return collective::reduce_scatter_zero_copy<float>(barrier, now.input, now.output.local(), now.count, sum{});
    case operation::all_gather:
      return collective::all_gather_zero_copy<float>(barrier, now.input.local(), now.output, now.count);
    case operation::broadcast:
      return collective::broadcast_zero_copy<float>(barrier, now.root, now.input.local(), now.output, now.count);
  }
}
__global__ void __launch_bounds__(max_threads) in_chunks(resources at, call now) {
  lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
  const auto share = [](std::uint64_t elements) {
    const std::uint64_t packs = collective::packs_of<float>(elements);
    return collective::shard_of_length(packs, collective::packs_per_block(packs, gridDim.x),
                                       static_cast<int>(blockIdx.x));
  };
  const auto chunks = collective::chunk_scratch::of_group(at.comm, at.chunks,
                                                          at.chunks.packs_for(gridDim.x, at.comm.lsa_size), blockIdx.x);
  if (now.what == operation::reduce_scatter) {
    const std::uint64_t shard = collective::shard_length(now.count, at.comm.lsa_size);
    const std::uint64_t own = collective::shard_of(now.count, at.comm.lsa_size, at.comm.lsa_rank()).size();
    return collective::reduce_scatter_chunked<float>(
        barrier, chunks, share(shard), collective::from_shards<float>{now.input.local(), now.count, shard},
        collective::to_memory<float>{now.output.local(), own}, sum{});
  }
  collective::all_reduce_two_shot_chunked<float>(barrier, chunks, share(now.count),
                                                 collective::from_memory<float>{now.input.local(), now.count},
                                                 collective::to_memory<float>{now.output.local(), now.count}, sum{});
}

struct way {
  const char* name;
  operation what;
  void (*kernel)(resources, call);
  bool can_be_in_place;
};

std::vector<way> ways_of(bool with_lines) {
  std::vector<way> all = {
      {"one-shot all-reduce over LL", operation::all_reduce, over_ll<one_shot>, true},
      {"two-shot all-reduce over LL", operation::all_reduce, over_ll<two_shot>, true},
      {"reduce-scatter over LL", operation::reduce_scatter, over_ll<scatter>, false},
      {"all-gather over LL", operation::all_gather, over_ll<gather>, false},
      {"broadcast over LL", operation::broadcast, over_ll<from_root>, false},
      {"one-shot all-reduce over Lamport", operation::all_reduce, over_lamport<one_shot>, true},
      {"reduce-scatter over Lamport", operation::reduce_scatter, over_lamport<scatter>, false},
      {"broadcast over Lamport", operation::broadcast, over_lamport<from_root>, false},
      {"two-shot all-reduce between windows", operation::all_reduce, between_windows, true},
      {"reduce-scatter between windows", operation::reduce_scatter, between_windows, false},
      {"all-gather between windows", operation::all_gather, between_windows, false},
      {"broadcast between windows", operation::broadcast, between_windows, false},
      {"all-reduce in chunks", operation::all_reduce, in_chunks, true},
      {"reduce-scatter in chunks", operation::reduce_scatter, in_chunks, false},
  };
  if (with_lines) {
    all.push_back({"two-shot all-reduce over LL128", operation::all_reduce, over_ll128<two_shot>, true});
    all.push_back({"all-gather over LL128", operation::all_gather, over_ll128<gather>, false});
  }
  return all;
}

/// Sizes; a simulated GPU runs small ones.
struct plan {
  unsigned max_blocks = 16;
  unsigned max_warps = max_threads / 32;
  unsigned largest = 18;  ///< log2 of the most elements
  std::uint32_t packs = 1024;
  std::uint64_t chunk_bytes = 4 << 20;
  std::uint64_t latest = 200000;  ///< ns that a rank may come late
  unsigned calls_in_a_row = 16;

  static plan simulated() {
    plan small;
    small.max_blocks = small.max_warps = 2;
    small.largest = 9;
    small.packs = 64;
    small.chunk_bytes = 64 << 10;
    small.latest = 2000;
    small.calls_in_a_row = 4;
    return small;
  }
};

/// One rank's part.
class soak {
 public:
  soak(host::communicator& comm, unsigned seed)
      : comm_(comm),
        plan_(comm.properties().timing.available ? plan{} : plan::simulated()),
        ways_(ways_of(comm.properties().ll128.available)),
        seed_(seed),
        input_(comm.allocate(window_bytes(), "input")),
        output_(comm.allocate(window_bytes(), "output")),
        device_comm_(make(comm)) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&found_), sizeof(mistakes)), "cudaMalloc");
    check_cuda(cudaMemsetAsync(found_, 0, sizeof(mistakes), cudaStreamPerThread), "cudaMemsetAsync");
    test::finish("cudaMemsetAsync");
    at_.comm = device_comm_.get();
    host::prepare(comm, fill, check, between_windows, in_chunks, over_ll<one_shot>, over_ll<two_shot>, over_ll<scatter>,
                  over_ll<gather>, over_ll<from_root>, over_lamport<one_shot>, over_lamport<scatter>,
                  over_lamport<from_root>, over_ll128<two_shot>, over_ll128<gather>);
  }
  soak(const soak&) = delete;
  soak& operator=(const soak&) = delete;
  ~soak() { cudaFree(found_); }

  void run(unsigned calls) {
    unsigned rest_of_row = 0;
    std::uint64_t told = 0;  // tenths
    for (unsigned number = 0; number < calls; ++number) {
      std::mt19937 same_everywhere(seed_ * 1000003 + number);
      if (rest_of_row == 0) rest_of_row = 1 + static_cast<unsigned>(same_everywhere() % plan_.calls_in_a_row);
      start(number, same_everywhere);
      if (--rest_of_row != 0 && number + 1 < calls) continue;
      finish(number);
      if (comm_.rank() != 0 || (number + 1) * std::uint64_t{10} / calls == told) continue;
      told = (number + 1) * std::uint64_t{10} / calls;
      std::printf("%8u calls right on %d ranks\n", number + 1, comm_.size());
      std::fflush(stdout);
    }
  }

 private:
  [[nodiscard]] std::uint64_t window_bytes() const {
    return ((std::uint64_t{1} << plan_.largest) + 4 * around) * sizeof(float);
  }

  host::device_communicator make(host::communicator& comm) {
    requirements needs = comm.requirements().lsa_barriers(plan_.max_blocks).with(lsa::whole_world{});
    at_.ll = needs.add(lsa::ll_mailboxes{comm.lsa(), plan_.max_blocks, 2 * plan_.packs});
    at_.lamport = needs.add(lsa::lamport_mailboxes{comm.lsa(), plan_.max_blocks, plan_.packs});
    if (comm.properties().ll128.available)
      at_.ll128 = needs.add(
          lsa::ll128_mailboxes{comm.lsa(), plan_.max_blocks, lsa::ll128_session<block>::packets_for(plan_.packs)});
    at_.chunks = needs.add(collective::chunk_buffer_bytes{plan_.chunk_bytes});
    return comm.create_device_comm(needs);
  }

  void start(unsigned number, std::mt19937& same_everywhere) {
    const auto below = [&](std::uint64_t limit) { return same_everywhere() % limit; };
    const way& chosen = ways_[below(ways_.size())];
    const std::uint64_t most = std::uint64_t{1} << below(plan_.largest + 1);
    call now{};
    now.what = chosen.what;
    now.number = number;
    now.count = below(most + 1);
    now.input = input_.pointer<float>() + static_cast<std::int64_t>(around + below(around));
    now.output = output_.pointer<float>() + static_cast<std::int64_t>(around + below(around));
    if (chosen.can_be_in_place && below(3) == 0) now.output = now.input;
    now.root = static_cast<int>(below(static_cast<std::uint64_t>(comm_.size())));
    now.rank = comm_.rank();
    now.ranks = comm_.size();
    const launch_config shape{.grid = static_cast<unsigned>(1 + below(plan_.max_blocks)),
                              .block = static_cast<unsigned>(32 * (1 + below(plan_.max_warps))),
                              .stream = cudaStreamPerThread};
    last_ = std::string(chosen.name) + " of " + std::to_string(now.count) + " elements, input at " +
            std::to_string(now.input.offset) + ", output at " + std::to_string(now.output.offset) + ", " +
            std::to_string(shape.grid.x) + " x " + std::to_string(shape.block.x) + ", root " + std::to_string(now.root);

    std::mt19937 own(seed_ * 7919 + number * 64 + static_cast<unsigned>(comm_.rank()));
    const std::uint64_t late = own() % 8 == 0 ? own() % plan_.latest : 0;
    const launch_config aside{.grid = 4, .block = 64, .stream = cudaStreamPerThread};
    launch(fill, aside, now, late);
    if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::nanoseconds(own() % plan_.latest));
    launch(chosen.kernel, shape, at_, now);
    launch(check, aside, now, found_);  // a collective has ended when all have read its inputs and written its outputs
  }

  /// Throws what is wrong with the calls of this row.
  void finish(unsigned number) {
    const std::string what = "up to call " + std::to_string(number) + " (the last: " + last_ + ")";
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), what.c_str());
    device_comm_.check();
    mistakes found{};
    // Not on the legacy stream, which waits for those of all threads: other ranks on this GPU are in kernels by now
    // that wait for this rank's next call.
    check_cuda(cudaMemcpyAsync(&found, found_, sizeof found, cudaMemcpyDeviceToHost, cudaStreamPerThread),
               "cudaMemcpyAsync");
    test::finish("cudaMemcpyAsync");
    test::require(found.number == 0, [&] {
      return what + ": " + std::to_string(found.number) + " wrong elements, in call " + std::to_string(found.call) +
             " element " + std::to_string(static_cast<std::int64_t>(found.index)) + " is " + std::to_string(found.got) +
             ", expected " + std::to_string(found.expected);
    });
  }

  host::communicator& comm_;
  plan plan_;
  std::vector<way> ways_;
  unsigned seed_;
  host::symmetric_memory input_;
  host::symmetric_memory output_;
  resources at_{};
  host::device_communicator device_comm_;
  mistakes* found_ = nullptr;
  std::string last_;
};

}  // namespace

int main(int count, char** arguments) {
  const int calls = count >= 2 ? std::atoi(arguments[1]) : 0;
  const int seed = count == 3 ? std::atoi(arguments[2]) : 1;
  if (count > 3 || calls <= 0 || seed <= 0) {
    std::fprintf(stderr, "usage: %s CALLS [SEED], numbers from 1 on\n", arguments[0]);
    return 2;
  }
  try {
    host::run_ranks({}, [&](host::communicator& comm) {
      soak(comm, static_cast<unsigned>(seed)).run(static_cast<unsigned>(calls));
    });
    return 0;
  } catch (const std::exception& error) {
    std::printf("seed %d: %s\n", seed, error.what());
    return 1;
  }
}
