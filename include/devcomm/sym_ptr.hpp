/// \file sym_ptr.hpp
/// A typed pointer into a symmetric window: one offset, an address on every rank.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/window.hpp>

namespace devcomm {

/// Names element `*this` of a window on all ranks at once. Arithmetic is in elements of `T`.
template <class T>
struct sym_ptr {
  window memory;
  uint64_t offset;  ///< bytes from the start of the window

  /// This rank's address.
  DEVCOMM_HOST_DEVICE T* local() const { return reinterpret_cast<T*>(memory.local_pointer(offset)); }

  /// Address on LSA member `member`. *Requires* `0 <= member < memory.lsa_size`.
  DEVCOMM_HOST_DEVICE T* lsa(int member) const { return reinterpret_cast<T*>(memory.lsa_pointer(member, offset)); }

  /// Address on a world rank, or null when that rank cannot be reached by load and store.
  DEVCOMM_HOST_DEVICE T* peer(int world_rank) const {
    return reinterpret_cast<T*>(memory.peer_pointer(world_rank, offset));
  }

  /// The element on all LSA members at once. *Requires* `multimem/ptr.cuh`.
  template <class Mode = devcomm::multimem::automatic>
  DEVCOMM_DEVICE devcomm::multimem::ptr<T, Mode> multimem() const;

  /// The same address as elements of another type.
  template <class U>
  DEVCOMM_HOST_DEVICE sym_ptr<U> as() const {
    return {memory, offset};
  }

  DEVCOMM_HOST_DEVICE sym_ptr& operator+=(int64_t elements) {
    offset += static_cast<uint64_t>(elements) * sizeof(T);
    return *this;
  }
  DEVCOMM_HOST_DEVICE sym_ptr& operator-=(int64_t elements) { return *this += -elements; }
  DEVCOMM_HOST_DEVICE sym_ptr& operator++() { return *this += 1; }
  DEVCOMM_HOST_DEVICE sym_ptr& operator--() { return *this -= 1; }
  DEVCOMM_HOST_DEVICE friend sym_ptr operator+(sym_ptr p, int64_t elements) { return p += elements; }
  DEVCOMM_HOST_DEVICE friend sym_ptr operator-(sym_ptr p, int64_t elements) { return p -= elements; }

  /// Elements from `b` to `a`. *Requires* both to point into one window.
  DEVCOMM_HOST_DEVICE friend int64_t operator-(const sym_ptr& a, const sym_ptr& b) {
    DEVCOMM_ASSERT(a.memory.id == b.memory.id, "difference of pointers into two windows");
    return static_cast<int64_t>(a.offset - b.offset) / static_cast<int64_t>(sizeof(T));
  }
  DEVCOMM_HOST_DEVICE friend bool operator==(const sym_ptr& a, const sym_ptr& b) {
    return a.memory.id == b.memory.id && a.offset == b.offset;
  }
  DEVCOMM_HOST_DEVICE friend bool operator!=(const sym_ptr& a, const sym_ptr& b) { return !(a == b); }
};

}  // namespace devcomm
