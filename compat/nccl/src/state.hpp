/// \file state.hpp
/// What a communicator has, and how calls report what went wrong.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include "stream_operations.hpp"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace devcomm::host::detail {
class team_multicast;
}

namespace devcomm::nccl {

/// A value in memory of the current device, for kernels to read.
template <class T>
class on_device {
 public:
  explicit on_device(const T& value) : memory_(sizeof(T)) { write(value); }

  void write(const T& value) { check_cuda(cudaMemcpy(get(), &value, sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy"); }
  [[nodiscard]] T* get() const { return reinterpret_cast<T*>(memory_.get()); }

 private:
  device_bytes memory_;
};

/// Memory of every rank that kernels name by a handle.
class registered_window {
 public:
  /// `name` is for messages.
  registered_window(host::communicator& comm, void* user, std::size_t bytes, const std::string& name);
  registered_window(const registered_window&) = delete;
  registered_window& operator=(const registered_window&) = delete;
  ~registered_window();

  [[nodiscard]] ncclWindow_t handle() const { return record_.get(); }
  [[nodiscard]] void* user() const { return user_; }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }
  [[nodiscard]] const window& get() const { return memory_.window(); }
  /// For the team with that number. Throws `host::not_supported` where there is none.
  [[nodiscard]] char* multicast(int team) const;

  /// *Collective*: gives it a multicast address for that team, if its memory can have one.
  void add_multicast(host::communicator& comm, int number, const std::vector<int>& members);

 private:
  void* user_;
  host::symmetric_memory memory_;
  std::array<std::unique_ptr<host::detail::team_multicast>, ncclWindow_vidmem::max_teams> multicasts_;  // by team
  ncclWindow_vidmem shown_;
  on_device<ncclWindow_vidmem> record_;
};

struct owned_device_comm {
  host::device_communicator owner;
  std::unique_ptr<on_device<ncclWindow_vidmem>> resources;
};

/// Whether all `bytes` from `memory` on are of one `ncclMemAlloc`.
[[nodiscard]] bool is_from_mem_alloc(const void* memory, std::size_t bytes);

/// The window of a handle. Throws `host::invalid_argument` where there is none.
const registered_window& find_window(ncclWindow_t handle);

/// Communicators that have handles. `find_comm` keeps one while it is used, and throws `host::invalid_argument` that
/// names the call where there is none.
ncclComm_t adopt(std::unique_ptr<ncclComm> made);
std::shared_ptr<ncclComm> find_comm(ncclComm_t handle, const char* call);
void forget(ncclComm_t handle);

/// Calls `body`; turns an exception into NCCL's result, and keeps its text for `ncclGetLastError`, of `comm` too where it
/// is not null.
ncclResult_t guarded(ncclComm_t comm, const std::function<void()>& body);

/// Calls `body`, with the communicator's device current: now, or where a group has begun at its end, beside what others
/// of the group do. What a communicator is given comes in its order.
ncclResult_t submit(ncclComm_t comm, const std::function<void()>& body);
/// The same, behind what `submit` was given for the communicator in the group.
ncclResult_t submit_last(ncclComm_t comm, const std::function<void()>& body);

/// Throws `host::invalid_argument` with `what` where `given` is null.
void require(const void* given, const char* what);

}  // namespace devcomm::nccl

struct ncclComm {
  int device = 0;
  std::optional<devcomm::host::communicator> ranks;
  std::map<ncclWindow_t, std::unique_ptr<devcomm::nccl::registered_window>> windows;
  int registrations = 0;  // of windows so far
  std::map<const char*, devcomm::nccl::owned_device_comm> device_comms;  // by where their resources are
  std::unique_ptr<devcomm::nccl::on_device<ncclWindowTable>> table;      // of windows
  /// World ranks by the team's number; none where it has not been asked for.
  std::array<std::vector<int>, ncclWindow_vidmem::max_teams> multimem_teams;
  std::unique_ptr<devcomm::nccl::stream_operations> operations;
  std::string error;

  /// Throws where it has not been made yet, or no more.
  devcomm::host::communicator& get();
  /// *Collective*: the handle of a part of the LSA team, for which all windows have multicast addresses from now on.
  ncclMultimemHandle add_multimem(const std::vector<int>& members);
  /// Shows kernels the windows that there are.
  void write_table();
};
