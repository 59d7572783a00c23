/// \file multimem.h
/// Sums and copies by multicast addresses: a load from one is the sum of what all members of its team have there, a store
/// to one reaches them all. None of them synchronizes.
///
/// They move 4 bytes at least: where a multicast address is written, range and addresses are multiples of 4 bytes. The
/// switch sums `float`, `double`, integers of 4 and 8 bytes and, in `float`, 16-bit types; 8-bit floats on sm_100a.
/// `Unroll` is accepted and changes nothing.
#ifndef DEVCOMM_NCCL_DEVICE_MULTIMEM_H_
#define DEVCOMM_NCCL_DEVICE_MULTIMEM_H_

#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/multimem/forms.cuh>
#include <nccl_device/ptr.h>
#include <nccl_device/reduce_copy.h>

namespace devcomm::nccl {

/// Which side of a sum or copy is of multicast addresses.
enum class multimem_side { sources, destinations, both };

template <multimem_side Side>
inline constexpr bool loads_multimem = Side != multimem_side::destinations;
template <multimem_side Side>
inline constexpr bool stores_multimem = Side != multimem_side::sources;

/// As devcomm's `reduced_range`, in units of 16 bytes and words at the ends of the range.
template <multimem_side Side, class T, class Sources, class Destinations, class Operator>
struct multimem_range {
  static constexpr int word_bytes = sizeof(T) == 8 ? 8 : 4;
  static constexpr int per_word = word_bytes / static_cast<int>(sizeof(T));

  uint64_t rank;
  uint64_t threads;
  int source_count;
  const Sources& sources;
  int destination_count;
  const Destinations& destinations;
  uint64_t count;
  const Operator& op;

  template <int Bytes>
  DEVCOMM_DEVICE devcomm::detail::unit<T, Bytes> load(const T* from) const {
    using unit = devcomm::detail::unit<T, Bytes>;
    if constexpr (loads_multimem<Side>) {
      devcomm::detail::check_multimem_target<T>();
      constexpr int widest = multimem::widest<T> < Bytes ? multimem::widest<T> : Bytes;
      unit value;
      DEVCOMM_UNROLL
      for (int at = 0; at < Bytes; at += widest) {
        const auto words =
            arch::multimem_load_reduce<devcomm::detail::multimem_operation::add, T, widest, true, memory_order::relaxed,
                                       scope::system>(reinterpret_cast<const char*>(from) + at);
        devcomm::detail::copy_bytes(value.data + at / static_cast<int>(sizeof(T)), &words, widest);
      }
      return value;
    } else {
      return devcomm::detail::load_unit<Bytes>(from);
    }
  }
  template <int Bytes>
  DEVCOMM_DEVICE void store(T* to, const devcomm::detail::unit<T, Bytes>& value) const {
    if constexpr (stores_multimem<Side>) {
      devcomm::detail::multimem_words<Bytes> words;
      devcomm::detail::copy_bytes(&words, &value, Bytes);
      arch::multimem_store<Bytes, true, memory_order::relaxed, scope::system>(reinterpret_cast<char*>(to), words);
    } else {
      devcomm::detail::store_unit<Bytes>(to, value);
    }
  }

  /// The units at element `i` of all sources, summed in their order, and `Unroll - 1` more, each `stride` elements on.
  template <int Bytes, int Unroll>
  DEVCOMM_DEVICE void move(uint64_t i, uint64_t stride) const {
    constexpr int per_unit = Bytes / static_cast<int>(sizeof(T));
    accumulator_t<T> total[Unroll][per_unit];
    for (int s = 0; s < source_count; ++s) {
      devcomm::detail::unit<T, Bytes> values[Unroll];
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u) values[u] = load<Bytes>(sources(s) + i + static_cast<uint64_t>(u) * stride);
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u) {
        DEVCOMM_UNROLL
        for (int e = 0; e < per_unit; ++e) {
          const auto value = static_cast<accumulator_t<T>>(values[u].data[e]);
          total[u][e] = s == 0 ? value : op(total[u][e], value);
        }
      }
    }
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      devcomm::detail::unit<T, Bytes> result;
      DEVCOMM_UNROLL
      for (int e = 0; e < per_unit; ++e) result.data[e] = static_cast<T>(total[u][e]);
      for (int d = 0; d < destination_count; ++d)
        store<Bytes>(destinations(d) + i + static_cast<uint64_t>(u) * stride, result);
    }
  }
  /// The last elements, fewer than a word: the others of the word that is loaded are not of the range.
  DEVCOMM_DEVICE void move_rest(uint64_t i, int left) const {
    accumulator_t<T> total[per_word];
    for (int s = 0; s < source_count; ++s) {
      const auto word = load<word_bytes>(sources(s) + i);
      for (int e = 0; e < left; ++e) {
        const auto value = static_cast<accumulator_t<T>>(word.data[e]);
        total[e] = s == 0 ? value : op(total[e], value);
      }
    }
    for (int d = 0; d < destination_count; ++d)
      for (int e = 0; e < left; ++e) destinations(d)[i + static_cast<uint64_t>(e)] = static_cast<T>(total[e]);
  }

  /// In units of `Bytes` bytes; 0: the addresses have no 4 bytes in common.
  template <int Bytes>
  DEVCOMM_DEVICE void run() const {
    if constexpr (Bytes == 0) {
      DEVCOMM_ASSERT(false, "a multicast address and the other address lie differently in their words of 4 bytes");
    } else {
      run_units<Bytes>();
    }
  }
  template <int Bytes>
  DEVCOMM_DEVICE void run_units() const {
    constexpr uint64_t per_unit = Bytes / sizeof(T);
    constexpr int unroll = 4;
    const auto range = devcomm::detail::split_range::of<Bytes>(sources(0), count);
    const uint64_t end = range.head + range.units * per_unit;
    for (uint64_t i = rank * per_word; i < range.head; i += threads * per_word) move<word_bytes, 1>(i, 0);
    uint64_t u = rank;
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move<Bytes, unroll>(range.head + u * per_unit, threads * per_unit);
    for (; u < range.units; u += threads) move<Bytes, 1>(range.head + u * per_unit, 0);
    for (uint64_t i = end + rank * per_word; i < count; i += threads * per_word) {
      if (i + per_word <= count) {
        move<word_bytes, 1>(i, 0);
      } else if constexpr (!stores_multimem<Side> && per_word > 1) {
        move_rest(i, static_cast<int>(count - i));
      }
    }
  }
};

template <multimem_side Side, class T, class Coop, class Sources, class Destinations, class Operator, class Int>
DEVCOMM_DEVICE void multimem_reduce_copy(const Coop& coop, const Sources& src, int nSrc, const Destinations& dst,
                                         int nDst, Int count, Operator op) {
  static_assert(arch::has_multimem || sizeof(T) == 0,
                "this target has no multimem: compile for sm_90 or later with CUDA 12.2 or later");
  if constexpr (loads_multimem<Side>) devcomm::detail::check_load_reduce<sum, T, multimem::widest<T>>();
  using range = multimem_range<Side, T, Sources, Destinations, Operator>;
  const auto elements = static_cast<uint64_t>(count);
  devcomm::detail::alignment<T> common(src(0));
  [[maybe_unused]] uintptr_t ends = reinterpret_cast<uintptr_t>(src(0)) | elements * sizeof(T);
  for (int s = 1; s < nSrc; ++s) common.include(src(s));
  for (int d = 0; d < nDst; ++d) common.include(dst(d));
  if constexpr (stores_multimem<Side>) {
    DEVCOMM_ASSERT(ends % range::word_bytes == 0,
                   "a multicast address is written in 4 bytes at least: begin and end at multiples of 4 bytes");
  } else {
    DEVCOMM_ASSERT(reinterpret_cast<uintptr_t>(src(0)) % range::word_bytes == 0,
                   "a multicast address is read in 4 bytes at least: begin at a multiple of 4 bytes");
  }
  const auto& group = group_of(coop);
  common.with_widest(range{static_cast<uint32_t>(group.thread_rank()), static_cast<uint32_t>(group.size()), nSrc, src, nDst,
                           dst, elements, op});
}

}  // namespace devcomm::nccl

// --- between any addresses ---

template <class T, class Coop, class Sources, class Destinations, class RedOp, class Int,
          int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst,
                                                  RedOp redOp, Int count) {
  devcomm::nccl::multimem_reduce_copy<devcomm::nccl::multimem_side::destinations, T>(coop, src, nSrc, dst, nDst, count,
                                                                                    redOp);
}
template <class T, class Coop, class Sources, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst,
                                                     Int count) {
  ncclLsaReduceMultimemCopy<T>(coop, src, nSrc, dst, nDst, devcomm::sum{}, count);
}
template <class T, class Coop, class Sources, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst,
                                                     Int count) {
  devcomm::nccl::multimem_reduce_copy<devcomm::nccl::multimem_side::sources, T>(coop, src, nSrc, dst, nDst, count,
                                                                               devcomm::sum{});
}
template <class T, class Coop, class Sources, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst,
                                                          Int count) {
  devcomm::nccl::multimem_reduce_copy<devcomm::nccl::multimem_side::both, T>(coop, src, nSrc, dst, nDst, count,
                                                                            devcomm::sum{});
}

// --- the sum of a team, for this rank ---

template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, T* mcSrc, T* dst, Int count) {
  ncclMultimemReduceSumLsaCopy<T>(coop, devcomm::nccl::one_place<T>{mcSrc}, 1, devcomm::nccl::one_place<T>{dst}, 1,
                                  count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclSymPtr<T> src, T* dst, Int count, ncclMultimemHandle mm) {
  ncclMultimemReduceSum<T>(coop, src.multimemPtr(mm), dst, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, T* dst, Int count,
                                              ncclMultimemHandle mm) {
  ncclMultimemReduceSum<T>(coop, ncclSymPtr<T>(src, srcOffset), dst, count, mm);
}

// --- from this rank to a team ---

template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, const T* src, T* mcDst, Int count) {
  ncclLsaReduceSumMultimemCopy<T>(coop, devcomm::nccl::one_place<const T>{src}, 1, devcomm::nccl::one_place<T>{mcDst}, 1,
                                  count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, const T* src, ncclSymPtr<T> dst, Int count, ncclMultimemHandle mm) {
  ncclMultimemCopy<T>(coop, src, dst.multimemPtr(mm), count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, const T* src, ncclWindow_t dst, size_t dstOffset, Int count,
                                         ncclMultimemHandle mm) {
  ncclMultimemCopy<T>(coop, src, ncclSymPtr<T>(dst, dstOffset), count, mm);
}

// --- the sum of a team, for a team ---

template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, T* mcSrc, T* mcDst, Int count) {
  ncclMultimemReduceSumMultimemCopy<T>(coop, devcomm::nccl::one_place<T>{mcSrc}, 1, devcomm::nccl::one_place<T>{mcDst},
                                       1, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclMultimemHandle srcMm,
                                                  ncclSymPtr<T> dst, ncclMultimemHandle dstMm, Int count) {
  ncclMultimemReduceSumCopy<T>(coop, src.multimemPtr(srcMm), dst.multimemPtr(dstMm), count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                                  ncclMultimemHandle srcMm, ncclWindow_t dst, size_t dstOffset,
                                                  ncclMultimemHandle dstMm, Int count) {
  ncclMultimemReduceSumCopy<T>(coop, ncclSymPtr<T>(src, srcOffset), srcMm, ncclSymPtr<T>(dst, dstOffset), dstMm, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam, T* mcDst,
                                                     Int count) {
  ncclLsaReduceSumMultimemCopy<T>(coop, devcomm::nccl::on_members<T>{src.window, src.offset, srcTeam}, srcTeam.nRanks,
                                  devcomm::nccl::one_place<T>{mcDst}, 1, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam, ncclSymPtr<T> dst,
                                                     ncclMultimemHandle dstMm, Int count) {
  ncclLsaReduceSumMultimemCopy<T>(coop, src, srcTeam, dst.multimemPtr(dstMm), count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, T* mcSrc, ncclSymPtr<T> dst, ncclTeam dstTeam,
                                                     Int count) {
  ncclMultimemReduceSumLsaCopy<T>(coop, devcomm::nccl::one_place<T>{mcSrc}, 1,
                                  devcomm::nccl::on_members<T>{dst.window, dst.offset, dstTeam}, dstTeam.nRanks, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, ncclSymPtr<T> src, ncclMultimemHandle srcMm,
                                                     ncclSymPtr<T> dst, ncclTeam dstTeam, Int count) {
  ncclMultimemReduceSumLsaCopy<T>(coop, src.multimemPtr(srcMm), dst, dstTeam, count);
}

#endif
