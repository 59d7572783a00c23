// Collectives that devcomm-perf does not measure, for scripts/kernel_resources.sh.
#include <devcomm/devcomm.cuh>

#include <cuda_bf16.h>

using namespace devcomm;
using namespace devcomm::collective;

constexpr unsigned most_threads = 512;

template <class T>
struct vectors {
  device_comm comm;
  sym_ptr<T> input, output;
  std::uint64_t count, length;
};

struct lamport {
  using session = lsa::lamport_session<block>;
  using handle = lamport_handle;
};
struct ll {
  using session = lsa::ll_session<block>;
  using handle = ll_handle;
};

template <class Protocol, class T>
__global__ void __launch_bounds__(most_threads, 1) scatter(vectors<T> v, typename Protocol::handle channels) {
  typename Protocol::session channel{block{}, v.comm, channels, blockIdx.x};
  reduce_scatter<T>(channel, slice_of_block(packs_of<T>(v.length)),
                    from_pieces<T>{v.input.local(), v.count, v.length}, to_memory<T>{v.output.local(), v.length}, sum{});
}
template <class Protocol, class T>
__global__ void __launch_bounds__(most_threads, 1) gather(vectors<T> v, typename Protocol::handle channels) {
  typename Protocol::session channel{block{}, v.comm, channels, blockIdx.x};
  all_gather<T>(channel, slice_of_block(packs_of<T>(v.length)), from_memory<T>{v.input.local(), v.length},
                to_pieces<T>{v.output.local(), v.count, v.length});
}
template <class Protocol, class T>
__global__ void __launch_bounds__(most_threads, 1) from_root(vectors<T> v, typename Protocol::handle channels) {
  typename Protocol::session channel{block{}, v.comm, channels, blockIdx.x};
  broadcast<T>(channel, 0, slice_of_block(packs_of<T>(v.count)), from_memory<T>{v.input.local(), v.count},
               to_memory<T>{v.output.local(), v.count});
}
template <class T>
__global__ void __launch_bounds__(most_threads, 1) pull(vectors<T> v) {
  lsa::barrier_session barrier{block{}, v.comm, blockIdx.x};
  all_reduce_one_shot_pull<T>(barrier, block{}, v.comm, v.input, v.output.local(), v.count, sum{});
}
template <class T>
__global__ void __launch_bounds__(most_threads, 1) scatter_direct(vectors<T> v) {
  lsa::barrier_session barrier{block{}, v.comm, blockIdx.x};
  reduce_scatter_direct<T>(barrier, block{}, v.comm, v.input, v.output.local(), v.count, sum{});
}
template <class T>
__global__ void __launch_bounds__(most_threads, 1) gather_direct(vectors<T> v) {
  lsa::barrier_session barrier{block{}, v.comm, blockIdx.x};
  all_gather_direct<T>(barrier, block{}, v.comm, v.input.local(), v.output, v.count);
}
template <class T>
__global__ void __launch_bounds__(most_threads, 1) from_root_direct(vectors<T> v) {
  lsa::barrier_session barrier{block{}, v.comm, blockIdx.x};
  broadcast_direct<T>(barrier, block{}, v.comm, 0, v.input.local(), v.output, v.count);
}

template __global__ void scatter<lamport, __nv_bfloat16>(vectors<__nv_bfloat16>, lamport_handle);
template __global__ void scatter<ll, __nv_bfloat16>(vectors<__nv_bfloat16>, ll_handle);
template __global__ void gather<lamport, __nv_bfloat16>(vectors<__nv_bfloat16>, lamport_handle);
template __global__ void gather<ll, __nv_bfloat16>(vectors<__nv_bfloat16>, ll_handle);
template __global__ void from_root<lamport, __nv_bfloat16>(vectors<__nv_bfloat16>, lamport_handle);
template __global__ void from_root<ll, __nv_bfloat16>(vectors<__nv_bfloat16>, ll_handle);
template __global__ void pull<__nv_bfloat16>(vectors<__nv_bfloat16>);
template __global__ void scatter_direct<__nv_bfloat16>(vectors<__nv_bfloat16>);
template __global__ void gather_direct<__nv_bfloat16>(vectors<__nv_bfloat16>);
template __global__ void from_root_direct<__nv_bfloat16>(vectors<__nv_bfloat16>);
