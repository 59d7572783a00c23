/// Rows that a collective sums, normalized in the same kernel, as they are and quantized: each row is right, and has
/// the same bits whatever is beside it.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace devcomm;

extern __shared__ __align__(16) unsigned char rms_norm_test_rows[];

namespace {

constexpr float epsilon = 1e-5f;
constexpr unsigned max_blocks = 3;
constexpr std::uint32_t packs_in_round = 320;

enum class way { one_shot, two_shot, reduce_scatter };

struct resources {
  device_comm comm;
  lsa::ll_handle mailboxes;
};

template <class T>
struct tensors {
  const T* partial;
  const T* weight;
  T* residual;
  std::uint32_t rows;
  std::uint32_t hidden;
  std::uint32_t at_once;
};

template <class T, class Output>
__global__ void sum_and_normalize(resources at, way how, tensors<T> on, Output output) {
  const collective::norm_rows<T> norm{rms_norm_test_rows, on.at_once, on.hidden};
  const std::uint64_t count = std::uint64_t{on.rows} * on.hidden;
  // Of a reduce-scatter the rows of all ranks are summed, and each rank has `rows` of them.
  const std::uint64_t all = how == way::reduce_scatter ? count * static_cast<std::uint64_t>(at.comm.lsa_size) : count;
  const collective::from_memory<T> partials{on.partial, count};
  const collective::from_shards<T> shards{on.partial, all, count};
  lsa::ll_session session{block{}, at.comm, at.mailboxes, blockIdx.x};
  for (std::uint32_t first = blockIdx.x * on.at_once; first < on.rows; first += gridDim.x * on.at_once) {
    const std::uint32_t rows = min(on.at_once, on.rows - first);
    const collective::slice packs{first * norm.row_packs(), (first + rows) * norm.row_packs()};
    const auto keep = norm.add_to(on.residual, first);
    if (how == way::one_shot) collective::all_reduce_one_shot<T>(session, packs, partials, keep, sum{});
    if (how == way::two_shot) collective::all_reduce_two_shot<T>(session, packs, partials, keep, sum{});
    if (how == way::reduce_scatter) collective::reduce_scatter<T>(session, packs, shards, keep, sum{});
    if (session.agree() != status::success) return;
    for (std::uint32_t row = 0; row < rows; ++row)
      norm.normalize(block{}, row, on.weight, epsilon, output, first + row);
  }
}

constexpr std::uint64_t zero_row = 1000;

/// Element `e` of row `row`: of a rank's partial sums, or of `which` other tensor.
float value(int which, std::uint64_t row, std::uint64_t e) {
  if (row == zero_row) return 0;
  const auto mixed =
      static_cast<std::uint32_t>((row * 131 + e * 31 + static_cast<std::uint64_t>(which) * 17) * 2654435761u) >> 16;
  return static_cast<float>(static_cast<int>(mixed % 33) - 16) / 8;
}
constexpr int of_weight = 100, of_residual = 101;

struct shape {
  std::uint32_t rows;
  std::uint32_t hidden;
  std::uint32_t at_once;
  unsigned blocks;
  unsigned threads;
};

/// One rank's tensors, of which `first_row` is the first that the values are of.
template <class T>
class bench {
 public:
  explicit bench(host::communicator& comm) : comm_(comm) {
    auto needs = comm.requirements();
    at_.mailboxes =
        needs.add(lsa::ll_mailboxes{comm.lsa(), max_blocks, lsa::ll_session<block>::packets_for(packs_in_round)});
    device_comm_ = comm.create_device_comm(needs);
    at_.comm = device_comm_->get();
  }

  /// Rows from `first_row` on, normalized into `output`; returns the new residual.
  template <class Output>
  std::vector<T> run(way how, const shape& of, std::uint64_t first_row, const Output& output) {
    const std::uint64_t count = std::uint64_t{of.rows} * of.hidden;
    std::vector<T> partial, residual, weight;
    for (int shard = 0; shard < (how == way::reduce_scatter ? comm_.size() : 1); ++shard)
      for (std::uint64_t i = 0; i < count; ++i)
        partial.push_back(static_cast<T>(value(comm_.rank(), first_row + i / of.hidden, i % of.hidden)));
    for (std::uint64_t i = 0; i < count; ++i)
      residual.push_back(static_cast<T>(value(of_residual, first_row + i / of.hidden, i % of.hidden)));
    for (std::uint32_t e = 0; e < of.hidden; ++e) weight.push_back(static_cast<T>(value(of_weight, 0, e)));
    const test::device_array<T> partials(partial), residuals(residual), weights(weight);
    launch(sum_and_normalize<T, Output>,
           {.grid = of.blocks,
            .block = of.threads,
            .shared_bytes = collective::norm_rows<T>::bytes(of.at_once, of.hidden),
            .stream = cudaStreamPerThread},
           at_, how, tensors<T>{partials.get(), weights.get(), residuals.get(), of.rows, of.hidden, of.at_once},
           output);
    test::finish("sum_and_normalize");
    device_comm_->check();
    return residuals.read();
  }

  /// A row as it must be, before the residual is rounded.
  [[nodiscard]] std::vector<double> expected(std::uint64_t row, std::uint32_t hidden) const {
    std::vector<double> sums;
    double squares = 0;
    for (std::uint32_t e = 0; e < hidden; ++e) {
      double sum = static_cast<double>(value(of_residual, row, e));
      for (int rank = 0; rank < comm_.size(); ++rank) sum += static_cast<double>(value(rank, row, e));
      sums.push_back(sum);
      squares += sum * sum;
    }
    const double scale = 1 / std::sqrt(squares / hidden + static_cast<double>(epsilon));
    for (std::uint32_t e = 0; e < hidden; ++e) sums[e] *= scale * static_cast<double>(value(of_weight, 0, e));
    return sums;
  }

 private:
  host::communicator& comm_;
  resources at_{};
  std::optional<host::device_communicator> device_comm_;
};

template <class U>
double rounding_of() {
  return std::is_same_v<U, float>           ? 1e-6
         : std::is_same_v<U, __half>        ? 1e-3
         : std::is_same_v<U, __nv_bfloat16> ? 8e-3
                                            : 0.07;
}

template <class U>
void require_near(U got, double scale, double expected, double rounding, const std::string& what) {
  const double is = static_cast<double>(static_cast<float>(got)) * scale;
  test::require(std::abs(is - expected) <= rounding * (std::abs(expected) + 0.02),
                [&] { return what + ": got " + std::to_string(is) + " instead of " + std::to_string(expected); });
}

constexpr shape shapes[] = {{1, 128, 1, 1, 32}, {5, 256, 2, 2, 64}, {7, 40, 1, 3, 96}, {3, 1152, 1, 2, 64}};

template <class T, class U>
void rows_case(host::communicator& comm, way how) {
  bench<T> with(comm);
  for (const shape& of : shapes) {
    const test::device_array<U> normed(std::size_t{of.rows} * of.hidden + 1, 0xff);
    // Aligned to an element alone in one of the shapes.
    const std::uint64_t offset = of.hidden == 40 ? 1 : 0;
    const std::vector<T> residual = with.run(how, of, 0, collective::to_rows<U>{normed.get() + offset, of.hidden});
    const auto got = normed.read();
    for (std::uint32_t row = 0; row < of.rows; ++row) {
      const auto expected = with.expected(row, of.hidden);
      for (std::uint32_t e = 0; e < of.hidden; ++e) {
        const std::size_t i = std::size_t{row} * of.hidden + e;
        double sum = static_cast<double>(value(of_residual, row, e));
        for (int rank = 0; rank < comm.size(); ++rank) sum += static_cast<double>(value(rank, row, e));
        test::require(static_cast<double>(static_cast<float>(residual[i])) == sum, "a residual is wrong");
        require_near(got[i + offset], 1, expected[e], rounding_of<U>() + rounding_of<T>(),
                     "row " + std::to_string(row));
      }
    }
  }
}

template <class T, class Fp8>
void quantized_case(host::communicator& comm) {
  bench<T> with(comm);
  const float largest = static_cast<float>(static_cast<Fp8>(1e30f));
  const test::device_array<float> one_scale(std::vector<float>{0.02f});
  for (const shape& of : shapes) {
    const std::size_t count = std::size_t{of.rows} * of.hidden;
    const test::device_array<Fp8> quantized(count, 0xff);
    with.run(way::one_shot, of, 0, collective::to_quantized_rows<Fp8>{quantized.get(), of.hidden, one_scale.get()});
    const auto got = quantized.read();
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = with.expected(i / of.hidden, of.hidden)[i % of.hidden];
      const double limit = static_cast<double>(largest) * 0.02;
      require_near(got[i], 0.02, std::abs(expected) < limit ? expected : std::copysign(limit, expected),
                   2 * rounding_of<Fp8>(), "quantized, one scale");
    }
    if (of.hidden % 128 != 0) continue;
    const std::uint32_t groups = of.hidden / 128;
    const test::device_array<float> scales(std::size_t{of.rows} * groups, 0xff);
    // The groups of a row lie `rows` apart, as tensor cores' operands have them.
    with.run(way::one_shot, of, 0,
             collective::to_quantized_groups<Fp8>{quantized.get(), of.hidden, scales.get(), 1, of.rows});
    const auto in_groups = quantized.read();
    const auto their_scales = scales.read();
    for (std::uint32_t row = 0; row < of.rows; ++row) {
      const auto expected = with.expected(row, of.hidden);
      for (std::uint32_t g = 0; g < groups; ++g) {
        const double scale = static_cast<double>(their_scales[std::size_t{g} * of.rows + row]);
        double magnitude = 0;
        for (std::uint32_t e = g * 128; e < (g + 1) * 128; ++e) {
          magnitude = std::max(magnitude, std::abs(expected[e]));
          require_near(in_groups[std::size_t{row} * of.hidden + e], scale, expected[e], 2 * rounding_of<Fp8>(),
                       "quantized by groups");
        }
        require_near(static_cast<float>(scale), static_cast<double>(largest), magnitude, 2 * rounding_of<T>(),
                     "a scale");
      }
    }
  }
}

/// Bytes of row 4 of the values, as bfloat16 and in groups, where it is row `row` of a launch.
std::vector<unsigned char> bits_of(bench<__nv_bfloat16>& with, const shape& of, std::uint32_t row, way how) {
  const std::uint64_t first = 4 - row;
  const test::device_array<__nv_bfloat16> normed(std::size_t{of.rows} * of.hidden);
  const test::device_array<__nv_fp8_e4m3> quantized(std::size_t{of.rows} * of.hidden);
  const std::uint32_t groups = of.hidden / 128;
  const test::device_array<float> scales(std::size_t{of.rows} * groups);
  with.run(how, of, first, collective::to_rows<__nv_bfloat16>{normed.get(), of.hidden});
  with.run(how, of, first,
           collective::to_quantized_groups<__nv_fp8_e4m3>{quantized.get(), of.hidden, scales.get(), groups});
  std::vector<unsigned char> bits;
  const auto add = [&](const auto& values, std::size_t in_row) {
    const auto* const begin = reinterpret_cast<const unsigned char*>(values.data() + row * in_row);
    bits.insert(bits.end(), begin, begin + in_row * sizeof values[0]);
  };
  add(normed.read(), of.hidden);
  add(quantized.read(), of.hidden);
  add(scales.read(), groups);
  return bits;
}

}  // namespace

TEST_CASE("rows that a collective sums are normalized, for any number of ranks and any row of whole packs") {
  for (const int ranks : {1, 2, 3, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      rows_case<float, float>(comm, way::one_shot);
      rows_case<__nv_bfloat16, __nv_bfloat16>(comm, way::two_shot);
      rows_case<__half, __half>(comm, way::reduce_scatter);
      rows_case<__nv_bfloat16, float>(comm, way::one_shot);
    });
  }
}

TEST_CASE("normalized rows are quantized with one scale, or with one for each group of 128 elements") {
  for (const int ranks : {1, 3}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      quantized_case<__nv_bfloat16, __nv_fp8_e4m3>(comm);
      quantized_case<float, __nv_fp8_e5m2>(comm);
      quantized_case<__half, __nv_fp8_e4m3>(comm);
    });
  }
}

TEST_CASE("a group of zeros is quantized with scale 1") {
  test::on_ranks(2, [](host::communicator& comm) {
    bench<__nv_bfloat16> with(comm);
    const test::device_array<__nv_fp8_e4m3> quantized(256, 0xff);
    const test::device_array<float> scales(2);
    with.run(way::one_shot, {1, 256, 1, 1, 32}, zero_row,
             collective::to_quantized_groups<__nv_fp8_e4m3>{quantized.get(), 256, scales.get(), 2});
    for (const float scale : scales.read()) test::require(scale == 1, "a scale of zeros is not 1");
    for (const __nv_fp8_e4m3 each : quantized.read()) test::require(static_cast<float>(each) == 0, "a zero is not 0");
  });
}

TEST_CASE(
    "a row has the same bits whatever is beside it, and however many threads, blocks and rows at once there are") {
  test::on_ranks(2, [](host::communicator& comm) {
    bench<__nv_bfloat16> with(comm);
    const auto alone = bits_of(with, {1, 384, 1, 1, 32}, 0, way::one_shot);
    const std::pair<shape, std::uint32_t> others[] = {
        {{1, 384, 1, 1, 96}, 0}, {{5, 384, 1, 2, 64}, 4}, {{5, 384, 2, 1, 128}, 2}, {{3, 384, 3, 1, 32}, 1}};
    for (const auto& [of, row] : others) {
      test::require(bits_of(with, of, row, way::one_shot) == alone, "a row has other bits in another launch");
      test::require(bits_of(with, of, row, way::two_shot) == alone, "a row has other bits in two shots");
    }
  });
}
