/// \file ptr.h
/// Addresses in windows.
#ifndef DEVCOMM_NCCL_DEVICE_PTR_H_
#define DEVCOMM_NCCL_DEVICE_PTR_H_

#include <devcomm/assert.hpp>
#include <devcomm/window.hpp>
#include <nccl_device/core.h>

namespace devcomm::nccl {

DEVCOMM_DEVICE inline const window& window_of(ncclWindow_t handle) {
  DEVCOMM_ASSERT(handle != nullptr,
                 "the window is null: ncclCommWindowRegister has not been called for it, or in a group that has not ended");
  return handle->window;
}
/// The multicast address of a window for a team with multimem.
DEVCOMM_DEVICE inline char* multicast_of(const ncclWindow_vidmem& of, size_t offset, ncclMultimemHandle team) {
  DEVCOMM_ASSERT(team.mcBasePtr != nullptr,
                 "the multimem handle is empty: ask for lsaMultimem, or for a team's in teamRequirementsList");
  char* const begin = of.multicast[team_number(team)];
  DEVCOMM_ASSERT(begin != nullptr,
                 "the window has no multicast address: its memory comes from ncclMemAlloc on every rank, and begins at "
                 "one offset in it");
  DEVCOMM_ASSERT_OF(offset <= of.window.bytes, "byte", offset, of.window.bytes,
                    "window offset is past the window's end");
  return begin + offset;
}
/// Where a part of the resource window begins.
DEVCOMM_HOST_DEVICE constexpr uint64_t offset_of(ncclDevResourceHandle_t handle) { return uint64_t{handle} * 128; }

}  // namespace devcomm::nccl

NCCL_DEVICE_INLINE void* ncclGetLocalPointer(ncclWindow_t w, size_t offset) {
  return devcomm::nccl::window_of(w).local_pointer(offset);
}
/// Of a member of the LSA team.
NCCL_DEVICE_INLINE void* ncclGetLsaPointer(ncclWindow_t w, size_t offset, int peer) {
  return devcomm::nccl::window_of(w).lsa_pointer(peer, offset);
}
/// Of a world rank; null where it is not in the LSA team.
NCCL_DEVICE_INLINE void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, int peer) {
  return devcomm::nccl::window_of(w).peer_pointer(peer, offset);
}
/// Of a member of a team; null where it is not in the LSA team.
NCCL_DEVICE_INLINE void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, ncclTeam team, int peer) {
  const devcomm::window& window = devcomm::nccl::window_of(w);
  return window.peer_pointer(window.world_rank(window.lsa_rank) + (peer - team.rank) * team.stride, offset);
}

/// Whether `ncclGetPeerPointer` has an address.
NCCL_HOST_DEVICE_INLINE bool ncclDevCommCanGetPeerPointer(const ncclDevComm& comm, int peer) {
  return comm.base.resources.lsa_member(peer) >= 0;
}
NCCL_HOST_DEVICE_INLINE bool ncclDevCommCanGetPeerPointer(const ncclDevComm& comm, ncclTeam team, int peer) {
  return ncclDevCommCanGetPeerPointer(comm, ncclTeamRankToWorld(comm, team, peer));
}

/// Of all members of a team at once, for multimem instructions.
NCCL_DEVICE_INLINE void* ncclGetMultimemPointer(ncclWindow_t w, size_t offset, ncclMultimemHandle mm) {
  static_cast<void>(devcomm::nccl::window_of(w));
  return devcomm::nccl::multicast_of(*w, offset, mm);
}
NCCL_DEVICE_INLINE void* ncclGetLsaMultimemPointer(ncclWindow_t w, size_t offset, const ncclDevComm& comm) {
  return ncclGetMultimemPointer(w, offset, comm.lsaMultimem);
}

NCCL_HOST_DEVICE_INLINE size_t ncclGetResourceBufferOffset(ncclDevResourceHandle_t h) {
  return devcomm::nccl::offset_of(h);
}
NCCL_DEVICE_INLINE void* ncclGetResourceBufferLocalPointer(const ncclDevComm& comm, ncclDevResourceHandle_t h) {
  return comm.base.resources.local_pointer(devcomm::nccl::offset_of(h));
}
NCCL_DEVICE_INLINE void* ncclGetResourceBufferLsaPointer(const ncclDevComm& comm, ncclDevResourceHandle_t h, int peer) {
  return comm.base.resources.lsa_pointer(peer, devcomm::nccl::offset_of(h));
}
NCCL_DEVICE_INLINE void* ncclGetResourceBufferPeerPointer(const ncclDevComm& comm, ncclDevResourceHandle_t h,
                                                          ncclTeam team, int peer) {
  return comm.base.resources.peer_pointer(ncclTeamRankToWorld(comm, team, peer), devcomm::nccl::offset_of(h));
}
NCCL_DEVICE_INLINE void* ncclGetResourceBufferMultimemPointer(const ncclDevComm& comm, ncclDevResourceHandle_t h,
                                                              ncclMultimemHandle mm) {
  return ncclGetMultimemPointer(comm.resourceWindow, devcomm::nccl::offset_of(h), mm);
}
NCCL_DEVICE_INLINE void* ncclGetResourceBufferLsaMultimemPointer(const ncclDevComm& comm, ncclDevResourceHandle_t h) {
  return ncclGetResourceBufferMultimemPointer(comm, h, comm.lsaMultimem);
}

/// Element `*this` of a window on every rank. Arithmetic is in elements.
template <class T>
struct ncclSymPtr {
  using ElementType = T;
  ncclWindow_t window;
  size_t offset;  ///< bytes

  NCCL_HOST_DEVICE_INLINE constexpr ncclSymPtr(ncclWindow_t of = nullptr, size_t begin = 0)
      : window(of), offset(begin) {}

  template <class U>
  NCCL_HOST_DEVICE_INLINE operator ncclSymPtr<U>() const {
    return {window, offset};
  }
  template <class Int>
  NCCL_HOST_DEVICE_INLINE ncclSymPtr& operator+=(Int elements) {
    offset += static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
  template <class Int>
  NCCL_HOST_DEVICE_INLINE ncclSymPtr& operator-=(Int elements) {
    offset -= static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
  template <class Int>
  NCCL_HOST_DEVICE_INLINE friend ncclSymPtr operator+(ncclSymPtr p, Int elements) {
    return p += elements;
  }
  template <class Int>
  NCCL_HOST_DEVICE_INLINE friend ncclSymPtr operator-(ncclSymPtr p, Int elements) {
    return p -= elements;
  }
  NCCL_HOST_DEVICE_INLINE friend ptrdiff_t operator-(ncclSymPtr a, ncclSymPtr b) {
    return static_cast<ptrdiff_t>(a.offset - b.offset) / static_cast<ptrdiff_t>(sizeof(T));
  }
  NCCL_HOST_DEVICE_INLINE friend bool operator==(ncclSymPtr a, ncclSymPtr b) {
    return a.window == b.window && a.offset == b.offset;
  }
  NCCL_HOST_DEVICE_INLINE friend bool operator!=(ncclSymPtr a, ncclSymPtr b) { return !(a == b); }

  NCCL_DEVICE_INLINE T* localPtr() const { return static_cast<T*>(ncclGetLocalPointer(window, offset)); }
  NCCL_DEVICE_INLINE T* lsaPtr(int peer) const { return static_cast<T*>(ncclGetLsaPointer(window, offset, peer)); }
  NCCL_DEVICE_INLINE T* peerPtr(int peer) const { return static_cast<T*>(ncclGetPeerPointer(window, offset, peer)); }
  NCCL_DEVICE_INLINE T* peerPtr(ncclTeam team, int peer) const {
    return static_cast<T*>(ncclGetPeerPointer(window, offset, team, peer));
  }
  NCCL_DEVICE_INLINE T* multimemPtr(ncclMultimemHandle mm) const {
    return static_cast<T*>(ncclGetMultimemPointer(window, offset, mm));
  }
  NCCL_DEVICE_INLINE T* lsaMultimemPtr(const ncclDevComm& comm) const { return multimemPtr(comm.lsaMultimem); }
};

NCCL_DEVICE_INLINE ncclSymPtr<char> ncclGetResourceBuffer(const ncclDevComm& comm, ncclDevResourceHandle_t h) {
  return {comm.resourceWindow, devcomm::nccl::offset_of(h)};
}

/// The window that has an address of this rank, the program's or the window's own; null where none has.
template <class Coop>
NCCL_DEVICE_INLINE ncclWindow_t ncclFindWindow(Coop, const ncclDevComm& comm, const void* ptr) {
  const auto* const at = static_cast<const char*>(ptr);
  const ncclWindowTable& table = *comm.windowTable;
  for (uint32_t i = 0; i < table.count; ++i) {
    const ncclWindowTable::entry& each = table.windows[i];
    const char* const own = each.window->window.local;
    if ((at >= each.begin && at < each.begin + each.bytes) || (at >= own && at < own + each.bytes)) return each.window;
  }
  return nullptr;
}

#endif
