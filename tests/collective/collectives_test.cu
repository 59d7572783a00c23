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
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned most_blocks = 2;
constexpr std::size_t room = 1 << 15;  // bytes for inputs, and as many for outputs

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

struct places {
  device_comm comm;
  ll_handle ll;
  lamport_handle lamport;
  sym_ptr<std::byte> input, output;
  std::uint64_t skew;  // elements from a 16-byte boundary to the input; the output is one more away
};

template <class T>
struct ends {
  sym_ptr<T> input, output;
  collective::from_memory<T> source;
  collective::to_memory<T> destination;
  collective::slice packs;

  __device__ ends(const places& at, std::uint64_t count)
      : input(at.input.as<T>() + static_cast<std::int64_t>(at.skew)),
        output(at.output.as<T>() + static_cast<std::int64_t>(at.skew + 1)),
        source{input.local(), count},
        destination{output.local(), count},
        packs(collective::slice_of_block(collective::packs_of<T>(count))) {}
};

struct one_shot {
  static constexpr const char* name = "one-shot all-reduce";
  template <class T, class Channel>
  __device__ static void run(Channel& channel, const ends<T>& vector, chosen_operator op) {
    collective::all_reduce_one_shot<T>(channel, vector.packs, vector.source, vector.destination, op);
  }
};
struct two_shot {
  static constexpr const char* name = "two-shot all-reduce";
  template <class T, class Channel>
  __device__ static void run(Channel& channel, const ends<T>& vector, chosen_operator op) {
    collective::all_reduce_two_shot<T>(channel, vector.packs, vector.source, vector.destination, op);
  }
};

template <class Algorithm>
struct over_ll : Algorithm {
  template <class T>
  __device__ static void run(const places& at, std::uint64_t count, chosen_operator op) {
    lsa::ll_session channel{block{}, at.comm, at.ll, blockIdx.x};
    Algorithm::template run<T>(channel, ends<T>{at, count}, op);
  }
};
template <class Algorithm>
struct over_lamport : Algorithm {
  template <class T>
  __device__ static void run(const places& at, std::uint64_t count, chosen_operator op) {
    lsa::lamport_session channel{block{}, at.comm, at.lamport, blockIdx.x};
    Algorithm::template run<T>(channel, ends<T>{at, count}, op);
  }
};
struct direct {
  static constexpr const char* name = "direct all-reduce";
  template <class T>
  __device__ static void run(const places& at, std::uint64_t count, chosen_operator op) {
    const ends<T> vector{at, count};
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    collective::all_reduce_direct<T>(barrier, block{}, at.comm, vector.input, vector.output, count, op);
  }
};

template <class Collective, class T>
__global__ void run(places at, std::uint64_t count, chosen_operator op) {
  Collective::template run<T>(at, count, op);
}

std::vector<std::vector<std::byte>> results;  // one a rank; written by each at its own place

/// One rank's resources for any number of collectives, one after the other.
class caller {
 public:
  explicit caller(host::communicator& comm) : comm_(comm), input_(comm.allocate(room)), output_(comm.allocate(room)) {
    requirements needs = comm.requirements().lsa_barriers(most_blocks);
    constexpr std::uint32_t packs = 24;  // in a round, so that some vectors take several
    at_.ll = needs.add_ll_channels(comm.lsa(), most_blocks, 2 * packs);
    at_.lamport = needs.add_lamport_channels(comm.lsa(), most_blocks, packs);
    device_comm_.emplace(comm.create_device_comm(needs));
    at_.comm = device_comm_->get();
    at_.input = {input_.window(), 0};
    at_.output = {output_.window(), 0};
  }

  template <class Collective, class T>
  void check(std::size_t count, kind which) {
    ++round_;
    at_.skew = static_cast<std::uint64_t>(round_) % 4 * (16 / sizeof(T)) / 4;
    std::vector<T> in(room / sizeof(T));
    for (std::size_t i = 0; i < count; ++i) in[at_.skew + i] = element<T>(comm_.rank(), i, round_);
    std::vector<std::byte> out(room, std::byte{0x5a});
    copy(at_.input.local(), in.data());
    copy(at_.output.local(), out.data());
    comm_.barrier();  // peers write outputs
    launch(run<Collective, T>,
           {.grid = 1 + static_cast<unsigned>(round_) % most_blocks, .block = threads, .stream = cudaStreamPerThread},
           at_, count, chosen_operator{which});
    test::finish(Collective::name);
    device_comm_->check();
    copy(out.data(), at_.output.local());

    const auto fail = [&](std::size_t i) {
      throw std::runtime_error(std::string(Collective::name) + ", operator " + std::to_string(static_cast<int>(which)) +
                               ", rank " + std::to_string(comm_.rank()) + " of " + std::to_string(comm_.size()) +
                               ", element " + std::to_string(i) + " of " + std::to_string(count) + ", each of " +
                               std::to_string(sizeof(T)) + " bytes");
    };
    const std::size_t begin = at_.skew + 1;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<T> inputs;
      for (int rank = 0; rank < comm_.size(); ++rank) inputs.push_back(element<T>(rank, i, round_));
      T got;
      std::memcpy(static_cast<void*>(&got), &out[(begin + i) * sizeof(T)], sizeof got);
      if constexpr (std::is_integral_v<T>) {
        if (!is_right_integer(got, which, inputs)) fail(i);
      } else {
        if (!is_right_number(got, which, inputs)) fail(i);
      }
    }
    for (std::size_t b = 0; b < room; ++b)
      if ((b < begin * sizeof(T) || b >= (begin + count) * sizeof(T)) && out[b] != std::byte{0x5a}) fail(b / sizeof(T));
    results[static_cast<std::size_t>(comm_.rank())] = out;
    comm_.barrier();
    if (out != results[0]) fail(count);
    comm_.barrier();
  }

  /// Each operator, with sizes and alignments that change from one to the next.
  template <class Collective, class T>
  void check_operators() {
    std::vector<kind> operators(std::begin(of_all_types), std::end(of_all_types));
    if constexpr (std::is_integral_v<T>) {
      operators.insert(operators.end(), {kind::bit_and, kind::bit_or, kind::bit_xor});
    } else {
      operators.push_back(kind::root_mean_square);
    }
    constexpr std::size_t counts[] = {129, 1, 700, 16, 0, 333};
    for (const kind which : operators)
      check<Collective, T>(counts[static_cast<std::size_t>(round_) % std::size(counts)], which);
  }

 private:
  static void copy(void* to, const void* from) {
    check_cuda(cudaMemcpyAsync(to, from, room, cudaMemcpyDefault, cudaStreamPerThread), "cudaMemcpyAsync");
    test::finish("cudaMemcpyAsync");
  }

  host::communicator& comm_;
  host::symmetric_memory input_;
  host::symmetric_memory output_;
  std::optional<host::device_communicator> device_comm_;
  places at_{};
  int round_ = 0;
};

}  // namespace

TEST_CASE("collectives reduce numbers of every type by every operator, within a rounding, to the same bits") {
  for (const int ranks : {1, 2, 3, 5, 8, 9}) {
    INFO(ranks << " ranks");
    results.assign(static_cast<std::size_t>(ranks), {});
    test::on_ranks(ranks, [](host::communicator& comm) {
      caller call(comm);
      call.check_operators<over_ll<one_shot>, std::int16_t>();
      call.check_operators<over_ll<one_shot>, __nv_fp8_e5m2>();
      call.check_operators<over_lamport<one_shot>, __nv_bfloat16>();
      call.check_operators<over_ll<two_shot>, std::uint64_t>();
      call.check_operators<over_ll<two_shot>, std::uint32_t>();
      call.check_operators<over_lamport<two_shot>, __half>();
      call.check_operators<over_lamport<two_shot>, __nv_fp8_e4m3>();
      call.check_operators<direct, std::uint8_t>();
      call.check_operators<direct, std::int64_t>();
      call.check_operators<direct, double>();
    });
  }
}
