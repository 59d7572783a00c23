/// Kernels of devcomm.ops. Inputs and outputs are any memory of the device, of any alignment; each kernel is a call of
/// the device API. All are templates, so that a program has only those that are asked for.
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

/// Comes before all that reads memory or makes a session: the launch may be a dependent one, and so may the next.
__device__ inline void await_prior_launch() {
  allow_dependent_launch();
  wait_for_prior_launch();
}

template <class T, class Operator, class Session>
__global__ void all_reduce_one_shot(device_comm comm, typename Session::handle mailboxes, const void* input,
                                    void* output, uint64_t count) {
  await_prior_launch();
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<T>(session, slice_of_block(packs_of<T>(count)),
                                     from_memory<T>{typed<T>(input), count}, to_memory<T>{typed<T>(output), count},
                                     Operator{});
}

template <class T, class Operator, class Session>
__global__ void all_reduce_two_shot(device_comm comm, typename Session::handle mailboxes, const void* input,
                                    void* output, uint64_t count) {
  await_prior_launch();
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
  await_prior_launch();
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
  await_prior_launch();
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::reduce_scatter<T>(session, slice_of_block(packs_of<T>(count)),
                                from_shards<T>{typed<T>(input), count * comm.lsa_size, count},
                                to_memory<T>{typed<T>(output), count}, Operator{});
}

/// `count` elements from each rank.
template <class T, class Session>
__global__ void all_gather(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                           uint64_t count) {
  await_prior_launch();
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_gather<T>(session, slice_of_block(packs_of<T>(count)), from_memory<T>{typed<T>(input), count},
                            to_shards<T>{typed<T>(output), count * comm.lsa_size, count});
}

template <class T, class Session>
__global__ void broadcast(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                          uint64_t count, int root) {
  await_prior_launch();
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::broadcast<T>(session, root, slice_of_block(packs_of<T>(count)), from_memory<T>{typed<T>(input), count},
                           to_memory<T>{typed<T>(output), count});
}

/// `count` elements from each rank to each.
template <class T, class Session>
__global__ void all_to_all(device_comm comm, typename Session::handle mailboxes, const void* input, void* output,
                           uint64_t count) {
  await_prior_launch();
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_to_all<T>(session, slice_of_block(packs_of<T>(count)),
                            from_shards<T>{typed<T>(input), count * comm.lsa_size, count},
                            to_shards<T>{typed<T>(output), count * comm.lsa_size, count});
}

/// Rows of `row` elements: `counts[m]` of them to member `m`, and `counts_out[m]` become those that come from it.
/// Output has room for `capacity` rows; what is past it is left out.
template <class T, class Session>
__global__ void all_to_all_v(device_comm comm, typename Session::handle mailboxes, const void* input, uint64_t rows,
                             const void* counts, void* output, void* counts_out, uint64_t row, uint64_t capacity) {
  await_prior_launch();
  extern __shared__ uint64_t in_shared[];
  const int ranks = comm.lsa_size;
  uint64_t* const sent = in_shared;
  uint64_t* const offsets = sent + ranks;
  uint64_t* const received = offsets + ranks;  // one more
  if (threadIdx.x == 0) {
    uint64_t before = 0;
    for (int m = 0; m < ranks; ++m) {
      sent[m] = typed<uint64_t>(counts)[m] * row;
      offsets[m] = before;
      before += sent[m];
    }
    DEVCOMM_ASSERT(before <= rows * row, "all_to_all_v: the counts are more than the input has rows");
  }
  __syncthreads();
  {
    Session session{block{}, comm, mailboxes, blockIdx.x};
    collective::all_to_all_v<T>(session, sent, received, collective::from_pieces<T>{typed<T>(input), sent, offsets},
                                collective::to_packed_pieces<T>{typed<T>(output), received, capacity * row});
  }
  __syncthreads();
  if (blockIdx.x != 0) return;
  for (int m = static_cast<int>(threadIdx.x); m < ranks; m += static_cast<int>(blockDim.x))
    typed<uint64_t>(counts_out)[m] = received[m] / row;
}

/// What a rank sends and receives at once.
template <uint32_t MaxMessages>
struct message_group {
  channel::message messages[MaxMessages];
  uint64_t count;
};

template <uint32_t MaxMessages>
__global__ void send_receive(device_comm comm, channel::connection_handle connections,
                             const __grid_constant__ message_group<MaxMessages> group) {
  await_prior_launch();
  __shared__ channel::message messages[MaxMessages];
  for (uint32_t i = threadIdx.x; i < group.count; i += blockDim.x) messages[i] = group.messages[i];
  __syncthreads();
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  session.transfer({messages, static_cast<uint32_t>(group.count), 0, nullptr});
}

// What becomes of normalized rows: `scale` is one number, or one for each row and group of 128 elements, which is
// stored.

template <class T>
struct rows_of_input {
  __device__ static collective::to_rows<T> output(void* rows, uint64_t hidden, float*) {
    return {typed<T>(rows), hidden};
  }
};
template <class Fp8>
struct rows_with_scale {
  __device__ static collective::to_quantized_rows<Fp8> output(void* rows, uint64_t hidden, const float* scale) {
    return {typed<Fp8>(rows), hidden, scale};
  }
};
template <class Fp8>
struct rows_with_scales {
  __device__ static collective::to_quantized_groups<Fp8> output(void* rows, uint64_t hidden, float* scales) {
    return {typed<Fp8>(rows), hidden, scales, hidden / collective::to_quantized_groups<Fp8>::elements};
  }
};

/// residual += sum over ranks of input; output = residual / sqrt(mean(residual^2) + epsilon) * weight, for each of
/// `rows` rows of `hidden` elements, which fill whole packs. A block takes rows in turn, and holds one in shared
/// memory.
template <class T, class Session, class Rows = rows_of_input<T>>
__global__ void all_reduce_rms_norm(device_comm comm, typename Session::handle mailboxes, const void* input,
                                    void* residual, const void* weight, void* output, uint64_t rows, uint64_t hidden,
                                    float epsilon, float* scale) {
  await_prior_launch();
  extern __shared__ __align__(16) unsigned char row_in_shared[];
  const collective::norm_rows<T> norm{row_in_shared, 1, static_cast<uint32_t>(hidden)};
  const from_memory<T> partial{typed<T>(input), rows * hidden};
  Session session{block{}, comm, mailboxes, blockIdx.x};
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const collective::slice packs{row * norm.row_packs(), (row + 1) * norm.row_packs()};
    collective::all_reduce_one_shot<T>(session, packs, partial, norm.add_to(typed<T>(residual), row), sum{});
    if (session.agree() != status::success) return;  // of a row with a gap there is no norm
    norm.normalize(block{}, 0, typed<T>(weight), epsilon, Rows::output(output, hidden, scale), row);
  }
}

}  // namespace devcomm::ops
