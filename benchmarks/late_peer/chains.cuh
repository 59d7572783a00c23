/// \file chains.cuh
/// Collectives of which benchmarks make chains, to see what ranks do that wait.
#pragma once

#include <devcomm/devcomm.cuh>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace late_peer {

using element = __half;

/// Threads of the largest block: registers are bounded for it.
constexpr unsigned max_threads = 512;

template <class Session>
__global__ void __launch_bounds__(max_threads) one_shot(devcomm::device_comm comm, typename Session::handle mailboxes,
                                                        const element* input, element* output, std::uint64_t count) {
  namespace collective = devcomm::collective;
  Session session{devcomm::block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<element>(session, collective::slice_of_block(collective::packs_of<element>(count)),
                                           collective::from_memory<element>{input, count},
                                           collective::to_memory<element>{output, count}, devcomm::sum{});
}

// The others are templates only to be defined in a header: kernels may not be `inline`.

template <class T>
__global__ void __launch_bounds__(max_threads)
    direct(devcomm::device_comm comm, devcomm::sym_ptr<T> input, devcomm::sym_ptr<T> output, std::uint64_t count) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  devcomm::collective::all_reduce_two_shot_zero_copy<T>(barrier, input, output, count, devcomm::sum{});
}

template <devcomm::memory_order Order>
__global__ void __launch_bounds__(max_threads) only_barrier(devcomm::device_comm comm) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync(Order);
}

}  // namespace late_peer
