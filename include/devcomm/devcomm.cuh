/// \file devcomm.cuh
/// Everything for kernels.
#pragma once

#include <devcomm/any_group.cuh>
#include <devcomm/block.cuh>
#include <devcomm/collective/all_gather.cuh>
#include <devcomm/collective/all_gather_direct.cuh>
#include <devcomm/collective/all_reduce_chunked.cuh>
#include <devcomm/collective/all_reduce_direct.cuh>
#include <devcomm/collective/all_reduce_one_shot.cuh>
#include <devcomm/collective/all_reduce_one_shot_pull.cuh>
#include <devcomm/collective/all_reduce_two_shot.cuh>
#include <devcomm/collective/broadcast.cuh>
#include <devcomm/collective/broadcast_direct.cuh>
#include <devcomm/collective/chunks.cuh>
#include <devcomm/collective/pieces.cuh>
#include <devcomm/collective/reduce_scatter.cuh>
#include <devcomm/collective/reduce_scatter_direct.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/copy.cuh>
#include <devcomm/dependent_launch.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/lanes.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/lsa/lamport_session.cuh>
#include <devcomm/lsa/ll128_session.cuh>
#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/lsa/pack_walk.cuh>
#include <devcomm/pack.cuh>
#include <devcomm/reduce_copy.cuh>
#include <devcomm/reduction.cuh>
#include <devcomm/small_float.cuh>
#include <devcomm/thread.cuh>
#include <devcomm/tile.cuh>
#include <devcomm/trace_span.cuh>
#include <devcomm/warp_span.cuh>

#if !defined(__CUDACC_RTC__)
#  include <devcomm/launch.hpp>
#endif
