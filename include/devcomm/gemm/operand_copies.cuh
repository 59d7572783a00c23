/// \file operand_copies.cuh
/// An operand that is gathered by copy engines while it is used: host calls before and after the launch that uses it.
///
/// Protocol. A rendezvous on the stream, a kernel of one block, meets all peers: what used their operands before is
/// over. It also stores the epoch of the launch that comes next, see flags.hpp. On a stream of its own each chunk is
/// then copied to a peer, and behind it, in stream order, the word with the epoch to the chunk's flag. No kernel sets
/// flags: beside a grid that fills the GPU it might not start before that ends, which waits for the peers' flags.
#pragma once

#include <devcomm/collective/copy_engines.cuh>
#include <devcomm/gemm/operand.cuh>
#include <devcomm/gemm/session.cuh>

namespace devcomm::gemm {

/// What `operand_copies` needs on the device. Plain data.
struct operand_copy_handle {
  collective::copy_engine_handle signals;
  buffer_handle<uint64_t> epoch;  ///< one word, as the copies send it
};

/// Asks for it: `needs.add(gemm::operand_copy_signals{comm.lsa()})`.
struct operand_copy_signals {
  team members;  ///< the LSA team

  DEVCOMM_HOST_DEVICE constexpr operand_copy_handle add_to(requirements& needs) const {
    const auto signals = needs.add(collective::copy_engine_signals{members});
    return {signals, needs.add_buffer<uint64_t>(1)};
  }
};

}  // namespace devcomm::gemm

namespace devcomm::detail {

/// The rendezvous. After a failure copies send an epoch that opens no gate.
template <class Peers>
__global__ void meet_for_operand(device_comm comm, gemm::operand_copy_handle copies, gemm::flag_handle flags,
                                 Peers peers) {
  meet_peers(comm, copies.signals, peers);
  const block group;
  group.sync();
  const gemm::flag_access launch{comm, flags};
  if (group.thread_rank() == 0) *comm.buffer(copies.epoch).local() = launch.is_dead() ? 0 : launch.epoch();
}

}  // namespace devcomm::detail

#if !defined(__CUDACC_RTC__)

namespace devcomm::gemm {

/// Copies this rank's shard of A to all peers by copy engines, in the order of `operand_sender`, so that the grid of
/// the product has no block for it:
///
///     const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), blocks});
///     const auto handle = needs.add(gemm::operand_copy_signals{comm.lsa()});
///     gemm::operand_copies copies{device_comm.get(), handle, flags, chunks};
///
///     copies.begin(window.pointer<T>(), stream);
///     launch(kernel, {..., .stream = stream}, ...);  // calls gemm::all_gather without communication blocks
///     copies.end(stream);
///
/// Asynchronous, and capturable into graphs. What is on the stream after `end` may write the shard.
///
/// *Collective*: every rank of the LSA team makes it, and calls `begin`, the launch, and `end` in turn, on one stream.
///
/// *Ordering*: as for `operand_sender`, whose gates these are. A flag's copy begins when that of its chunk is over, and
/// the gate's acquire pairs with it.
///
/// *Failure*: a rank that comes too late for the rendezvous is named there, after the communicator's timeout, as in
/// `collective::copy_engines`; the copies still run, but open no gate, so that the peers' gates fail too.
///
/// *Lifetime*: the device communicator and the window outlive what was put on streams and graphs. Made and used with
/// the rank's device current.
class operand_copies {
 public:
  operand_copies(const device_comm& comm, const operand_copy_handle& handle, const flag_handle& flags,
                 const operand_chunks& chunks)
      : comm_(comm), handle_(handle), flags_(flags), chunks_(chunks) {
    if (chunks.grid().members() != comm.lsa_size)
      throw std::invalid_argument("operand_copies: the grid of the chunks has " +
                                  std::to_string(chunks.grid().members()) + " members, and the LSA team " +
                                  std::to_string(comm.lsa_size) + ": give tile_grid::by_rows comm.lsa().size");
    if (flags.count < chunks.count())
      throw std::invalid_argument("operand_copies: " + std::to_string(flags.count) + " flags for " +
                                  std::to_string(chunks.count()) +
                                  " chunks: give gemm::flags at least operand_chunks::count()");
    check_cuda(cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking), "operand_copies");
    if (const cudaError_t code = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); code != cudaSuccess) {
      static_cast<void>(cudaStreamDestroy(copying_));
      throw cuda_error(code, "operand_copies");
    }
  }
  operand_copies(const operand_copies&) = delete;
  operand_copies& operator=(const operand_copies&) = delete;
  ~operand_copies() {
    static_cast<void>(cudaStreamDestroy(copying_));
    static_cast<void>(cudaEventDestroy(event_));
  }

  /// Meets the peers on `stream`, and begins the copies. `operand` is the whole of A, `m` rows of `k` elements, at the
  /// same place of a window on every rank, with this rank's shard in place on the stream.
  template <class T>
  void begin(const sym_ptr<T>& operand, cudaStream_t stream) {
    const problem_shape& problem = chunks_.grid().problem();
    const window& memory = operand.memory;
    const uint64_t elements = uint64_t{problem.m} * problem.k;
    if (memory.lsa_first != comm_.lsa_first || memory.lsa_size != comm_.lsa_size || operand.offset > memory.bytes ||
        elements > (memory.bytes - operand.offset) / sizeof(T))
      throw std::out_of_range("operand_copies::begin: A has " + std::to_string(elements) +
                              " elements, more than window " + std::to_string(memory.number()) +
                              " holds from there on, or that is one of another LSA team");
    const auto ranks = comm_.lsa_size, rank = comm_.lsa_rank();
    meet(stream);
    fork(stream, copying_);
    for (int distance = 1; distance < ranks; ++distance) {
      const int peer = (rank + ranks - distance) % ranks;
      for (uint32_t i = 0; i < chunks_.of_shard(); ++i) {
        const tile chunk = chunks_.at(rank, i);
        const uint64_t first = uint64_t{chunk.row} * problem.k + chunk.column;
        if (chunk.rows != 0)
          check_cuda(cudaMemcpy2DAsync(operand.lsa(peer) + first, problem.k * sizeof(T), operand.local() + first,
                                       problem.k * sizeof(T), chunk.columns * sizeof(T), chunk.rows,
                                       cudaMemcpyDeviceToDevice, copying_),
                     "operand_copies::begin");
        check_cuda(cudaMemcpyAsync(flag(peer, chunks_.number(rank, 0, 0) + i), comm_.buffer(handle_.epoch).local(),
                                   sizeof(uint64_t), cudaMemcpyDeviceToDevice, copying_),
                   "operand_copies::begin");
      }
    }
  }

  /// What comes on `stream` from here on is after the copies.
  void end(cudaStream_t stream) { fork(copying_, stream); }

 private:
  // A template, or every file that includes this would compile its kernel.
  template <class All = detail::sync_all>
  void meet(cudaStream_t stream) const {
    const auto others = static_cast<unsigned>(comm_.lsa_size - 1);
    launch(detail::meet_for_operand<All>,
           {1,
            others == 0     ? 1
            : others < 1024 ? others
                            : 1024,
            0, stream},
           comm_, handle_, flags_, All{});
  }
  void fork(cudaStream_t from, cudaStream_t to) const {
    check_cuda(cudaEventRecord(event_, from), "operand_copies");
    check_cuda(cudaStreamWaitEvent(to, event_), "operand_copies");
  }
  [[nodiscard]] void* flag(int member, uint32_t index) const {
    return comm_.resources.base + static_cast<uint64_t>(member) * comm_.resources.stride + flags_.offset +
           flag_layout{flags_.count, flags_.max_blocks}.flag(index);
  }

  device_comm comm_;
  operand_copy_handle handle_;
  flag_handle flags_;
  operand_chunks chunks_;
  cudaStream_t copying_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace devcomm::gemm

#endif
