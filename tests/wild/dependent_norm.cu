// All-reduce with residual and norm, fused, as a dependent launch: it may start before the kernel before it has ended,
// and must wait for that before it reads what that kernel writes. The kernel after it may start early in turn.
//
// options: --ranks 1
// bug 1: the residual is read before the wait for the kernel before
//   seen in: flashinfer 5081, TensorRT-LLM 14537
//   race: data race .* device memory
// bug 2: the next kernel may start before this one has stored what it reads, and does not wait
//   seen in: flashinfer 2708
//   race: data race .* device memory
// bug 3: the wait is compiled for later GPUs alone
//   seen in: flashinfer 2708
//   race: data race .* device memory
#include "gpus.cuh"

#if !defined(BUG)
#  define BUG 0
#endif
#if BUG == 3
#  define FIRST_WITH_WAIT 1000
#else
#  define FIRST_WITH_WAIT 900
#endif

constexpr int hidden = 256;
constexpr int steps = 3;

__device__ void wait_for_prior() {
#if __CUDA_ARCH__ >= FIRST_WITH_WAIT
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__global__ void project(const float* in, float* out) {
#if BUG != 2
  wait_for_prior();
#endif
  out[threadIdx.x] = in[threadIdx.x] + 1;
  let_next_start();
}

__global__ void norm(const float* in, float* residual, float* out) {
#if BUG == 1
  const float before = residual[threadIdx.x];
  wait_for_prior();
#else
  wait_for_prior();
  const float before = residual[threadIdx.x];
#endif
#if BUG == 2
  let_next_start();
#endif
  const float sum = in[threadIdx.x] + before;
  residual[threadIdx.x] = sum;
  out[threadIdx.x] = sum / 2;
#if BUG != 2
  let_next_start();
#endif
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = hidden;
  config.attrs = &early;
  config.numAttrs = 1;
  gpus::check(cudaLaunchKernelEx(&config, kernel, arguments...), "cudaLaunchKernelEx");
}

int main() {
  const auto x = gpus::allocate<float>(hidden);
  const auto y = gpus::allocate<float>(hidden);
  const auto residual = gpus::allocate<float>(hidden);
  float in = 0;
  float sum = 0;
  gpus::check(cudaSetDevice(0), "cudaSetDevice");
  for (int i = 0; i < steps; ++i) {
    launch(project, static_cast<const float*>(x.of[0]), y.of[0]);
    launch(norm, static_cast<const float*>(y.of[0]), residual.of[0], x.of[0]);
    sum += in + 1;
    in = sum / 2;
  }
  int wrong = 0;
  for (const float value : gpus::download(x.of[0], hidden)) wrong += value != in;
  return gpus::finish(wrong);
}
