/// All-reduce, residual and RMSNorm in one kernel, by the hooks of the all-reduce; rms_norm.cuh has the kernel.
#include "07_fused_rms_norm/rms_norm.cuh"

#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

#include <cmath>

using namespace devcomm;

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;
constexpr float epsilon = 1e-5f;

/// Throws unless every element is what the formulas give, to a few roundings.
template <class T>
void expect_norm(const T* normed, const example::rms_norm_shape& shape, int ranks) {
  std::vector<T> got(std::size_t{shape.rows} * shape.hidden);
  example::copy_now(got.data(), normed, got.size() * sizeof(T));
  const double rounding = sizeof(T) == 4 ? 1e-6 : 1e-2;
  for (std::uint64_t row = 0; row < shape.rows; ++row) {
    const auto residual = [&](std::uint64_t e) -> double {
      const std::uint64_t i = row * shape.hidden + e;
      return example::sum_of_values(ranks, i) + example::value(100, i);
    };
    double squares = 0;
    for (std::uint64_t e = 0; e < shape.hidden; ++e) squares += residual(e) * residual(e);
    const double scale = 1 / std::sqrt(squares / shape.hidden + static_cast<double>(epsilon));
    for (std::uint64_t e = 0; e < shape.hidden; ++e) {
      const double wanted = residual(e) * scale * static_cast<double>(example::value(200, e));
      const auto is = static_cast<double>(static_cast<float>(got[row * shape.hidden + e]));
      if (!(std::abs(is - wanted) <= rounding * (1 + std::abs(wanted))))
        throw std::runtime_error("normed: row " + std::to_string(row) + ", element " + std::to_string(e) + " is " +
                                 std::to_string(is) + ", expected " + std::to_string(wanted));
    }
  }
}

template <class Algorithm, class T>
void run_case(host::communicator& comm, const host::device_communicator& device_comm, lamport_handle channels,
              std::byte* memory, const example::rms_norm_shape& shape) {
  const std::size_t count = std::size_t{shape.rows} * shape.hidden;
  T* const partial = reinterpret_cast<T*>(memory);
  T* const residual = partial + count;
  T* const normed = residual + count;
  T* const weight = normed + count;
  example::fill(partial, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
  example::fill(residual, count, [&](std::uint64_t i) { return example::value(100, i); });
  example::fill(weight, shape.hidden, [&](std::uint64_t i) { return example::value(200, i); });
  example::poison(normed, count);

  launch(
      example::all_reduce_rms_norm<Algorithm, T>,
      {.grid = blocks, .block = threads, .shared_bytes = shape.shared_bytes(sizeof(T)), .stream = cudaStreamPerThread},
      device_comm.get(), channels, static_cast<const T*>(partial), static_cast<const T*>(weight), residual, normed,
      shape, epsilon);
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "all_reduce_rms_norm");
  device_comm.check();

  example::expect(residual, count, "residual",
                  [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i) + example::value(100, i); });
  expect_norm(normed, shape, comm.size());
}

}  // namespace

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      requirements needs = comm.requirements();
      const lamport_handle channels = needs.add_lamport_channels(comm.lsa(), blocks, 256);
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto memory = example::device_array(1 << 20);

      int cases = 0;
      for (const example::rms_norm_shape& shape :
           {example::rms_norm_shape{1, 64, 1}, {7, 512, 1}, {7, 512, 2}, {5, 1032, 1}}) {
        run_case<example::one_shot, __nv_bfloat16>(comm, device_comm, channels, memory.get(), shape);
        run_case<example::two_shot, __nv_bfloat16>(comm, device_comm, channels, memory.get(), shape);
        run_case<example::two_shot, float>(comm, device_comm, channels, memory.get(), shape);
        cases += 3;
      }

      if (comm.rank() == 0) {
        std::printf("fused_rms_norm: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
      comm.barrier();
    });
  });
}
