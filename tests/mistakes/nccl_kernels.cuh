/// \file nccl_kernels.cuh
/// Kernels by NCCL's names that use barriers, signals and flushes at the wrong time or place.
#pragma once

#include <nccl_device.h>

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

enum class nccl_slip {
  none,
  relaxed_barrier,   ///< a barrier after stores does not release
  shared_barrier,    ///< two blocks use one barrier
  late_first_value,  ///< a signal's first value is read when peers may change it already
  other_context,     ///< a strong signal of another context than the put's
  weak_signal,       ///< a weak signal behind a put
  shared_signal,     ///< two blocks count on one signal
  no_flush,          ///< a source is written again while the network may read it
  get_unflushed,     ///< what a get brings is read at once
  unfenced_barrier,  ///< a barrier that fences no puts
  wait_in_vain,      ///< a signal more is waited for than is sent
  multimem_early,    ///< a sum by a multicast address is loaded before the barrier
  poison_reused,     ///< one buffer of poisoned elements in place of two
};

constexpr int of_part = 32;  // threads of a block, words of its part

/// Each block stores its part to the next rank, in two rounds.
__global__ void pass_by_stores(ncclWindow_t board, ncclDevComm comm, int* sums, nccl_slip slip) {
  const ncclCoopCta cta;
  const bool shares = slip == nccl_slip::shared_barrier;
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), shares ? 0 : blockIdx.x);
  const auto order = slip == nccl_slip::relaxed_barrier ? cuda::memory_order_relaxed : cuda::memory_order_acq_rel;
  const std::size_t at = sizeof(int) * (blockIdx.x * of_part + threadIdx.x);
  int sum = 0;
  for (int round = 1; round <= 2; ++round) {
    *static_cast<int*>(ncclGetLsaPointer(board, at, (comm.lsaRank + 1) % comm.lsaSize)) = round;
    barrier.sync(cta, order);
    sum += *static_cast<int*>(ncclGetLocalPointer(board, at));
    barrier.sync(cta, cuda::memory_order_acq_rel);
  }
  sums[blockIdx.x * of_part + threadIdx.x] = sum;
}

/// The same by the network; rows of the board: what is sent, what comes, what a get brings.
__global__ void pass_by_network(ncclWindow_t board, ncclDevComm comm, int* sums, nccl_slip slip) {
  const ncclCoopCta cta;
  const ncclTeam world = ncclTeamWorld(comm);
  const int next = (comm.rank + 1) % comm.nRanks;
  const bool shares = slip == nccl_slip::shared_signal;
  const ncclGin gin(comm, shares ? 0 : static_cast<int>(blockIdx.x));
  const ncclGin signaling(comm, slip == nccl_slip::other_context ? 2 : static_cast<int>(gin.contextId));
  const std::size_t row = sizeof(int) * gridDim.x * of_part, part = sizeof(int) * blockIdx.x * of_part;
  const std::size_t bytes = sizeof(int) * of_part;
  auto* const words = static_cast<int*>(ncclGetLocalPointer(board, part));
  const std::size_t stride = row / sizeof(int);
  ncclGinBarrierSession<ncclCoopCta> barrier(cta, ncclGin(comm, static_cast<int>(blockIdx.x)), ncclTeamTagWorld(), 0);
  std::uint64_t before = signaling.readSignal(0);
  barrier.sync(cta, cuda::memory_order_acq_rel, ncclGinFenceLevel::None);
  if (slip == nccl_slip::late_first_value) before = signaling.readSignal(0);
  int sum = 0;
  for (int round = 1; round <= 2; ++round) {
    words[threadIdx.x] = round;
    gin.put(world, next, board, row + part, board, part, bytes, ncclGin_None{}, ncclGin_None{}, cta);
    if (slip == nccl_slip::unfenced_barrier) {
      barrier.sync(cta, cuda::memory_order_acq_rel, ncclGinFenceLevel::None);
    } else {
      if (slip == nccl_slip::weak_signal) {
        signaling.signal(world, next, ncclGin_WeakSignalInc{0}, cta);
      } else {
        signaling.signal(world, next, ncclGin_StrongSignalInc{0}, cta);
      }
      const bool in_vain = slip == nccl_slip::wait_in_vain && round == 2;
      signaling.waitSignal(cta, 0, before + static_cast<unsigned>(round) + (in_vain ? 1u : 0u));
    }
    sum += words[stride + threadIdx.x];
    if (slip != nccl_slip::no_flush) gin.flush(cta);
    if (slip == nccl_slip::no_flush) words[threadIdx.x] = -1;
    barrier.sync(cta, cuda::memory_order_acq_rel);
  }
  gin.get(world, next, board, row + part, board, 2 * row + part, bytes, cta);
  if (slip != nccl_slip::get_unflushed) gin.flush(cta);
  cta.sync();
  sum += words[2 * stride + threadIdx.x] - 2;
  barrier.sync(cta, cuda::memory_order_acq_rel);
  sums[blockIdx.x * of_part + threadIdx.x] = sum;
}

/// Each rank stores its part, in one round; the sum of all comes by the multicast address.
__global__ void sum_by_multimem(ncclWindow_t board, ncclDevComm comm, int* sums, nccl_slip slip) {
  const ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), 0, true);
  const std::size_t at = sizeof(int) * threadIdx.x;
  static_cast<int*>(ncclGetLocalPointer(board, at))[0] = comm.lsaRank == 0 ? 4 - comm.lsaSize : 1;
  if (slip != nccl_slip::multimem_early) barrier.sync(cta, cuda::memory_order_acq_rel);
  ncclMultimemReduceSum<int>(ncclCoopThread(), board, at, sums + threadIdx.x, 1, comm.lsaMultimem);
  barrier.sync(cta, cuda::memory_order_acq_rel);
}

/// Both in three rounds, without a barrier: elements that are no longer poison have come.
__global__ void pass_poisoned(ncclWindow_t board, ncclDevComm comm, int* sums, nccl_slip slip) {
  const int i = static_cast<int>(blockIdx.x) * of_part + static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int round = 0; round < 3; ++round) {
    const std::size_t at =
        sizeof(int) * static_cast<std::size_t>((slip == nccl_slip::poison_reused ? 0 : round % 2) * 2 * of_part + i);
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      if (peer != comm.lsaRank)
        *static_cast<volatile int*>(ncclGetLsaPointer(
            board, at + sizeof(int) * static_cast<std::size_t>(comm.lsaRank * 4 * of_part), peer)) = round + 1;
    for (int peer = 0; peer < comm.lsaSize; ++peer) {
      if (peer == comm.lsaRank) continue;
      auto* const came = static_cast<volatile int*>(
          ncclGetLocalPointer(board, at + sizeof(int) * static_cast<std::size_t>(peer * 4 * of_part)));
      int value;
      do value = *came;
      while (value == 0);
      *came = 0;
      sum += value == round + 1 ? 1 : 0;
    }
  }
  sums[i] = sum / (comm.lsaSize - 1);
}

void by_nccl(communicator& comm, bool wrong, nccl_slip which) {
  const nccl_slip made = wrong ? which : nccl_slip::none;
  const bool is_multimem = which == nccl_slip::multimem_early;
  const bool is_network = which >= nccl_slip::late_first_value && which < nccl_slip::multimem_early;
  const auto need = [](ncclResult_t result) {
    if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
  };
  ncclUniqueId id{};
  if (comm.rank() == 0) need(ncclGetUniqueId(&id));
  id = comm.all_gather(id)[0];
  ncclComm_t ranks = nullptr;
  need(ncclCommInitRank(&ranks, comm.size(), id, comm.rank()));
  const std::size_t bytes = sizeof(int) * 4 * blocks * of_part * static_cast<std::size_t>(comm.size());
  void* board = nullptr;
  need(ncclMemAlloc(&board, bytes));
  check_cuda(cudaMemset(board, 0, bytes), "cudaMemset");
  ncclWindow_t window = nullptr;
  need(ncclCommWindowRegister(ranks, board, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  asked.lsaBarrierCount = blocks;
  asked.lsaMultimem = is_multimem;
  if (is_network) {
    asked.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
    asked.ginContextCount = 3;
    asked.ginSignalCount = 1;
    asked.worldGinBarrierCount = 1;
  }
  ncclDevComm device;
  need(ncclDevCommCreate(ranks, &asked, &device));
  const bool two_blocks = which == nccl_slip::shared_barrier || which == nccl_slip::shared_signal;
  const unsigned grid = two_blocks ? 2 : 1;
  const test::device_array<int> sums(grid * of_part);
  const devcomm::launch_config config{.grid = grid, .block = of_part, .stream = cudaStreamPerThread};
  const auto kernel = is_network                          ? pass_by_network
                      : is_multimem                       ? sum_by_multimem
                      : which == nccl_slip::poison_reused ? pass_poisoned
                                                          : pass_by_stores;
  devcomm::launch(kernel, config, window, device, sums.get(), made);
  test::finish("kernel");
  ncclResult_t state = ncclSuccess;
  need(ncclCommGetAsyncError(ranks, &state));
  need(state);
  require_values(comm, sums.read(), [](int) { return 3; });
  comm.barrier();
  need(ncclDevCommDestroy(ranks, &device));
  need(ncclCommWindowDeregister(ranks, window));
  need(ncclCommDestroy(ranks));
  need(ncclMemFree(board));
}

template <nccl_slip which>
void with_slip(communicator& comm, bool wrong) {
  by_nccl(comm, wrong, which);
}

std::vector<mistake> nccl_kernels() {
  return {{"nccl_relaxed_barrier", with_slip<nccl_slip::relaxed_barrier>},
          {"nccl_shared_barrier", with_slip<nccl_slip::shared_barrier>},
          {"nccl_late_first_value", with_slip<nccl_slip::late_first_value>},
          {"nccl_other_context", with_slip<nccl_slip::other_context>},
          {"nccl_weak_signal", with_slip<nccl_slip::weak_signal>},
          {"nccl_shared_signal", with_slip<nccl_slip::shared_signal>},
          {"nccl_no_flush", with_slip<nccl_slip::no_flush>},
          {"nccl_get_unflushed", with_slip<nccl_slip::get_unflushed>},
          {"nccl_unfenced_barrier", with_slip<nccl_slip::unfenced_barrier>},
          {"nccl_wait_in_vain", with_slip<nccl_slip::wait_in_vain>},
          {"nccl_multimem_early", with_slip<nccl_slip::multimem_early>},
          {"nccl_poison_reused", with_slip<nccl_slip::poison_reused>}};
}

}  // namespace
}  // namespace mistakes
