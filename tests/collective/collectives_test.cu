/// Collectives, element types and operators in pairs, against references in float64 or of integers.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 2;
constexpr unsigned groups_of_block = 2;    // where blocks have several
constexpr std::size_t capacity = 1 << 20;  // bytes for inputs, and as many for outputs

// Operators, chosen at run time: one kernel for all.

enum class kind { sum, product, minimum, maximum, average, scaled, bit_and, bit_or, bit_xor, root_mean_square };
constexpr kind of_all_types[] = {kind::sum, kind::product, kind::minimum, kind::maximum, kind::average, kind::scaled};
constexpr int scale = 3;

struct chosen_operator {
  kind which;

  template <class A>
  __device__ DEVCOMM_NOINLINE A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      if (which == kind::bit_and) return bitwise_and{}(a, b);
      if (which == kind::bit_or) return bitwise_or{}(a, b);
      if (which == kind::bit_xor) return bitwise_xor{}(a, b);
    }
    if (which == kind::product) return product{}(a, b);
    if (which == kind::minimum) return minimum{}(a, b);
    if (which == kind::maximum) return maximum{}(a, b);
    if (which == kind::average) return average{}(a, b);
    if (which == kind::scaled) return scaled_sum{scale}(a, b);
    return sum{}(a, b);
  }
  template <class A>
  __device__ DEVCOMM_NOINLINE A prepare(A value) const {
    if (which == kind::scaled) return scaled_sum{scale}.prepare(value);
    return which == kind::root_mean_square ? product{}(value, value) : value;
  }
  template <class A>
  __device__ DEVCOMM_NOINLINE A finish(A total, int inputs) const {
    if (which == kind::average) return average{}.finish(total, inputs);
    if constexpr (std::is_floating_point_v<A>) {
      if (which == kind::root_mean_square) return std::sqrt(total / static_cast<A>(inputs));
    }
    return total;
  }
};

// References.

template <class T>
constexpr int mantissa_bits = std::numeric_limits<T>::digits - 1;
template <>
constexpr int mantissa_bits<__half> = 10;
template <>
constexpr int mantissa_bits<__nv_bfloat16> = 7;

template <>
constexpr int mantissa_bits<__nv_fp8_e4m3> = 3;
template <>
constexpr int mantissa_bits<__nv_fp8_e5m2> = 2;

/// Half of the smallest number, where results may be as small.
template <class T>
constexpr double half_of_smallest = sizeof(T) == 1   ? 0x1p-10
                                    : sizeof(T) == 2 ? 0x1p-25
                                                     : 0;

std::uint64_t mixed(int rank, std::uint64_t i, int round) {
  std::uint64_t x = i * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank * 64 + round + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return x ^ x >> 32;
}

/// Any integer; of floating-point types one whose magnitude is between 0.5 and 1.5, so that products stay in range.
template <class T>
T element(int rank, std::uint64_t i, int round) {
  const std::uint64_t x = mixed(rank, i, round);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    const double magnitude = 0.5 + std::ldexp(static_cast<double>(x >> 11), -53);
    return static_cast<T>(static_cast<accumulator_t<T>>((x & 1) != 0 ? magnitude : -magnitude));
  }
}

/// Whether `got` is what integers `x` reduce to.
template <class T>
bool is_right_integer(T got, kind which, const std::vector<T>& x) {
  std::uint64_t total = 0;  // wraps around
  std::uint64_t multiplied = 1;
  T all = x[0];
  T some = x[0];
  T odd = 0;
  for (const T value : x) {
    total += static_cast<std::uint64_t>(value);
    multiplied *= static_cast<std::uint64_t>(value);
    all = static_cast<T>(all & value);
    some = static_cast<T>(some | value);
    odd = static_cast<T>(odd ^ value);
  }
  using wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  switch (which) {
    case kind::sum: return got == static_cast<T>(total);
    case kind::product: return got == static_cast<T>(multiplied);
    case kind::minimum: return got == *std::min_element(x.begin(), x.end());
    case kind::maximum: return got == *std::max_element(x.begin(), x.end());
    case kind::average: return got == static_cast<T>(wide{static_cast<T>(total)} / static_cast<wide>(x.size()));
    case kind::scaled: return got == static_cast<T>(total * scale);
    case kind::bit_and: return got == all;
    case kind::bit_or: return got == some;
    case kind::bit_xor: return got == odd;
    case kind::root_mean_square: break;
  }
  return false;
}

/// Whether `got` is as near to what `x` reduce to as one rounding of the type, and one of the accumulator for each
/// operation, can bring it.
template <class T>
bool is_right_number(T got, kind which, const std::vector<T>& x) {
  using accumulator = accumulator_t<T>;
  const auto inputs = static_cast<double>(x.size());
  double total = 0;
  double squares = 0;
  double magnitude = 0;
  double multiplied = 1;
  double least = HUGE_VAL;
  double most = -HUGE_VAL;
  for (const T element : x) {
    const auto value = static_cast<double>(static_cast<accumulator>(element));
    total += value;
    squares += value * value;
    magnitude += std::fabs(value);
    multiplied *= value;
    least = std::fmin(least, value);
    most = std::fmax(most, value);
  }
  double exact = total;
  double at_stake = magnitude;  // by how much a rounding is multiplied
  switch (which) {
    case kind::product: exact = multiplied, at_stake = std::fabs(multiplied); break;
    case kind::minimum: exact = least, at_stake = 0; break;
    case kind::maximum: exact = most, at_stake = 0; break;
    case kind::average: exact = total / inputs, at_stake = magnitude / inputs; break;
    case kind::scaled: exact = total * scale, at_stake = magnitude * scale; break;
    case kind::root_mean_square: exact = std::sqrt(squares / inputs), at_stake = exact; break;
    default: break;
  }
  const double of_sum = (inputs + 2) * at_stake * std::ldexp(1.0, -mantissa_bits<accumulator> - 1);
  const double of_result = (std::fabs(exact) + of_sum) * std::ldexp(1.0, -mantissa_bits<T> - 1) + half_of_smallest<T>;
  const double off = std::fabs(static_cast<double>(static_cast<accumulator>(got)) - exact);
  return off <= of_sum + (at_stake == 0 ? 0 : of_result);
}

// Collectives. What all take:

enum class form { all_reduce, reduce_scatter, all_gather, broadcast };

/// The elements of a vector of `count` that are the input or the output on a rank.
collective::slice input_of(form what, std::uint64_t count, int ranks, int rank) {
  return what == form::all_gather ? collective::shard_of(count, ranks, rank) : collective::slice{0, count};
}
collective::slice output_of(form what, std::uint64_t count, int ranks, int rank) {
  return what == form::reduce_scatter ? collective::shard_of(count, ranks, rank) : collective::slice{0, count};
}

struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::lamport_handle lamport;
  collective::chunk_buffers chunks;
  lsa::ll128_handle ll128;
};

template <class T>
struct vectors {
  sym_ptr<T> input;  // what is one rank's alone differs in its offset
  sym_ptr<T> output;
  std::uint64_t count;
  int ranks;
  int rank;
  int root;
  chosen_operator op;

  [[nodiscard]] __device__ std::uint64_t length() const { return collective::shard_length(count, ranks); }
  [[nodiscard]] __device__ std::uint64_t own_length() const { return collective::shard_of(count, ranks, rank).size(); }
  [[nodiscard]] __device__ collective::slice packs(std::uint64_t elements) const {
    return collective::slice_of_block(collective::packs_of<T>(elements));
  }
};

struct one_shot {
  static constexpr form is = form::all_reduce;
  static constexpr const char* name = "one-shot all-reduce";
  template <class T, class Session>
  __device__ static void run(Session& session, const vectors<T>& v) {
    collective::all_reduce_one_shot<T>(session, v.packs(v.count), collective::from_memory<T>{v.input.local(), v.count},
                                       collective::to_memory<T>{v.output.local(), v.count}, v.op);
  }
};
struct two_shot {
  static constexpr form is = form::all_reduce;
  static constexpr const char* name = "two-shot all-reduce";
  template <class T, class Session>
  __device__ static void run(Session& session, const vectors<T>& v) {
    collective::all_reduce_two_shot<T>(session, v.packs(v.count), collective::from_memory<T>{v.input.local(), v.count},
                                       collective::to_memory<T>{v.output.local(), v.count}, v.op);
  }
};
struct scatter {
  static constexpr form is = form::reduce_scatter;
  static constexpr const char* name = "reduce-scatter";
  template <class T, class Session>
  __device__ static void run(Session& session, const vectors<T>& v) {
    collective::reduce_scatter<T>(session, v.packs(v.length()),
                                  collective::from_shards<T>{v.input.local(), v.count, v.length()},
                                  collective::to_memory<T>{v.output.local(), v.own_length()}, v.op);
  }
};
struct gather {
  static constexpr form is = form::all_gather;
  static constexpr const char* name = "all-gather";
  template <class T, class Session>
  __device__ static void run(Session& session, const vectors<T>& v) {
    collective::all_gather<T>(session, v.packs(v.length()), collective::from_memory<T>{v.input.local(), v.own_length()},
                              collective::to_shards<T>{v.output.local(), v.count, v.length()});
  }
};
struct from_root {
  static constexpr form is = form::broadcast;
  static constexpr const char* name = "broadcast";
  template <class T, class Session>
  __device__ static void run(Session& session, const vectors<T>& v) {
    collective::broadcast<T>(session, v.root, v.packs(v.count), collective::from_memory<T>{v.input.local(), v.count},
                             collective::to_memory<T>{v.output.local(), v.count});
  }
};

template <class Algorithm>
struct over_ll : Algorithm {
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
    Algorithm::template run<T>(session, v);
  }
};
template <class Algorithm>
struct over_lamport : Algorithm {
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    Algorithm::template run<T>(session, v);
  }
};

template <class Algorithm>
struct over_ll128 : Algorithm {
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
    Algorithm::template run<T>(session, v);
  }
};

/// Straight between windows.
template <form Form>
struct direct {
  static constexpr form is = Form;
  static constexpr const char* name = "a collective between windows";
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    if constexpr (Form == form::all_reduce) {
      collective::all_reduce_two_shot_zero_copy<T>(barrier, v.input, v.output, v.count, v.op);
    } else if constexpr (Form == form::reduce_scatter) {
      collective::reduce_scatter_zero_copy<T>(barrier, v.input, v.output.local(), v.count, v.op);
    } else if constexpr (Form == form::all_gather) {
      collective::all_gather_zero_copy<T>(barrier, v.input.local(), v.output, v.count);
    } else {
      collective::broadcast_zero_copy<T>(barrier, v.root, v.input.local(), v.output, v.count);
    }
  }
};
struct pull {
  static constexpr form is = form::all_reduce;
  static constexpr const char* name = "one-shot all-reduce by pulling";
  static constexpr bool can_be_in_place = false;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    collective::all_reduce_one_shot_zero_copy<T>(barrier, v.input, v.output.local(), v.count, v.op);
  }
};

/// Turns results over as their owner has them, and back as soon as they are all there, in rows of `granularity` packs
/// by other threads of the group than have stored them: so each must be mapped and completed just once.
template <class T, class Consume>
struct turned_over {
  static constexpr std::uint32_t granularity = 3;

  Consume consume;
  const warp_span& group;
  const vectors<T>& v;
  collective::slice share;

  __device__ static pack<T> turn(pack<T> value) {
    std::uint32_t words[4];
    std::memcpy(words, static_cast<const void*>(&value), sizeof words);
    for (std::uint32_t& word : words) word = ~word;
    std::memcpy(static_cast<void*>(&value), words, sizeof words);
    return value;
  }
  __device__ pack<T> map(std::uint64_t i, const pack<T>& result) const {
    return i >= share.begin && i < share.end ? turn(result) : result;
  }
  __device__ void operator()(std::uint64_t i, const pack<T>& value) const { consume(i, value); }
  __device__ void complete(collective::slice packs) const {
    const auto is_between_rows = [&](std::uint64_t i) {
      return i == share.end || (i - share.begin) % granularity == 0;
    };
    if (!is_between_rows(packs.begin) || !is_between_rows(packs.end)) return;
    const auto thread = static_cast<std::uint64_t>(group.size() - 1 - group.thread_rank());
    for (std::uint64_t i = packs.begin + thread; i < packs.end; i += static_cast<std::uint64_t>(group.size()))
      collective::to_memory<T>{v.output.local(), v.count}(
          i, turn(collective::from_memory<T>{v.output.local(), v.count}(i)));
  }
};
template <class T>
struct turned_over_in_windows : turned_over<T, collective::to_window<T>> {
  __device__ void store(int member, std::uint64_t i, const pack<T>& value) const {
    this->consume.store(member, i, value);
  }
};

/// The calling thread's group of a kernel in chunks, and its part of the scratch and of a vector.
struct chunk_part {
  static constexpr unsigned warps = threads / 32 / groups_of_block;
  unsigned part = threadIdx.x / 32 / warps;
  unsigned index = blockIdx.x * groups_of_block + part;
  unsigned groups = gridDim.x * groups_of_block;
  warp_span group{part * warps, warps, 1 + part};

  [[nodiscard]] __device__ collective::slice share_of(std::uint64_t packs) const {
    return collective::shard_of_length(packs, collective::packs_per_block(packs, groups), static_cast<int>(index));
  }
  [[nodiscard]] __device__ collective::chunk_scratch scratch(const resources& at, std::uint32_t granularity = 1) const {
    return collective::chunk_scratch::of_group(
        at.comm, at.chunks, at.chunks.packs_for(groups, at.comm.lsa_size, granularity), index, granularity);
  }
};

struct chunked_scatter {
  static constexpr form is = form::reduce_scatter;
  static constexpr const char* name = "reduce-scatter in chunks";
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    const chunk_part own;
    lsa::barrier_session barrier{own.group, at.comm, own.index};
    collective::reduce_scatter_chunked<T>(barrier, own.scratch(at), own.share_of(collective::packs_of<T>(v.length())),
                                          collective::from_shards<T>{v.input.local(), v.count, v.length()},
                                          collective::to_memory<T>{v.output.local(), v.own_length()}, v.op);
  }
};

/// Through chunks of few packs, by two groups of a block; results into a window or through the chunks as well.
template <bool IntoWindow, bool InRows = false>
struct chunked {
  static constexpr form is = form::all_reduce;
  static constexpr const char* name = "all-reduce in chunks";
  static constexpr bool can_be_in_place = true;
  template <class T>
  __device__ static void run(const resources& at, const vectors<T>& v) {
    using to_own = collective::to_memory<T>;
    using to_all = collective::to_window<T>;
    const chunk_part own;
    const auto share = own.share_of(collective::packs_of<T>(v.count));
    const auto chunks = own.scratch(at, InRows ? turned_over<T, to_own>::granularity : 1);
    const warp_span& group = own.group;
    lsa::barrier_session barrier{group, at.comm, own.index};
    const auto reduce = [&](const auto& consume) {
      collective::all_reduce_two_shot_chunked<T>(barrier, chunks, share,
                                                 collective::from_memory<T>{v.input.local(), v.count}, consume, v.op);
    };
    if constexpr (IntoWindow && InRows) {
      reduce(turned_over_in_windows<T>{{to_all{v.output, v.count}, group, v, share}});
    } else if constexpr (IntoWindow) {
      reduce(to_all{v.output, v.count});
    } else if constexpr (InRows) {
      reduce(turned_over<T, to_own>{to_own{v.output.local(), v.count}, group, v, share});
    } else {
      reduce(to_own{v.output.local(), v.count});
    }
  }
};

template <class Collective, class T>
__global__ void run(resources at, vectors<T> v) {
  Collective::template run<T>(at, v);
}

using image = std::vector<std::byte>;
std::vector<image> results;  // one a rank; written by each at its own place

/// One rank's collectives, which follow one another in a stream without the host.
class program {
 public:
  explicit program(host::communicator& comm)
      : comm_(comm),
        input_(comm.allocate(capacity)),
        output_(comm.allocate(capacity)),
        in_(capacity, std::byte{0x3c}),
        out_(capacity, std::byte{0x5a}) {
    requirements needs = comm.requirements().lsa_barriers(max_blocks * groups_of_block);
    constexpr std::uint32_t packs = 24;  // in a round, so that some vectors take several
    at_.ll = needs.add(lsa::ll_mailboxes{comm.lsa(), max_blocks, 2 * packs});
    at_.lamport = needs.add(lsa::lamport_mailboxes{comm.lsa(), max_blocks, packs});
    at_.chunks =
        needs.add(collective::chunk_buffer_bytes{std::uint64_t{max_blocks * groups_of_block} * 2 * 9 * packs * 16});
    at_.ll128 = needs.add(lsa::ll128_mailboxes{comm.lsa(), max_blocks, lsa::ll128_session<block>::packets_for(packs)});
    device_comm_.emplace(comm.create_device_comm(needs));
    at_.comm = device_comm_->get();
  }

  template <class Collective, class T>
  void add(std::uint64_t count, kind which) {
    constexpr form what = Collective::is;
    const int round = ++rounds_;
    const bool in_place = Collective::can_be_in_place && round % 3 == 0;
    const int root = round % comm_.size();
    const auto in = input_of(what, count, comm_.size(), comm_.rank());
    const auto out = output_of(what, count, comm_.size(), comm_.rank());
    // Places that are this rank's alone are of another alignment on each; in place, within the whole vector.
    const std::uint64_t skew = static_cast<std::uint64_t>(round) % 4 * (16 / sizeof(T)) / 4;
    const auto own = static_cast<std::uint64_t>(comm_.rank() % 2);
    std::uint64_t in_at = used_ / sizeof(T) + skew + (what == form::all_gather ? own : 0);
    std::uint64_t out_at = used_ / sizeof(T) + skew + 1 + (what == form::reduce_scatter ? own : 0);
    if (in_place) {
      const std::uint64_t whole = used_ / sizeof(T) + skew;
      in_at = whole + in.begin;
      out_at = whole + out.begin;
    }
    used_ += ((count + 8) * sizeof(T) + 127) / 128 * 128;
    test::require(used_ <= capacity, "the test's windows are too small");

    image& source = in_place ? out_ : in_;
    for (std::uint64_t i = 0; i < in.size(); ++i) {
      if (what == form::broadcast && comm_.rank() != root) break;
      const T value = element<T>(comm_.rank(), i, round);
      std::memcpy(&source[(in_at + i) * sizeof(T)], static_cast<const void*>(&value), sizeof value);
    }
    const vectors<T> v{{(in_place ? output_ : input_).window(), in_at * sizeof(T)},
                       {output_.window(), out_at * sizeof(T)},
                       count,
                       comm_.size(),
                       comm_.rank(),
                       root,
                       {which}};
    const unsigned blocks = 1 + static_cast<unsigned>(round) % max_blocks;
    launches_.emplace_back([this, v, blocks](cudaStream_t stream) {
      launch(run<Collective, T>, {.grid = blocks, .block = threads, .stream = stream}, at_, v);
    });
    checks_.emplace_back([=, this](image& got) {
      for (std::uint64_t i = 0; i < out.size(); ++i) {
        std::byte* place = &got[(out_at + i) * sizeof(T)];
        if (!is_right<T>(what, count, root, round, which, out.begin + i, place)) {
          throw std::runtime_error(std::string(Collective::name) + " number " + std::to_string(round) +
                                   (in_place ? ", in place" : "") + ", operator " +
                                   std::to_string(static_cast<int>(which)) + ", rank " + std::to_string(comm_.rank()) +
                                   " of " + std::to_string(comm_.size()) + ", element " + std::to_string(i) + " of " +
                                   std::to_string(count) + ", each of " + std::to_string(sizeof(T)) + " bytes");
        }
        if (what != form::reduce_scatter) bits_.insert(bits_.end(), place, place + sizeof(T));
        std::memcpy(place, &out_[(out_at + i) * sizeof(T)], sizeof(T));  // what is left must be as it was
      }
    });
  }

  /// A third of the operators, another one for each number of ranks, with sizes, alignments and shapes that change from
  /// one to the next.
  template <class Collective, class T>
  void add_some() {
    std::vector<kind> operators(std::begin(of_all_types), std::end(of_all_types));
    if constexpr (std::is_integral_v<T>) {
      operators.insert(operators.end(), {kind::bit_and, kind::bit_or, kind::bit_xor});
    } else {
      operators.push_back(kind::root_mean_square);
    }
    if (Collective::is == form::all_gather || Collective::is == form::broadcast) operators.resize(4);
    constexpr std::uint64_t counts[] = {129, 1, 700, 16, 0, 333, 1207};
    for (std::size_t o = static_cast<std::size_t>(comm_.size()) % 3; o < operators.size(); o += 3)
      add<Collective, T>(counts[static_cast<std::size_t>(rounds_) % std::size(counts)], operators[o]);
  }

  /// Captured in a graph, and replayed so many times.
  void replay(int times) {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (const auto& launch_one : launches_) launch_one(stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int time = 0; time < times; ++time) {
      copy(input_.data(), in_.data(), stream);
      copy(output_.data(), out_.data(), stream);
      comm_.barrier();  // peers write outputs
      check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream), "the collectives");
      device_comm_->check();
      image got(capacity);
      copy(got.data(), output_.data(), stream);
      bits_.clear();
      for (const auto& check : checks_) check(got);
      test::require(got == out_, "something is written around an output of rank " + std::to_string(comm_.rank()));
      results[static_cast<std::size_t>(comm_.rank())] = bits_;
      comm_.barrier();
      test::require(bits_ == results[0], "rank " + std::to_string(comm_.rank()) + " has other bits than rank 0");
      comm_.barrier();
    }
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }

 private:
  /// Whether element `i` of the whole vector is right.
  template <class T>
  bool is_right(form what, std::uint64_t count, int root, int round, kind which, std::uint64_t i,
                const std::byte* place) const {
    T got;
    std::memcpy(static_cast<void*>(&got), place, sizeof got);
    const auto moved = [&](int from, std::uint64_t at) {
      const T value = element<T>(from, at, round);
      return std::memcmp(static_cast<const void*>(&value), place, sizeof value) == 0;
    };
    if (what == form::broadcast) return moved(root, i);
    if (what == form::all_gather) {
      const std::uint64_t length = collective::shard_length(count, comm_.size());
      return moved(static_cast<int>(i / length), i % length);
    }
    std::vector<T> inputs;
    for (int rank = 0; rank < comm_.size(); ++rank) inputs.push_back(element<T>(rank, i, round));
    if constexpr (std::is_integral_v<T>) {
      return is_right_integer(got, which, inputs);
    } else {
      return is_right_number(got, which, inputs);
    }
  }

  static void copy(void* to, const void* from, cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to, from, capacity, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream), "cudaMemcpyAsync");
  }

  host::communicator& comm_;
  host::symmetric_memory input_;
  host::symmetric_memory output_;
  std::optional<host::device_communicator> device_comm_;
  resources at_{};
  image in_;
  image out_;
  image bits_;  // of all outputs that are the same on all ranks
  std::size_t used_ = 0;
  int rounds_ = 0;
  std::vector<std::function<void(cudaStream_t)>> launches_;
  std::vector<std::function<void(image&)>> checks_;
};

}  // namespace

TEST_CASE("collectives of every kind follow one another, with every type, operator and number of ranks") {
  const std::set<int> ranks_with_lines = {1, 3, 8};  // they are slow to simulate
  for (int ranks = 1; ranks <= 9; ++ranks) {
    INFO(ranks << " ranks");
    results.assign(static_cast<std::size_t>(ranks), {});
    test::on_ranks(ranks, [&](host::communicator& comm) {
      program all(comm);
      all.add_some<over_ll<one_shot>, std::int16_t>();
      all.add_some<over_ll<from_root>, std::uint16_t>();
      all.add_some<over_ll<scatter>, std::int32_t>();
      all.add_some<over_ll<two_shot>, std::uint64_t>();
      all.add_some<over_ll<gather>, __nv_fp8_e5m2>();
      all.add_some<over_lamport<one_shot>, __nv_bfloat16>();
      all.add_some<over_lamport<gather>, __half>();
      all.add_some<over_lamport<two_shot>, __nv_fp8_e4m3>();
      all.add_some<over_lamport<from_root>, float>();
      all.add_some<over_lamport<scatter>, __nv_fp8_e5m2>();
      if (ranks_with_lines.count(comm.size()) != 0) {
        all.add_some<over_ll128<one_shot>, double>();
        all.add_some<over_ll128<gather>, std::int64_t>();
        all.add_some<over_ll128<two_shot>, std::int32_t>();
        all.add_some<over_ll128<from_root>, std::uint8_t>();
        all.add_some<over_ll128<scatter>, __nv_bfloat16>();
      }
      all.add_some<direct<form::all_reduce>, std::uint8_t>();
      all.add_some<direct<form::reduce_scatter>, std::int64_t>();
      all.add_some<direct<form::all_gather>, double>();
      all.add_some<direct<form::broadcast>, std::int8_t>();
      all.add_some<pull, std::uint32_t>();
      all.add_some<chunked<false>, __nv_bfloat16>();
      all.add_some<chunked<true>, double>();
      all.add_some<chunked<true>, __half>();
      all.add_some<chunked<false, true>, std::uint16_t>();
      all.add_some<chunked<true, true>, float>();
      all.add_some<chunked_scatter, __half>();
      all.add_some<chunked_scatter, double>();
      all.replay(comm.size() == 3 ? 3 : 1);
    });
  }
}
