/// \file state.hpp
/// What a communicator has, and how calls report what went wrong.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace devcomm::nccl {

/// Memory of every rank that kernels name by a handle.
class registered_window {
 public:
  registered_window(host::communicator& comm, void* user, std::size_t bytes);
  registered_window(const registered_window&) = delete;
  registered_window& operator=(const registered_window&) = delete;
  ~registered_window();

  [[nodiscard]] ncclWindow_t handle() const { return record_; }
  [[nodiscard]] void* user() const { return user_; }
  [[nodiscard]] const window& get() const { return memory_.window(); }

 private:
  void* user_;
  host::symmetric_memory memory_;
  ncclWindow_vidmem* record_ = nullptr;
};

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

/// Throws `host::invalid_argument` with `what` where `given` is null.
void require(const void* given, const char* what);

}  // namespace devcomm::nccl

struct ncclComm {
  int device = 0;
  std::optional<devcomm::host::communicator> ranks;
  std::map<ncclWindow_t, std::unique_ptr<devcomm::nccl::registered_window>> windows;
  std::map<const char*, devcomm::host::device_communicator> device_comms;  // by where their resources are
  std::string error;

  /// Throws where it has not been made yet, or no more.
  devcomm::host::communicator& get();
};
