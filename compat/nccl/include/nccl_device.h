/// \file nccl_device.h
/// NCCL's device interface, by devcomm: kernels that are written for it compile as they are, run on GPUs without NCCL,
/// and in the simulator under the race detector. docs/nccl.md says what works and what differs.
#ifndef DEVCOMM_NCCL_DEVICE_H_
#define DEVCOMM_NCCL_DEVICE_H_

#include <nccl.h>
#ifndef DEVCOMM_NCCL_H_
#  error "devcomm's nccl_device.h found NCCL's own nccl.h: put devcomm's folder with nccl.h before the toolkit's, by -I"
#endif

#include <nccl_device/core.h>
#if defined(__CUDACC__) || defined(DEVCOMM_SIMULATOR_OF_EACH_GPU)  // files with kernels
#  include <nccl_device/barrier.h>
#  include <nccl_device/coop.h>
#  include <nccl_device/gin.h>
#  include <nccl_device/ll_a2a.h>
#  include <nccl_device/lsa_barrier.h>
#  include <nccl_device/multimem.h>
#  include <nccl_device/ptr.h>
#  include <nccl_device/reduce_copy.h>
#endif

#endif
