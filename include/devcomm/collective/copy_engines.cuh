/// \file copy_engines.cuh
/// Exchange and all-to-all by copy engines: host calls on streams, for large vectors beside compute, as the copies take
/// no multiprocessor.
///
/// Protocol. Each pair of members has a signal on both sides, that of member `m` at index `m`. At the n-th rendezvous
/// of two ranks, each stores n to its signal on the other (release) and waits until its own is n (acquire). The number
/// of rendezvous with a peer is `taken()` of that signal, which outlives kernels, so graphs replay without a reset. In
/// stream order, a copy lies between two rendezvous, each a kernel of one block: the copy starts after the wait of the
/// first, and the store of the second releases what was copied.
#pragma once

#include <devcomm/collective/exchange.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/lsa/signal_session.cuh>
#include <devcomm/lsa/signals.hpp>
#include <devcomm/sym_ptr.hpp>

#if !defined(__CUDACC_RTC__)
#  include <devcomm/launch.hpp>

#  include <cstddef>
#  include <stdexcept>
#  include <string>
#  include <vector>
#endif

namespace devcomm::collective {

/// The signals of `copy_engines`. Plain data.
struct copy_engine_handle : lsa::signal_handle {};

/// Asks for them: `needs.add(collective::copy_engine_signals{comm.lsa()})`.
struct copy_engine_signals {
  team members;  ///< the LSA team

  DEVCOMM_HOST_DEVICE constexpr copy_engine_handle add_to(requirements& needs) const {
    return {needs.add(lsa::signals{members, static_cast<uint32_t>(members.size)})};
  }
};

}  // namespace devcomm::collective

namespace devcomm::detail {

/// The peers of one exchange.
struct sync_partners {
  int first;   // or `no_member`
  int second;  // or `no_member`; never `first`

  DEVCOMM_DEVICE int count(const team&) const { return 2; }
  DEVCOMM_DEVICE int member(int i, const team&) const { return i == 0 ? first : second; }
};

/// All other members.
struct sync_all {
  DEVCOMM_DEVICE int count(const team& members) const { return members.size - 1; }
  DEVCOMM_DEVICE int member(int i, const team& members) const { return (members.rank + 1 + i) % members.size; }
};

/// Rendezvous. One block; each thread serves some of the peers, and signals all of them before it waits for the first.
template <class Peers>
DEVCOMM_DEVICE void meet_peers(const device_comm& comm, const lsa::signal_handle& signals, const Peers& peers) {
  const team members = comm.lsa();
  const int first = static_cast<int>(arch::thread_rank());
  const int step = static_cast<int>(arch::block_threads());
  const auto with_each = [&](const auto& action) {
    for (int i = first; i < peers.count(members); i += step) {
      const int peer = peers.member(i, members);
      if (peer < 0) continue;
      lsa::signal_session met{thread{}, comm, signals, static_cast<uint32_t>(peer)};
      action(peer, met);
    }
  };
  with_each([&](int peer, const auto& met) {
    lsa::signal_session own{thread{}, comm, signals, static_cast<uint32_t>(members.rank)};
    own.store(peer, met.taken() + 1);
  });
  with_each([](int peer, auto& met) { met.take(peer); });
}
template <class Peers>
__global__ void sync_peers(device_comm comm, lsa::signal_handle signals, Peers peers) {
  meet_peers(comm, signals, peers);
}

}  // namespace devcomm::detail

#if !defined(__CUDACC_RTC__)

namespace devcomm::collective {

/// A rank's copies between windows by copy engines. The vectors that peers reach lie in a window: either outputs, into
/// which the senders copy, or inputs, from which the receivers copy; the others are any memory of the device.
///
///     const auto signals = needs.add(collective::copy_engine_signals{comm.lsa()});
///     collective::copy_engines copies{device_comm.get(), signals};
///     const auto with = collective::partners::in_ring(rank, ranks);
///     copies.exchange(with, input, window.pointer<float>(), count, stream);
///     consume<<<blocks, threads, 0, stream>>>(window.pointer<float>().local(), count);
///     copies.exchange(with, input, window.pointer<float>(), count, stream);
///
/// Calls are asynchronous, in the order of their stream, and capturable into graphs. With the default buffers a copy
/// into a window begins when all that the receiver put on its stream before its call is over, so it never overruns a
/// receiver that is late. When the stream goes on after a call, the output is there, and peers have read the input.
///
/// *Collective*: every rank makes it, and the ranks that copy to each other make the same calls in the same order;
/// those of one object come one after the other, on one stream or ordered by events.
///
/// *Multiprocessors*: none while data moves. A rendezvous is a kernel of one block that waits for the peers: one warp,
/// or one thread for each peer of an all-to-all.
///
/// *Failure*: a rendezvous ends by the communicator's timeout or abort, like every wait, and leaves a record: "signal 2
/// waited for rank 2". Later ones then return at once and signal nothing, so the stream always finishes. Copies cannot
/// be undone: those of the failed call and of later ones still run, although their source or destination may not be
/// ready. So after a failure this rank's outputs are undefined, and if outputs lie in a window, those of its receivers
/// are too; their own calls fail at the next rendezvous. Call `check` before you use results. Receivers that copy from
/// a window write only their own memory.
///
/// *Lifetime*: the device communicator and all windows outlive what was put on streams and graphs. Made and used with
/// the rank's device current.
class copy_engines {
 public:
  copy_engines(const device_comm& comm, const copy_engine_handle& signals) : comm_(comm), signals_(signals) {
    if (static_cast<int>(signals.members) != comm.lsa_size)
      throw std::invalid_argument(
          "copy_engines: the signals are those of another device communicator: add "
          "collective::copy_engine_signals to the requirements of this one");
    constexpr int max_streams = 4;  // of the copies of an all-to-all, the caller's among them
    const int others = max_streams < comm.lsa_size ? max_streams - 1 : comm.lsa_size - 1;
    streams_.reserve(static_cast<std::size_t>(others));
    check_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), "copy_engines");
    try {
      for (int i = 0; i < others; ++i) add_stream();
    } catch (...) {
      release();
      throw;
    }
  }
  copy_engines(const copy_engines&) = delete;
  copy_engines& operator=(const copy_engines&) = delete;
  ~copy_engines() { release(); }

  /// Sends `count` elements to `with.to` and receives as many from `with.from`. The output lies in a window; where in
  /// it, is the same on all ranks. Ranks that exchange with each other give the same `count`.
  template <class T>
  void exchange(partners with, const T* input, const sym_ptr<T>& output, uint64_t count, cudaStream_t stream,
                copy_buffers buffers = copy_buffers::reused) {
    const uint64_t bytes = checked("exchange", output, count, 1);
    const detail::sync_partners peers = peers_of(with);
    if (buffers == copy_buffers::reused) synchronize(peers, stream);
    if (with.to != no_member) copy(output.lsa(with.to), input, bytes, stream);
    synchronize(peers, stream);
  }

  /// The same where the input lies in a window.
  template <class T>
  void exchange(partners with, const sym_ptr<T>& input, T* output, uint64_t count, cudaStream_t stream,
                copy_buffers buffers = copy_buffers::reused) {
    const uint64_t bytes = checked("exchange", input, count, 1);
    const detail::sync_partners peers = peers_of(with);
    synchronize(peers, stream);
    if (with.from != no_member) copy(output, input.lsa(with.from), bytes, stream);
    if (buffers == copy_buffers::reused) synchronize(peers, stream);
  }

  /// Sends `count` elements to each member of the LSA team, the first to member 0; the output has those of member 0
  /// first, and lies in a window, at the same offset on all ranks.
  template <class T>
  void all_to_all(const T* input, const sym_ptr<T>& output, uint64_t count, cudaStream_t stream,
                  copy_buffers buffers = copy_buffers::reused) {
    const uint64_t bytes = checked("all_to_all", output, count, comm_.lsa_size);
    const auto mine = static_cast<int64_t>(count) * comm_.lsa_rank();
    if (buffers == copy_buffers::reused) synchronize_all(stream);
    for_each_member(stream, [&](int member, cudaStream_t on) {
      copy((output + mine).lsa(member), input + count * static_cast<uint64_t>(member), bytes, on);
    });
    synchronize_all(stream);
  }

  /// The same where the input lies in a window.
  template <class T>
  void all_to_all(const sym_ptr<T>& input, T* output, uint64_t count, cudaStream_t stream,
                  copy_buffers buffers = copy_buffers::reused) {
    const uint64_t bytes = checked("all_to_all", input, count, comm_.lsa_size);
    const auto mine = static_cast<int64_t>(count) * comm_.lsa_rank();
    synchronize_all(stream);
    for_each_member(stream, [&](int member, cudaStream_t on) {
      copy(output + count * static_cast<uint64_t>(member), (input + mine).lsa(member), bytes, on);
    });
    if (buffers == copy_buffers::reused) synchronize_all(stream);
  }

 private:
  struct copy_stream {
    cudaStream_t stream = nullptr;
    cudaEvent_t end = nullptr;
  };

  void add_stream() {
    streams_.emplace_back();
    check_cuda(cudaStreamCreateWithFlags(&streams_.back().stream, cudaStreamNonBlocking), "copy_engines");
    check_cuda(cudaEventCreateWithFlags(&streams_.back().end, cudaEventDisableTiming), "copy_engines");
  }
  void release() noexcept {
    for (const copy_stream& each : streams_) {
      if (each.stream != nullptr) static_cast<void>(cudaStreamDestroy(each.stream));
      if (each.end != nullptr) static_cast<void>(cudaEventDestroy(each.end));
    }
    static_cast<void>(cudaEventDestroy(begin_));
  }

  /// Bytes of `count` elements, of which `shares` fit into the window.
  template <class T>
  [[nodiscard]] uint64_t checked(const char* call, const sym_ptr<T>& buffer, uint64_t count, int shares) const {
    const window& memory = buffer.memory;
    if (memory.lsa_first != comm_.lsa_first || memory.lsa_size != comm_.lsa_size)
      throw std::invalid_argument(std::string("copy_engines::") + call + ": window " + std::to_string(memory.number()) +
                                  " is of another LSA team than the device communicator: allocate it by the same "
                                  "communicator");
    const uint64_t room = buffer.offset <= memory.bytes ? (memory.bytes - buffer.offset) / sizeof(T) : 0;
    if (count > room / static_cast<uint64_t>(shares))
      throw std::out_of_range(std::string("copy_engines::") + call + ": " + std::to_string(shares) + " x " +
                              std::to_string(count) + " elements, where window " + std::to_string(memory.number()) +
                              " has room for " + std::to_string(room) + " from byte " + std::to_string(buffer.offset) +
                              " on: allocate a larger one");
    return count * sizeof(T);
  }

  static void copy(void* to, const void* from, uint64_t bytes, cudaStream_t stream) {
    if (bytes != 0) check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy_engines");
  }

  /// Those of `with` that are not this rank.
  [[nodiscard]] detail::sync_partners peers_of(partners with) const {
    const int self = comm_.lsa_rank();
    if (!with.can_be_of(self, comm_.lsa_size))
      throw std::invalid_argument("copy_engines::exchange: to " + std::to_string(with.to) + ", from " +
                                  std::to_string(with.from) + " cannot be the partners of member " +
                                  std::to_string(self) + " of " + std::to_string(comm_.lsa_size) +
                                  ": give members of the LSA team, no_member, or the rank itself for both");
    return {with.to == self ? no_member : with.to, with.from == self || with.from == with.to ? no_member : with.from};
  }
  // Templates, or every file that includes this would compile their kernels.
  template <class Partners>
  void synchronize(const Partners& peers, cudaStream_t stream) const {
    if (peers.first == no_member && peers.second == no_member) return;
    launch(detail::sync_peers<Partners>, {1, 2, 0, stream}, comm_, signals_, peers);
  }
  template <class All = detail::sync_all>
  void synchronize_all(cudaStream_t stream) const {
    const auto others = static_cast<unsigned>(comm_.lsa_size - 1);
    if (others == 0) return;
    launch(detail::sync_peers<All>, {1, others < 1024 ? others : 1024, 0, stream}, comm_, signals_, All{});
  }

  /// Calls `action(member, stream)` with each member, this rank last, so that no two ranks begin with one member; the
  /// streams begin and end with `stream`.
  template <class Action>
  void for_each_member(cudaStream_t stream, const Action& action) {
    if (!streams_.empty()) check_cuda(cudaEventRecord(begin_, stream), "copy_engines");
    for (const copy_stream& each : streams_) check_cuda(cudaStreamWaitEvent(each.stream, begin_), "copy_engines");
    for (int i = 0; i < comm_.lsa_size; ++i) {
      const std::size_t turn = static_cast<std::size_t>(i) % (streams_.size() + 1);
      action((comm_.lsa_rank() + 1 + i) % comm_.lsa_size, turn == 0 ? stream : streams_[turn - 1].stream);
    }
    for (const copy_stream& each : streams_) {
      check_cuda(cudaEventRecord(each.end, each.stream), "copy_engines");
      check_cuda(cudaStreamWaitEvent(stream, each.end), "copy_engines");
    }
  }

  device_comm comm_;
  lsa::signal_handle signals_;
  std::vector<copy_stream> streams_;  // beside the caller's stream
  cudaEvent_t begin_ = nullptr;
};

}  // namespace devcomm::collective

#endif
