/// \file gin.h
/// One-sided operations over networks: those of gin/context.cuh.
#ifndef DEVCOMM_NCCL_DEVICE_GIN_H_
#define DEVCOMM_NCCL_DEVICE_GIN_H_

#include <devcomm/assert.hpp>
#include <devcomm/gin/context.cuh>
#include <nccl_device/coop.h>
#include <nccl_device/core.h>
#include <nccl_device/ptr.h>

// --- what happens beside an operation ---

struct ncclGin_None {};
/// A strong signal says that all earlier puts of its context to the peer have arrived, a weak one that its own has.
struct ncclGin_StrongSignalInc {
  ncclGinSignal_t signal;
};
struct ncclGin_WeakSignalInc {
  ncclGinSignal_t signal;
};
struct ncclGin_StrongSignalAdd {
  ncclGinSignal_t signal;
  uint64_t value;
};
struct ncclGin_WeakSignalAdd {
  ncclGinSignal_t signal;
  uint64_t value;
};
/// Those of before 2.30.5 are strong.
struct ncclGin_SignalInc {
  ncclGinSignal_t signal;
};
struct ncclGin_SignalAdd {
  ncclGinSignal_t signal;
  uint64_t value;
};
/// The operation's source may be written again.
struct ncclGin_WeakCounterInc {
  ncclGinCounter_t counter;
};
struct ncclGin_CounterInc {
  ncclGinCounter_t counter;
};

/// Signals at an address of a window: devcomm's proxies change the signals of contexts alone, so these are refused where
/// they are used.
struct ncclGin_StrongVASignalInc {
  ncclWindow_t signalWindow;
  size_t signalOffset;
};
struct ncclGin_StrongVASignalAdd {
  ncclWindow_t signalWindow;
  size_t signalOffset;
  uint64_t value;
};
struct ncclGin_WeakVASignalInc : ncclGin_StrongVASignalInc {};
struct ncclGin_WeakVASignalAdd : ncclGin_StrongVASignalAdd {};
struct ncclGin_VASignalInc : ncclGin_StrongVASignalInc {};
struct ncclGin_VASignalAdd : ncclGin_StrongVASignalAdd {};

// Hints, which change nothing.
struct ncclGinDescriptorSmem {
  char bytes[128];
};
struct ncclGin_DescriptorSmem {
  ncclGinDescriptorSmem* descriptor;
};
struct ncclGin_SegmentDevice {};
struct ncclGin_SegmentMixed {};
struct ncclGin_SegmentHostNuma {};
enum ncclGinOptFlags : uint32_t {
  ncclGinOptFlagsDefault = 0,
  ncclGinOptFlagsMaySkipCreditCheck = 1,
  ncclGinOptFlagsAggregateRequests = 2
};
enum ncclGinResourceSharingMode {
  NCCL_GIN_RESOURCE_SHARING_GPU,
  NCCL_GIN_RESOURCE_SHARING_CTA,
  NCCL_GIN_RESOURCE_SHARING_THREAD
};
#define NCCL_GIN_BACKEND_MASK_ALL 0xffffffffu

typedef struct {
  uint64_t opaque[2];
} ncclGinRequest_t;

namespace devcomm::nccl {

/// Refuses signals and counters that were not asked for.
template <class Index>
NCCL_DEVICE_INLINE Index signal_in([[maybe_unused]] const ncclDevComm& comm, Index index) {
  DEVCOMM_ASSERT_OF(index < comm.ginContexts.signals, "GIN signal", index, comm.ginContexts.signals,
                    "the signal is past those that were asked for: ask for more by ginSignalCount");
  return index;
}
template <class Index>
NCCL_DEVICE_INLINE Index counter_in([[maybe_unused]] const ncclDevComm& comm, Index index) {
  DEVCOMM_ASSERT_OF(index < comm.ginContexts.counters, "GIN counter", index, comm.ginContexts.counters,
                    "the counter is past those that were asked for: ask for more by ginCounterCount");
  return index;
}

NCCL_DEVICE_INLINE gin::no_action action_of(const ncclDevComm&, ncclGin_None) { return {}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_StrongSignalInc a) { return {signal_in(comm, a.signal), 1}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_StrongSignalAdd a) { return {signal_in(comm, a.signal), a.value}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_WeakSignalInc a) { return {signal_in(comm, a.signal), 1, gin::strength::weak}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_WeakSignalAdd a) { return {signal_in(comm, a.signal), a.value, gin::strength::weak}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_SignalInc a) { return {signal_in(comm, a.signal), 1}; }
NCCL_DEVICE_INLINE gin::signal_add action_of(const ncclDevComm& comm, ncclGin_SignalAdd a) { return {signal_in(comm, a.signal), a.value}; }
template <class At, devcomm::detail::enable_if_t<sizeof(At::signalOffset) != 0> = 0>
NCCL_DEVICE_INLINE gin::no_action action_of(const ncclDevComm&, At) {
  static_assert(sizeof(At) == 0,
                "devcomm has no signals at an address of a window: take a signal of the context, ncclGin_StrongSignalInc "
                "or its like, and ask for it by ginSignalCount");
  return {};
}
NCCL_DEVICE_INLINE gin::counter_increment action_of(const ncclDevComm& comm, ncclGin_WeakCounterInc a) { return {counter_in(comm, a.counter)}; }
NCCL_DEVICE_INLINE gin::counter_increment action_of(const ncclDevComm& comm, ncclGin_CounterInc a) { return {counter_in(comm, a.counter)}; }

}  // namespace devcomm::nccl

/// One of the communicator's contexts. Any number of threads of a GPU may use one at once, whatever the sharing mode.
template <unsigned BackendMask>
struct ncclGin_BackendMask {
  const ncclDevComm& comm;
  uint32_t nConnections = 1;
  uint32_t connectionId = 0;
  uint32_t contextId;
  ncclGinResourceSharingMode resourceSharingMode;

  NCCL_DEVICE_INLINE ncclGin_BackendMask(const ncclDevComm& comm_, int contextIndex,
                                         ncclGinResourceSharingMode mode = NCCL_GIN_RESOURCE_SHARING_GPU)
      : comm(comm_), contextId(static_cast<uint32_t>(contextIndex)), resourceSharingMode(mode) {
    DEVCOMM_ASSERT(comm.ginContexts.count != 0,
                   "the device communicator has no GIN contexts: set ncclDevCommRequirements::ginConnectionType to "
                   "NCCL_GIN_CONNECTION_FULL");
    DEVCOMM_ASSERT_OF(contextId < comm.ginContexts.count, "GIN context", contextId, comm.ginContexts.count,
                      "the context is past those that there are: ask for more by ginContextCount, or take it modulo "
                      "ncclDevComm::ginContextCount");
  }

  /// `bytes` from this rank's window to that of member `peer` of `team`.
  template <class Remote = ncclGin_None, class Local = ncclGin_None, class Coop = ncclCoopThread,
            class Descriptor = ncclGin_None, class Segment = ncclGin_SegmentDevice>
  NCCL_DEVICE_INLINE void put(ncclTeam team, int peer, ncclWindow_t dstWin, size_t dstOffset, ncclWindow_t srcWin,
                              size_t srcOffset, size_t bytes, Remote remoteAction = {}, Local localAction = {},
                              Coop coop = {}, Descriptor = {}, cuda::thread_scope = cuda::thread_scope_thread,
                              cuda::thread_scope = cuda::thread_scope_device, uint32_t optFlags = ncclGinOptFlagsDefault,
                              Segment = {}) const {
    static_cast<void>(optFlags);
    use(coop).put(world(team, peer), devcomm::nccl::window_of(dstWin), dstOffset, devcomm::nccl::window_of(srcWin),
                  srcOffset, bytes, devcomm::nccl::action_of(comm, remoteAction), devcomm::nccl::action_of(comm, localAction));
  }
  /// `nElts` elements.
  template <class T, class Remote = ncclGin_None, class Local = ncclGin_None, class Coop = ncclCoopThread,
            class Descriptor = ncclGin_None, class Segment = ncclGin_SegmentDevice>
  NCCL_DEVICE_INLINE void put(ncclTeam team, int peer, ncclSymPtr<T> dst, ncclSymPtr<T> src, size_t nElts,
                              Remote remoteAction = {}, Local localAction = {}, Coop coop = {}, Descriptor descriptor = {},
                              cuda::thread_scope given = cuda::thread_scope_thread,
                              cuda::thread_scope required = cuda::thread_scope_device,
                              uint32_t optFlags = ncclGinOptFlagsDefault, Segment segment = {}) const {
    put(team, peer, dst.window, dst.offset, src.window, src.offset, nElts * sizeof(T), remoteAction, localAction, coop,
        descriptor, given, required, optFlags, segment);
  }
  /// One element of at most 8 bytes: that of thread 0 of the group.
  template <class T, class Remote = ncclGin_None, class Coop = ncclCoopThread, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void putValue(ncclTeam team, int peer, ncclWindow_t dstWin, size_t dstOffset, T value,
                                   Remote remoteAction = {}, Coop coop = {}, Descriptor = {},
                                   cuda::thread_scope = cuda::thread_scope_thread,
                                   cuda::thread_scope = cuda::thread_scope_device,
                                   uint32_t optFlags = ncclGinOptFlagsDefault) const {
    static_cast<void>(optFlags);
    use(coop).put_value(world(team, peer), devcomm::sym_ptr<T>{devcomm::nccl::window_of(dstWin), dstOffset}, value,
                        devcomm::nccl::action_of(comm, remoteAction));
  }
  template <class T, class Remote = ncclGin_None, class Coop = ncclCoopThread, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void putValue(ncclTeam team, int peer, ncclSymPtr<T> dst, T value, Remote remoteAction = {},
                                   Coop coop = {}, Descriptor descriptor = {},
                                   cuda::thread_scope given = cuda::thread_scope_thread,
                                   cuda::thread_scope required = cuda::thread_scope_device,
                                   uint32_t optFlags = ncclGinOptFlagsDefault) const {
    putValue(team, peer, dst.window, dst.offset, value, remoteAction, coop, descriptor, given, required, optFlags);
  }
  /// `bytes` from the peer's window to this rank's; they may be read after a flush.
  template <class Coop = ncclCoopThread, class Descriptor = ncclGin_None, class Segment = ncclGin_SegmentDevice>
  NCCL_DEVICE_INLINE void get(ncclTeam team, int peer, ncclWindow_t remoteWin, size_t remoteOffset, ncclWindow_t localWin,
                              size_t localOffset, size_t bytes, Coop coop = {}, Descriptor = {},
                              uint32_t optFlags = ncclGinOptFlagsDefault, Segment = {}) const {
    static_cast<void>(optFlags);
    use(coop).get(world(team, peer), devcomm::sym_ptr<char>{devcomm::nccl::window_of(localWin), localOffset},
                  devcomm::sym_ptr<char>{devcomm::nccl::window_of(remoteWin), remoteOffset}, bytes);
  }
  /// An action without data.
  template <class Remote, class Coop = ncclCoopThread, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void signal(ncclTeam team, int peer, Remote remoteAction, Coop coop = {}, Descriptor = {},
                                 cuda::thread_scope = cuda::thread_scope_thread,
                                 cuda::thread_scope = cuda::thread_scope_device,
                                 uint32_t optFlags = ncclGinOptFlagsDefault) const {
    static_cast<void>(optFlags);
    use(coop).signal(world(team, peer), devcomm::nccl::action_of(comm, remoteAction));
  }

  /// What was posted to the context before, by anybody, is complete on this rank.
  template <class Coop, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void flush(Coop coop, cuda::memory_order = cuda::memory_order_acquire, Descriptor = {}) const {
    use(coop).flush();
  }
  /// The same with a limit, as of all waits: one outcome for the group, and after `ncclTimeout` it may be repeated.
  template <class Coop, class Descriptor>
  NCCL_DEVICE_INLINE ncclResult_t flush(Coop coop, cuda::memory_order, Descriptor, uint64_t timeoutCycles) const {
    coop.sync();  // what the group has posted
    auto net = use(waiting(coop));
    return outcome_of(coop, net.wait_for(net.begin_flush(), devcomm::nccl::nanoseconds_of(comm, timeoutCycles)));
  }
  template <class Coop = ncclCoopThread, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void flushAsync(ncclTeam team, uint32_t peer, ncclGinRequest_t* outRequest, Coop coop = {},
                                     uint32_t optFlags = ncclGinOptFlagsDefault, Descriptor = {}) const {
    static_cast<void>(optFlags);
    const devcomm::gin::flush_ticket begun = use(coop).begin_flush(world(team, static_cast<int>(peer)));
    outRequest->opaque[0] = uint64_t{static_cast<uint32_t>(begun.peer)} << 32 | begun.word;
    outRequest->opaque[1] = begun.number;
  }
  template <class Coop = ncclCoopThread, class Descriptor = ncclGin_None>
  NCCL_DEVICE_INLINE void wait(ncclGinRequest_t& request, Coop coop = {}, Descriptor = {},
                               cuda::memory_order = cuda::memory_order_acquire) const {
    use(coop).wait(ticket_of(request));
  }
  template <class Coop, class Descriptor>
  NCCL_DEVICE_INLINE ncclResult_t wait(ncclGinRequest_t& request, Coop coop, Descriptor, cuda::memory_order,
                                       uint64_t timeoutCycles) const {
    return outcome_of(coop, use(waiting(coop))
                                .wait_for(ticket_of(request), devcomm::nccl::nanoseconds_of(comm, timeoutCycles)));
  }

  /// Signals and counters only grow; of those of less than 64 bits the sign of the difference decides.
  NCCL_DEVICE_INLINE uint64_t readSignal(ncclGinSignal_t index, int bits = 64,
                                         cuda::memory_order = cuda::memory_order_acquire) const {
    return signal_now(devcomm::nccl::signal_in(comm, index)) & mask_of(bits);
  }
  template <class Coop>
  NCCL_DEVICE_INLINE void waitSignal(Coop coop, ncclGinSignal_t index, uint64_t least, int bits = 64,
                                     cuda::memory_order = cuda::memory_order_acquire) const {
    auto net = use(coop);
    devcomm::nccl::signal_in(comm, index);
    net.wait_signal(index, bits >= 64 ? least : next_of(signal_now(index), least, bits));
  }
  template <class Coop>
  NCCL_DEVICE_INLINE ncclResult_t waitSignal(Coop coop, ncclGinSignal_t index, uint64_t least, int bits,
                                             cuda::memory_order, uint64_t timeoutCycles) const {
    devcomm::nccl::signal_in(comm, index);
    const uint64_t value = bits >= 64 ? least : next_of(signal_now(index), least, bits);
    return outcome_of(coop, use(waiting(coop))
                                .wait_signal_for(index, value, devcomm::nccl::nanoseconds_of(comm, timeoutCycles)));
  }
  /// 0 from now on, and its shadow. *Requires* that nothing is on its way to it.
  NCCL_DEVICE_INLINE void resetSignal(ncclGinSignal_t index) const {
    use(ncclCoopThread()).reset_signal(devcomm::nccl::signal_in(comm, index));
    *getSignalShadowPtr(index) = 0;
  }
  NCCL_DEVICE_INLINE uint64_t readCounter(ncclGinCounter_t index, int bits = 56,
                                          cuda::memory_order = cuda::memory_order_acquire) const {
    return counter_now(devcomm::nccl::counter_in(comm, index)) & mask_of(bits);
  }
  template <class Coop>
  NCCL_DEVICE_INLINE void waitCounter(Coop coop, ncclGinCounter_t index, uint64_t least, int bits = 56,
                                      cuda::memory_order = cuda::memory_order_acquire) const {
    auto net = use(coop);
    devcomm::nccl::counter_in(comm, index);
    net.wait_counter(index, next_of(counter_now(index), least, bits));
  }
  template <class Coop>
  NCCL_DEVICE_INLINE ncclResult_t waitCounter(Coop coop, ncclGinCounter_t index, uint64_t least, int bits,
                                              cuda::memory_order, uint64_t timeoutCycles) const {
    devcomm::nccl::counter_in(comm, index);
    const uint64_t value = next_of(counter_now(index), least, bits);
    return outcome_of(coop, use(waiting(coop))
                                .wait_counter_for(index, value, devcomm::nccl::nanoseconds_of(comm, timeoutCycles)));
  }
  NCCL_DEVICE_INLINE void resetCounter(ncclGinCounter_t index) const { use(ncclCoopThread()).reset_counter(devcomm::nccl::counter_in(comm, index)); }

  /// A word of the kernels' own beside each signal of each context.
  NCCL_DEVICE_INLINE uint64_t* getSignalShadowPtr(ncclGinSignal_t index) const {
    return comm.base.buffer(comm.ginShadows).local() + uint64_t{contextId} * comm.ginContexts.signals + index;
  }
  NCCL_DEVICE_INLINE void increaseSignalShadow(ncclGinSignal_t index, uint64_t delta) const {
    devcomm::arch::fetch_add<devcomm::memory_order::relaxed, devcomm::scope::block>(getSignalShadowPtr(index), delta);
  }
  template <class Coop>
  NCCL_DEVICE_INLINE void waitSignalMeetShadow(Coop coop, ncclGinSignal_t index, int bits = 64,
                                               cuda::memory_order order = cuda::memory_order_acquire) const {
    coop.sync();  // what the group has added
    waitSignal(coop, index, shadow(index), bits, order);
  }
  /// Waits until the signal is past its shadow by `leastDelta`, and makes the shadow the signal: `before` is what it was,
  /// `delta` how far it went.
  template <class Coop, class Uint>
  NCCL_DEVICE_INLINE void waitSignalFollowShadow(Coop coop, ncclGinSignal_t index, Uint leastDelta, Uint* before,
                                                 Uint* delta, int bits = 64,
                                                 cuda::memory_order order = cuda::memory_order_acquire) const {
    coop.sync();
    const uint64_t begun = shadow(index);
    waitSignal(coop, index, begun + leastDelta, bits, order);
    if (coop.thread_rank() == 0)
      devcomm::arch::store<devcomm::memory_order::relaxed, devcomm::scope::device>(getSignalShadowPtr(index),
                                                                                   signal_now(index));
    coop.sync();
    *before = static_cast<Uint>(begun);
    *delta = static_cast<Uint>((shadow(index) - begun) & mask_of(bits));
    coop.sync();
  }

 private:
  template <class Coop>
  NCCL_DEVICE_INLINE devcomm::gin::context<devcomm::nccl::group_t<Coop>> use(Coop coop) const {
    return {devcomm::nccl::group_of(coop), comm.base, comm.ginContexts, contextId};
  }
  /// As this thread sees it. A group waits by its first thread.
  NCCL_DEVICE_INLINE uint64_t signal_now(ncclGinSignal_t index) const {
    return use(ncclCoopThread()).read_signal(index);
  }
  NCCL_DEVICE_INLINE uint64_t counter_now(ncclGinCounter_t index) const {
    return use(ncclCoopThread()).read_counter(index);
  }
  NCCL_DEVICE_INLINE devcomm::gin::flush_ticket ticket_of(const ncclGinRequest_t& request) const {
    return {static_cast<uint32_t>(request.opaque[0]), static_cast<int32_t>(request.opaque[0] >> 32), request.opaque[1],
            contextId};
  }
  /// Which group waits with a limit: the threads of one that cannot vote, such as CUDA's grid, each wait for themselves.
  template <class Coop>
  static constexpr bool votes = devcomm::detail::can_vote<devcomm::nccl::group_t<Coop>>;
  template <class Coop>
  NCCL_DEVICE_INLINE static auto waiting(const Coop& coop) {
    if constexpr (votes<Coop>) {
      return coop;
    } else {
      return ncclCoopThread();
    }
  }
  template <class Coop>
  NCCL_DEVICE_INLINE static ncclResult_t outcome_of(Coop& coop, devcomm::status outcome) {
    if constexpr (!votes<Coop>) coop.sync();
    return devcomm::nccl::result_of(outcome);
  }
  NCCL_DEVICE_INLINE int world(ncclTeam team, int peer) const { return ncclTeamRankToWorld(comm, team, peer); }
  NCCL_DEVICE_INLINE uint64_t shadow(ncclGinSignal_t index) const {
    return devcomm::arch::load<devcomm::memory_order::relaxed, devcomm::scope::device>(getSignalShadowPtr(index));
  }
  NCCL_DEVICE_INLINE static constexpr uint64_t mask_of(int bits) {
    return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  }
  /// The value that is waited for, of all 64 bits, where `least` has the lower ones.
  NCCL_DEVICE_INLINE static constexpr uint64_t next_of(uint64_t value, uint64_t least, int bits) {
    const uint64_t mask = mask_of(bits), past = (value - least) & mask;
    return past <= mask / 2 ? value - past : value + ((least - value) & mask);
  }
};
using ncclGin = ncclGin_BackendMask<NCCL_GIN_BACKEND_MASK_ALL>;
template <ncclGinType_t type>
using ncclGin_BackendOne = ncclGin_BackendMask<1u << static_cast<unsigned>(type)>;

#endif
