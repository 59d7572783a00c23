/// Kernels of devcomm.ops. Inputs and outputs are any memory of the device, of any alignment; each kernel is a call of
/// the device API.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <devcomm/devcomm.cuh>

namespace devcomm::ops {

using collective::from_memory;
using collective::from_shards;
using collective::packs_of;
using collective::slice_of_block;
using collective::to_memory;
using collective::to_shards;

template <class T>
__device__ const T* typed(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
__device__ T* typed(void* data) {
  return static_cast<T*>(data);
}

template <class T, class Operator, class Session>
__global__ void all_reduce_one_shot(device_comm comm, typename Session::handle mailboxes, const void* input,
                                    void* output, uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<T>(session, slice_of_block(packs_of<T>(count)),
                                     from_memory<T>{typed<T>(input), count}, to_memory<T>{typed<T>(output), count},
                                     Operator{});
}

template <class T, class Operator, class Session>
__global__ void all_reduce_two_shot(device_comm comm, typename Session::handle mailboxes, const void* input,
                                    void* output, uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_two_shot<T>(session, slice_of_block(packs_of<T>(count)),
                                     from_memory<T>{typed<T>(input), count}, to_memory<T>{typed<T>(output), count},
                                     Operator{});
}

/// A block is `groups` groups, each with a barrier and chunks of its own: one moves data while another waits.
template <class T, class Operator>
__global__ void all_reduce_two_shot_chunked(device_comm comm, buffer_handle<char> inputs, buffer_handle<char> results,
                                            unsigned packs, unsigned groups, const void* input, void* output,
                                            uint64_t count) {
  const unsigned warps = blockDim.x / 32 / groups;
  const unsigned part = threadIdx.x / 32 / warps;
  const unsigned index = blockIdx.x * groups + part;
  lsa::barrier_session barrier{warp_span{part * warps, warps, 1 + part}, comm, index};
  const uint64_t all = packs_of<T>(count);
  const uint64_t share = collective::packs_per_block(all, uint64_t{gridDim.x} * groups);
  const uint64_t begin = min(index * share, all);
  const auto scratch = collective::chunk_scratch::of_group(comm, {inputs, results}, packs, index);
  collective::all_reduce_two_shot_chunked<T>(barrier, scratch, {begin, min(begin + share, all)},
                                             from_memory<T>{typed<T>(input), count},
                                             to_memory<T>{typed<T>(output), count}, Operator{});
}

/// `count` elements of the result on each rank.
template <class T, class Operator, class Session>
__global__ void reduce_scatter(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                               uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::reduce_scatter<T>(session, slice_of_block(packs_of<T>(count)),
                                from_shards<T>{typed<T>(input), count * comm.lsa_size, count},
                                to_memory<T>{typed<T>(output), count}, Operator{});
}

/// `count` elements from each rank.
template <class T, class Session>
__global__ void all_gather(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                           uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_gather<T>(session, slice_of_block(packs_of<T>(count)), from_memory<T>{typed<T>(input), count},
                            to_shards<T>{typed<T>(output), count * comm.lsa_size, count});
}

template <class T, class Session>
__global__ void broadcast(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                          uint64_t count, int root) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::broadcast<T>(session, root, slice_of_block(packs_of<T>(count)), from_memory<T>{typed<T>(input), count},
                           to_memory<T>{typed<T>(output), count});
}

/// `count` elements from each rank to each.
template <class T, class Session>
__global__ void all_to_all(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                           uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_to_all<T>(session, slice_of_block(packs_of<T>(count)),
                            from_shards<T>{typed<T>(input), count * comm.lsa_size, count},
                            to_shards<T>{typed<T>(output), count * comm.lsa_size, count});
}

}  // namespace devcomm::ops
