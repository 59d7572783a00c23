/// All-reduce, residual and RMSNorm of a transformer's layer: in one kernel, by the hooks of the all-reduce, and as a
/// peer does it, an all-reduce and then a kernel for the rest.
#include "perf/chunked_rms_norm.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/norm_call.cuh"
#include "perf/packet_all_reduce.cuh"
#include "perf/random_data.hpp"
#include "perf/random_element.cuh"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/all_reduce_plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace perf {
namespace {

using namespace devcomm;

/// Threads of a block. In two shots each has four packs of three tensors on their way: 512 would leave too few
/// registers.
template <class Algorithm>
constexpr unsigned max_norm_threads = 512;
template <>
constexpr unsigned max_norm_threads<packets::two_shot> = 384;

/// Blocks that share a row, at most.
constexpr unsigned max_parts = 16;

/// The sum of `value` over the blocks that share a row: the same bits in all.
template <class Sums>
__device__ float sum_over_blocks(Sums& sums, float value) {
  __shared__ float of_blocks[max_parts];
  const auto blocks = static_cast<unsigned>(sums.members().size);
  sums.begin_round();
  if (threadIdx.x < blocks) {
    const auto member = static_cast<int>(threadIdx.x);
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    sums.send(member, 0, word);
    std::uint64_t received[1][1];
    sums.receive(member, member + 1, 0, received);
    std::memcpy(&of_blocks[member], &received[0][0], sizeof value);
  }
  __syncthreads();
  float total = 0;
  for (unsigned b = 0; b < blocks; ++b) total += of_blocks[b];
  return total;
}

/// Each block takes rows in turn, `rows_at_once` of them in one round of its session. Residual and weights are fetched
/// while the partial sums are sent, by the threads that use them.
template <class Algorithm, class T>
__global__ void __launch_bounds__(max_norm_threads<Algorithm>)
    norm_of_rows(device_comm comm, lsa::lamport_handle mailboxes, norm_tensors<T> tensors, std::uint32_t rows_at_once) {
  auto* const weights = static_cast<pack<T>*>(dynamic_shared());
  auto* const held = weights + tensors.row_packs;
  allow_dependent_launch();
  wait_for_prior_launch();

  lsa::lamport_session session{block{}, comm, mailboxes, blockIdx.x};
  const std::uint32_t start = blockIdx.x * rows_at_once;
  for (std::uint32_t first = start; first < tensors.rows; first += gridDim.x * rows_at_once) {
    const std::uint32_t rows = min(rows_at_once, tensors.rows - first);
    const collective::slice packs{std::uint64_t{first} * tensors.row_packs,
                                  std::uint64_t{first + rows} * tensors.row_packs};
    const auto produce = [&](std::uint64_t i) {
      const auto p = static_cast<std::uint32_t>(i - packs.begin);
      const pack<T> mine = load_pack(tensors.partial + i * pack<T>::size);
      const pack<T> residual = load_pack(tensors.residual + i * pack<T>::size);
      if (first == start && p < tensors.row_packs) weights[p] = load_pack(tensors.weight + p * pack<T>::size);
      held[p] = residual;
      return mine;
    };
    const auto consume = [&](std::uint64_t i, const pack<T>& sums) {
      pack<T>& place = held[i - packs.begin];
      place = add(sums, place);
      store_pack(tensors.residual_out + i * pack<T>::size, place);
    };
    Algorithm::template run<T>(session, packs, produce, consume);
    if (session.agree() != status::success) return;  // synchronizes: the rows are whole
    for (std::uint32_t row = 0; row < rows; ++row) {
      const pack<T>* const of_row = held + row * tensors.row_packs;
      const float squares = sum_over_block(sum_of_squares(of_row, tensors.row_packs));
      normalize(of_row, weights, tensors.normed + std::uint64_t{first + row} * tensors.row_packs * pack<T>::size,
                tensors.row_packs, tensors.row_packs, squares);
    }
  }  // what comes next writes rows after begin_round, which synchronizes
}

/// The same for few rows: several blocks share one, and tell each other the sums of their squares through the GPU's
/// memory. A row for each `sums.members` blocks.
template <class Algorithm, class T>
__global__ void __launch_bounds__(max_norm_threads<Algorithm>, 1)
    norm_of_shared_rows(device_comm comm, lsa::lamport_handle mailboxes, lsa::ll_handle sums_of_row,
                        norm_tensors<T> tensors) {
  const std::uint32_t row = blockIdx.x / sums_of_row.members;
  const std::uint32_t part = blockIdx.x % sums_of_row.members;
  const std::uint32_t share = (tensors.row_packs + sums_of_row.members - 1) / sums_of_row.members;
  const std::uint32_t begin = min(part * share, tensors.row_packs);
  const std::uint32_t own = min(share, tensors.row_packs - begin);
  auto* const weights = static_cast<pack<T>*>(dynamic_shared());
  auto* const held = weights + share;
  allow_dependent_launch();
  wait_for_prior_launch();

  lsa::lamport_session session{block{}, comm, mailboxes, blockIdx.x};
  const std::uint64_t first = std::uint64_t{row} * tensors.row_packs + begin;
  const auto produce = [&](std::uint64_t i) {
    const auto p = static_cast<std::uint32_t>(i - first);
    const pack<T> mine = load_pack(tensors.partial + i * pack<T>::size);
    held[p] = load_pack(tensors.residual + i * pack<T>::size);
    weights[p] = load_pack(tensors.weight + (begin + p) * pack<T>::size);
    return mine;
  };
  float squares = 0;
  const auto consume = [&](std::uint64_t i, const pack<T>& sum_of_ranks) {
    pack<T>& place = held[i - first];
    place = add(sum_of_ranks, place);
    squares += sum_of_squares(place);
    store_pack(tensors.residual_out + i * pack<T>::size, place);
  };
  Algorithm::template run<T>(session, {first, first + own}, produce, consume);
  lsa::ll_session sums{
      block{}, comm, lsa::local_team{static_cast<int>(part), static_cast<int>(sums_of_row.members), blockIdx.x - part},
      sums_of_row};
  if (!session.is_alive()) squares = NAN;          // so that no block takes this one's for the sum
  const float of_block = sum_over_block(squares);  // synchronizes: the part is whole
  const float of_row = sum_over_blocks(sums, of_block);
  if (session.agree() != status::success || sums.agree() != status::success) return;
  normalize(held, weights, tensors.normed + first * pack<T>::size, own, tensors.row_packs, of_row);
}

/// The same for sums that an all-reduce has left in `partial`: a block for each row.
template <class T>
__global__ void __launch_bounds__(max_threads) residual_norm(norm_tensors<T> tensors) {
  auto* const weights = static_cast<pack<T>*>(dynamic_shared());
  auto* const held = weights + tensors.row_packs;
  const std::uint64_t row = std::uint64_t{blockIdx.x} * tensors.row_packs * pack<T>::size;
  for (std::uint32_t p = threadIdx.x; p < tensors.row_packs; p += blockDim.x) {
    const std::uint64_t i = row + p * pack<T>::size;
    const pack<T> sums = load_pack(tensors.partial + i);
    const pack<T> residual = load_pack(tensors.residual + i);
    weights[p] = load_pack(tensors.weight + p * pack<T>::size);
    held[p] = add(sums, residual);
    store_pack(tensors.residual_out + i, held[p]);
  }
  const float squares = sum_over_block(sum_of_squares(held, tensors.row_packs));  // threads read what they wrote
  normalize(held, weights, tensors.normed + row, tensors.row_packs, tensors.row_packs, squares);
}

constexpr std::uint64_t max_shared = 96 << 10;  // bytes of a block: two fit on a multiprocessor of any kind

std::string why_no_held_norm(const work& what) {
  const std::string reason = why_no_norm(what);
  return reason.empty() && 2 * row_bytes(what) > max_shared ? "a row does not fit into a block's shared memory"
                                                            : reason;
}

/// Allows a kernel what it asks for: beyond 48 KiB, with what it has anyway, it needs permission.
template <class Kernel>
void allow_shared(Kernel* kernel, std::uint64_t bytes) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
}

/// Whole warps, with a pack for each thread where there are as many.
unsigned threads_for(std::uint64_t packs, unsigned most) {
  return static_cast<unsigned>(std::min<std::uint64_t>((packs + 31) / 32 * 32, most));
}

/// Blocks that share a row where there are more blocks than rows: a power of two, with so many packs for each at least.
unsigned parts_of_row(const work& what, unsigned blocks, std::uint64_t min_packs = 32) {
  const std::uint64_t rows = std::max<std::uint64_t>(1, rows_of(what));
  unsigned parts = 1;
  while (parts < max_parts && 2 * parts * rows <= blocks && 2 * parts * min_packs <= row_bytes(what) / 16) parts *= 2;
  return parts;
}
/// The same where nobody asks for a number: a row of less than 8 KiB is one block's.
unsigned usual_parts_of_row(const work& what, unsigned blocks) {
  return row_bytes(what) < 8192 ? 1 : parts_of_row(what, blocks, 64);
}

template <class Algorithm>
class fused_rms_norm final : public device_algorithm {
 public:
  explicit fused_rms_norm(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    mailboxes_ = needs.add(lsa::lamport_mailboxes{needs.lsa(), max_blocks, is_simulated() ? 64u : 4096u});
    for (unsigned parts = 2; parts <= max_parts; parts *= 2)
      sums_of_row_.push_back(needs.add(lsa::local_ll_mailboxes{max_blocks, parts, 1}));
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return Algorithm::name; }
  [[nodiscard]] std::string protocol() const override { return "lamport"; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.bytes > Algorithm::max_bytes) return "too large for one shot";
    return why_no_held_norm(what);
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    const std::uint64_t rows = rows_of(what);
    std::vector<launch_shape> fitting;
    const auto add = [&](std::uint64_t blocks, unsigned threads) {
      fitting.push_back({static_cast<unsigned>(blocks), std::min(threads, max_norm_threads<Algorithm>)});
    };
    const auto usual = usual_shapes((what.bytes + 15) / 16, is_simulated());
    for (const launch_shape& shape : usual)
      if (shape.blocks <= rows || shape.blocks == 1) add(shape.blocks, shape.threads);
    for (unsigned parts = 2; parts <= parts_of_row(what, is_simulated() ? 4 : max_blocks); parts *= 2)
      for (const unsigned threads : {64u, 128u, 256u, max_threads})
        if (parts * threads <= 2 * row_bytes(what) / 16) add(rows * parts, threads);
    return fitting;
  }
  void start(const work& what) override {
    if (what.shape.threads % 32 != 0 || what.shape.threads > max_norm_threads<Algorithm>)
      throw usage_error("--threads " + std::to_string(what.shape.threads) + ": " + name() +
                        " takes whole warps, up to " + std::to_string(max_norm_threads<Algorithm>) + " threads");
    if (const unsigned parts = parts_of_row(what, what.shape.blocks); parts > 1) return start_shared(what, parts);
    const std::uint64_t row = row_bytes(what);
    const std::uint64_t share = (rows_of(what) + what.shape.blocks - 1) / what.shape.blocks;
    const std::uint64_t capacity = Algorithm::packs_in_round(mailboxes_.packets, mailboxes_.members) / (row / 16);
    const std::uint64_t most = std::max<std::uint64_t>(1, std::min(capacity, max_shared / row - 1));
    const std::uint64_t rows_at_once = std::min(most, share);
    with_layer_type(what.type, [&]<class T>(T) {
      launch_config config = shape_of(what);
      config.shared_bytes = (1 + rows_at_once) * row;
      allow_shared(norm_of_rows<Algorithm, T>, config.shared_bytes);
      launch(norm_of_rows<Algorithm, T>, config, device_comm_->get(), mailboxes_, tensors_of<T>(what),
             static_cast<std::uint32_t>(rows_at_once));
    });
  }

 private:
  void start_shared(const work& what, unsigned parts) {
    with_layer_type(what.type, [&]<class T>(T) {
      launch_config config = shape_of(what);
      config.grid = static_cast<unsigned>(rows_of(what)) * parts;
      config.shared_bytes = 2 * ((row_bytes(what) / 16 + parts - 1) / parts) * 16;  // weights and sums of a part
      const auto& sums = *std::find_if(sums_of_row_.begin(), sums_of_row_.end(),
                                       [parts](const lsa::ll_handle& mailboxes) { return mailboxes.members == parts; });
      allow_shared(norm_of_shared_rows<Algorithm, T>, config.shared_bytes);
      launch(norm_of_shared_rows<Algorithm, T>, config, device_comm_->get(), mailboxes_, sums, tensors_of<T>(what));
    });
  }

  lsa::lamport_handle mailboxes_{};
  std::vector<lsa::ll_handle> sums_of_row_;  // for 2, 4 and more parts
};

/// An all-reduce, and a kernel that reads its sums.
class separate_rms_norm final : public algorithm {
 public:
  explicit separate_rms_norm(std::unique_ptr<algorithm> all_reduce) : all_reduce_(std::move(all_reduce)) {}

  [[nodiscard]] std::string implementation() const override { return all_reduce_->implementation(); }
  [[nodiscard]] std::string name() const override { return "separate_" + all_reduce_->name(); }
  [[nodiscard]] std::string protocol() const override { return all_reduce_->protocol(); }
  [[nodiscard]] std::string why_not(const work& what) const override {
    const std::string reason = why_no_held_norm(what);
    return reason.empty() ? all_reduce_->why_not(what) : reason;
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override { return all_reduce_->shapes(what); }
  [[nodiscard]] std::byte* memory() override { return all_reduce_->memory(); }
  void start(const work& what) override {
    work reduction = what;
    reduction.output = part<std::byte>(what.output, what, parts_of_region - 1);
    all_reduce_->start(reduction);
    with_layer_type(what.type, [&]<class T>(T) {
      norm_tensors<T> tensors = tensors_of<T>(what);
      tensors.partial = static_cast<const T*>(reduction.output);
      const std::uint64_t shared = 2 * row_bytes(what);
      allow_shared(residual_norm<T>, shared);
      launch(residual_norm<T>,
             {.grid = tensors.rows,
              .block = threads_for(tensors.row_packs, max_threads),
              .shared_bytes = shared,
              .stream = what.stream},
             tensors);
    });
  }
  void check() override { all_reduce_->check(); }

 private:
  std::unique_ptr<algorithm> all_reduce_;
};

algorithms followed_by_norm(algorithms all_reduces) {
  algorithms made;
  for (auto& one : all_reduces) made.push_back(std::make_unique<separate_rms_norm>(std::move(one)));
  return made;
}

// Pseudo ranks, for random tensors that are the same on all ranks.
constexpr int of_residual = -1;
constexpr int of_weight = -2;

/// Adds `value` to the sum of the block in `total`; synchronizes.
__device__ double block_total(double value, double* total) {
  if (threadIdx.x == 0) *total = 0;
  __syncthreads();
  atomicAdd(total, value);
  __syncthreads();
  const double sum = *total;
  __syncthreads();
  return sum;
}

/// Counts the elements of both outputs that are not what exact arithmetic gives, a block for each row: of the residual,
/// but for `ranks + 1` roundings of the magnitudes' sum; of the norm, given the residual as it was written, but for one
/// rounding and what `float` adds.
template <class T>
__global__ void __launch_bounds__(512)
    count_wrong_rows(norm_tensors<T> tensors, int ranks, std::uint64_t seed, unsigned long long* wrong) {
  __shared__ double total;
  const std::uint32_t elements = tensors.row_packs * pack<T>::size;
  const std::uint64_t row = std::uint64_t{blockIdx.x} * elements;
  const auto magnitude_of = [](double value) { return value < 0 ? -value : value; };
  const auto count_if_off = [&](double is, double exact, double bound) {
    if (!(magnitude_of(is - exact) <= bound)) atomicAdd(wrong, 1ull);
  };
  double squares = 0;
  for (std::uint32_t e = threadIdx.x; e < elements; e += blockDim.x) {
    double sum = to_double(random_element<T>(seed, of_residual, row + e));
    double magnitude = magnitude_of(sum);
    for (int rank = 0; rank < ranks; ++rank) {
      const double element = to_double(random_element<T>(seed, rank, row + e));
      sum += element;
      magnitude += magnitude_of(element);
    }
    const double written = to_double(tensors.residual_out[row + e]);
    count_if_off(written, sum, magnitude * (ranks + 1) * rounding<T>);
    squares += written * written;
  }
  const double mean = block_total(squares, &total) / elements;
  const double scale = 1 / sqrt(mean + static_cast<double>(norm_epsilon));
  for (std::uint32_t e = threadIdx.x; e < elements; e += blockDim.x) {
    const double weight = to_double(random_element<T>(seed, of_weight, e));
    const double norm = to_double(tensors.residual_out[row + e]) * scale * weight;
    count_if_off(to_double(tensors.normed[row + e]), norm, magnitude_of(norm) * (rounding<T> + 1e-5) + 1e-7);
  }
}

class fused_rms_norm_operation final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "fused_rms_norm"; }
  [[nodiscard]] std::string about() const override {
    return "all-reduce, residual and RMSNorm of rows; bytes of the partial sums";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    const std::uint64_t row = what.hidden * bytes_of(what.type);
    if (row % 16 != 0) throw usage_error("--hidden " + std::to_string(what.hidden) + ": rows fill packs of 16 bytes");
    return std::max<std::uint64_t>(16, std::min(row, what.bytes / 16 * 16));
  }
  [[nodiscard]] std::uint64_t region(const work& what) const override { return parts_of_region * part_bytes(what); }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    const auto plan = host::plan_all_reduce(
        {.bytes = what.bytes, .ranks = what.ranks, .max_blocks = blocks, .in_windows = true, .chunks = true});
    const std::string why = std::string("the plan of all_reduce: ") + plan.why;
    const auto rows = static_cast<unsigned>(std::clamp<std::uint64_t>(rows_of(what), 1, blocks));
    if (plan.protocol == host::all_reduce_protocol::simple)
      return {"two_shot_chunked_to_window", "simple", {rows, max_threads}, why};
    const unsigned parts = usual_parts_of_row(what, blocks);
    const unsigned most = plan.algorithm == host::all_reduce_algorithm::two_shot ? max_norm_threads<packets::two_shot>
                                                                                 : max_norm_threads<packets::one_shot>;
    return {to_string(plan.algorithm), "lamport", {rows * parts, threads_for(row_bytes(what) / 16 / parts, most)}, why};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms all_reduces;
    add_lamport_all_reduces(context, all_reduces);
    algorithms made = followed_by_norm(std::move(all_reduces));
    made.push_back(std::make_unique<fused_rms_norm<packets::one_shot>>(context));
    made.push_back(std::make_unique<fused_rms_norm<packets::two_shot>>(context));
    add_chunked_rms_norm(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return followed_by_norm(make_nccl(nccl_call::all_reduce, context));
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(part<std::byte>(what.input, what, 0), what.count(), what.type, what.rank, seed, what.stream);
    fill_random(part<std::byte>(what.input, what, 1), what.count(), what.type, of_residual, seed, what.stream);
    fill_random(part<std::byte>(what.input, what, 2), row_elements(what), what.type, of_weight, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_on_device(what.stream, [&](unsigned long long* wrong) {
      with_layer_type(what.type, [&]<class T>(T) {
        const norm_tensors<T> tensors = tensors_of<T>(what);
        launch(count_wrong_rows<T>,
               {.grid = tensors.rows, .block = threads_for(tensors.row_packs, max_threads), .stream = what.stream},
               tensors, what.ranks, seed, wrong);
      });
    });
  }
};

const bool is_registered = register_operation(std::make_unique<fused_rms_norm_operation>());

}  // namespace
}  // namespace perf
