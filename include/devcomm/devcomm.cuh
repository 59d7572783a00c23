/// \file devcomm.cuh
/// Everything for kernels.
#pragma once

#include <devcomm/any_group.cuh>
#include <devcomm/any_order.hpp>
#include <devcomm/channel/fifos.hpp>
#include <devcomm/channel/group_session.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/channel/network.cuh>
#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/channel/session.cuh>
#include <devcomm/collective/all_gather.cuh>
#include <devcomm/collective/all_reduce/algorithm.hpp>
#include <devcomm/collective/all_reduce/hierarchical.cuh>
#include <devcomm/collective/all_reduce/hierarchical_one_shot.cuh>
#include <devcomm/collective/all_reduce/hierarchical_ring.cuh>
#include <devcomm/collective/all_reduce/one_shot.cuh>
#include <devcomm/collective/all_reduce/one_shot_zero_copy.cuh>
#include <devcomm/collective/all_reduce/two_shot.cuh>
#include <devcomm/collective/all_reduce/two_shot_chunked.cuh>
#include <devcomm/collective/all_reduce/two_shot_zero_copy.cuh>
#include <devcomm/collective/all_to_all.cuh>
#include <devcomm/collective/all_to_all_hybrid.cuh>
#include <devcomm/collective/all_to_all_one_shot.cuh>
#include <devcomm/collective/all_to_all_v.cuh>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/broadcast.cuh>
#include <devcomm/collective/copy_engines.cuh>
#include <devcomm/collective/exchange.cuh>
#include <devcomm/collective/multimem.cuh>
#include <devcomm/collective/reduce_scatter.cuh>
#include <devcomm/collective/ring.cuh>
#include <devcomm/collective/rms_norm.cuh>
#include <devcomm/collective/send_receive.cuh>
#include <devcomm/collective/tree.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/data/small_float.cuh>
#include <devcomm/dependent_launch.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/gemm/operand.cuh>
#include <devcomm/gemm/operand_copies.cuh>
#include <devcomm/gemm/operations.cuh>
#include <devcomm/gemm/output.cuh>
#include <devcomm/gemm/partials.hpp>
#include <devcomm/gemm/publish.cuh>
#include <devcomm/gemm/reduce.cuh>
#include <devcomm/gemm/reference_product.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/gin/barrier_session.cuh>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/buffer.cuh>
#include <devcomm/gin/buffer.hpp>
#include <devcomm/gin/context.cuh>
#include <devcomm/gin/contexts.hpp>
#include <devcomm/group.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/lsa/lamport_session.cuh>
#include <devcomm/lsa/ll128_session.cuh>
#include <devcomm/lsa/ll_all_to_all_session.cuh>
#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/lsa/pack_cursor.cuh>
#include <devcomm/lsa/signal_session.cuh>
#include <devcomm/lsa/whole_world.hpp>
#include <devcomm/moe/combine.cuh>
#include <devcomm/moe/dispatch.cuh>
#include <devcomm/moe/exchange.hpp>
#include <devcomm/multimem/barrier_session.cuh>
#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/packet_session.cuh>
#include <devcomm/multimem/ptr.cuh>
#include <devcomm/multimem/resources.hpp>
#include <devcomm/multimem/window_record.hpp>
#include <devcomm/ring.hpp>
#include <devcomm/tree.hpp>

#if !defined(__CUDACC_RTC__)
#  include <devcomm/channel/message_table.hpp>
#  include <devcomm/channel/ring_table.hpp>
#  include <devcomm/launch.hpp>
#endif
