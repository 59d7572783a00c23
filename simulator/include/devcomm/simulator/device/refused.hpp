/// \file refused.hpp
/// What the simulator does not have: a call stops the build with a sentence that says what to take in its place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#define DEVCOMM_SIMULATOR_REFUSES(text) __attribute__((error(text)))

#define DEVCOMM_SIMULATOR_NO_MANAGED_MEMORY                                                                              \
  "the simulator has no managed memory; take cudaMallocHost for memory that the host and kernels access, or cudaMalloc " \
  "and copies"
template <class T>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_MANAGED_MEMORY)
cudaError_t cudaMallocManaged(T** pointer, std::size_t bytes, unsigned flags = 1);
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_MANAGED_MEMORY)
cudaError_t cudaMemPrefetchAsync(Arguments... arguments);
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_MANAGED_MEMORY)
cudaError_t cudaMemAdvise(Arguments... arguments);

template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(
    "the simulator has no memory that is pinned later; take cudaMallocHost in place of "
    "cudaHostRegister")
cudaError_t cudaHostRegister(Arguments... arguments);

#define DEVCOMM_SIMULATOR_NO_HANDLES                                                                                  \
  "the simulator has no CUDA handles between processes; put all GPUs into one process, or share memory by devcomm's " \
  "symmetric windows"
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaIpcEventHandle_t {
  char reserved[64];
};
#define cudaIpcMemLazyEnablePeerAccess 0x01
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_HANDLES)
cudaError_t cudaIpcGetEventHandle(Arguments... arguments);
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_HANDLES)
cudaError_t cudaIpcGetMemHandle(Arguments... arguments);
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_HANDLES)
cudaError_t cudaIpcOpenMemHandle(Arguments... arguments);

#define DEVCOMM_SIMULATOR_NO_NODES \
  "the simulator has no graphs that are made of nodes; capture a stream with cudaStreamBeginCapture"
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_NODES)
cudaError_t cudaGraphCreate(Arguments... arguments);
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_NODES)
cudaError_t cudaGraphAddKernelNode(Arguments... arguments);

#define DEVCOMM_SIMULATOR_NO_TEXTURES \
  "the simulator has no textures; load from global memory where DEVCOMM_SIMULATOR is defined"
template <class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_TEXTURES)
cudaError_t cudaCreateTextureObject(Arguments... arguments);
template <class T, class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_TEXTURES)
T tex1Dfetch(Arguments... arguments);
template <class T, class... Arguments>
DEVCOMM_SIMULATOR_REFUSES(DEVCOMM_SIMULATOR_NO_TEXTURES)
T tex2D(Arguments... arguments);

#undef DEVCOMM_SIMULATOR_REFUSES
