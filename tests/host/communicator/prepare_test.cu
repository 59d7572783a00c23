/// Kernels that are loaded before any of them waits.
#include <devcomm/host/prepare.hpp>
#include <devcomm/lsa/barrier_session.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

using namespace devcomm;

namespace {

/// A barrier, after a look at so many bytes of each thread's local memory.
template <int Bytes>
__global__ void meet(device_comm comm, unsigned* sum, unsigned seed) {
  volatile unsigned char local[Bytes];
  for (int i = 0; i < Bytes; ++i) local[i] = static_cast<unsigned char>(seed + static_cast<unsigned>(i));
  unsigned total = 0;
  for (int i = 0; i < Bytes; ++i) total += local[(static_cast<unsigned>(i) * seed) % Bytes];
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  if (threadIdx.x == 0) *sum = total;
}

const launch_config config{.grid = 1, .block = 32, .stream = cudaStreamPerThread};

}  // namespace

TEST_CASE("kernels that are prepared start while another kernel waits for them on the same GPU") {
  host::communicator_options options;
  if (std::getenv("DEVCOMM_TEST_FEW") == nullptr) options.device = 0;  // else kernels of one GPU do not overlap
  options.kernel_timeout = std::chrono::seconds(20);
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        const test::device_array<unsigned> sum(1, 0);
        host::prepare(comm, meet<16>, meet<5000>);
        if (comm.rank() == 0) {
          launch(meet<16>, config, device_comm.get(), sum.get(), 3);
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other waits
          launch(meet<5000>, config, device_comm.get(), sum.get(), 3);
        }
        test::finish("meet");
        device_comm.check();
      },
      options);
}

TEST_CASE("prepare gives threads the local memory that its kernels need, and never less than they have") {
  test::on_ranks(1, [](host::communicator& comm) {
    const auto provided = [] {
      std::size_t bytes = 0;
      check_cuda(cudaDeviceGetLimit(&bytes, cudaLimitStackSize), "cudaDeviceGetLimit");
      return bytes;
    };
    check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, 2048), "cudaDeviceSetLimit");
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, meet<7000>), "cudaFuncGetAttributes");
    host::prepare(comm, meet<16>, meet<7000>);
    test::require(provided() >= attributes.localSizeBytes && provided() >= 2048, "there is enough");
    host::detail::provide_local_memory(9000);
    test::require(provided() >= 9000, "it grows");
    host::detail::provide_local_memory(16);
    test::require(provided() >= 9000, "it does not shrink");
  });
}

TEST_CASE("no rank goes on before all have prepared their kernels") {
  std::atomic<int> prepared = 0;
  test::on_ranks(3, [&](host::communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    prepared.fetch_add(1);
    host::prepare(comm, meet<16>);
    test::require(prepared.load() == 3, "all have called it");
  });
}
