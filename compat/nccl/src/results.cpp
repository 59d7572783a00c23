// Results, groups, and the texts of errors.
#include "state.hpp"

#include <devcomm/host/error.hpp>

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::nccl {
namespace {

struct last_error {
  ncclResult_t result = ncclSuccess;
  std::string text;
};
thread_local last_error last_of_thread;

ncclResult_t result_of(const std::exception& error) {
  if (dynamic_cast<const host::invalid_argument*>(&error) != nullptr) return ncclInvalidArgument;
  if (dynamic_cast<const host::not_supported*>(&error) != nullptr) return ncclInvalidUsage;
  if (dynamic_cast<const host::timeout_error*>(&error) != nullptr) return ncclTimeout;
  if (dynamic_cast<const host::remote_error*>(&error) != nullptr) return ncclRemoteError;
  if (dynamic_cast<const host::kernel_error*>(&error) != nullptr) return ncclRemoteError;
  if (dynamic_cast<const host::system_error*>(&error) != nullptr) return ncclSystemError;
  if (dynamic_cast<const cuda_error*>(&error) != nullptr) return ncclUnhandledCudaError;
  return ncclInternalError;
}

/// Makes a device current for a scope.
class current_device {
 public:
  explicit current_device(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;
  ~current_device() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

ncclResult_t run(ncclComm_t comm, const std::function<void()>& body) {
  std::shared_ptr<ncclComm> alive;  // also after `body` has destroyed it
  return guarded(comm, [&] {
    alive = find_comm(comm, "a call of a group");
    const current_device current(alive->device);
    body();
  });
}

std::mutex& handles_guard() {
  static auto& guard = *new std::mutex;
  return guard;
}
// Never destroyed: a program may end without destroying its communicators.
std::map<ncclComm_t, std::shared_ptr<ncclComm>>& handles() {
  static auto& all = *new std::map<ncclComm_t, std::shared_ptr<ncclComm>>;
  return all;
}
std::shared_ptr<ncclComm> look_up(ncclComm_t handle) {
  const std::lock_guard lock(handles_guard());
  const auto found = handles().find(handle);
  return found == handles().end() ? nullptr : found->second;
}

struct calls_of_comm {
  ncclComm_t comm;
  std::vector<std::function<void()>> calls;
  std::vector<std::function<void()>> last;
};
/// What one thread has put off until its group ends.
struct group_of_calls {
  int depth = 0;
  std::vector<calls_of_comm> comms;

  calls_of_comm& of(ncclComm_t comm) {
    for (calls_of_comm& each : comms)
      if (each.comm == comm) return each;
    return comms.emplace_back(calls_of_comm{comm, {}, {}});
  }
};
thread_local group_of_calls group;

}  // namespace

ncclComm_t adopt(std::unique_ptr<ncclComm> made) {
  const std::lock_guard lock(handles_guard());
  const std::shared_ptr<ncclComm> shared = std::move(made);
  handles()[shared.get()] = shared;
  return shared.get();
}
std::shared_ptr<ncclComm> find_comm(ncclComm_t handle, const char* call) {
  std::shared_ptr<ncclComm> found = look_up(handle);
  if (!found) {
    throw host::invalid_argument(std::string(call) + ": the communicator is " +
                                 (handle == nullptr ? "null" : "none that there is: it has been destroyed"));
  }
  return found;
}
void forget(ncclComm_t handle) {
  std::shared_ptr<ncclComm> last;  // destroyed without the lock
  const std::lock_guard lock(handles_guard());
  const auto found = handles().find(handle);
  if (found == handles().end()) return;
  last = std::move(found->second);
  handles().erase(found);
}

ncclResult_t guarded(ncclComm_t comm, const std::function<void()>& body) {
  try {
    body();
    return ncclSuccess;
  } catch (const std::exception& error) {
    last_of_thread = {result_of(error), error.what()};
    if (const auto alive = look_up(comm)) alive->error = error.what();
    return last_of_thread.result;
  }
}

ncclResult_t submit(ncclComm_t comm, const std::function<void()>& body) {
  if (group.depth == 0) return run(comm, body);
  group.of(comm).calls.push_back(body);
  return ncclSuccess;
}
ncclResult_t submit_last(ncclComm_t comm, const std::function<void()>& body) {
  if (group.depth == 0) return run(comm, body);
  group.of(comm).last.push_back(body);
  return ncclSuccess;
}

void require(const void* given, const char* what) {
  if (given == nullptr) throw host::invalid_argument(std::string(what) + " is null");
}

}  // namespace devcomm::nccl

using namespace devcomm;

devcomm::host::communicator& ncclComm::get() {
  if (!ranks)
    throw host::invalid_argument("the communicator is not ready: its group has not ended, or making it failed");
  return *ranks;
}

ncclResult_t ncclGroupStart() {
  ++nccl::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t begun = nccl::guarded(nullptr, [] {
    if (nccl::group.depth == 0) throw host::invalid_argument("ncclGroupEnd without ncclGroupStart");
  });
  if (begun != ncclSuccess || --nccl::group.depth > 0) return begun;
  const auto comms = std::exchange(nccl::group.comms, {});
  std::vector<nccl::last_error> outcomes(comms.size());
  const auto run_calls = [&](std::size_t i) {
    for (const auto* calls : {&comms[i].calls, &comms[i].last})
      for (const auto& body : *calls) {
        if (nccl::run(comms[i].comm, body) == ncclSuccess) continue;
        outcomes[i] = nccl::last_of_thread;
        return;
      }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < comms.size(); ++i) threads.emplace_back(run_calls, i);
  if (!comms.empty()) run_calls(0);  // here, as streams may be those of this thread
  for (auto& each : threads) each.join();
  for (const auto& outcome : outcomes) {
    if (outcome.result == ncclSuccess) continue;
    nccl::last_of_thread = outcome;
    return outcome.result;
  }
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  if (result != ncclSuccess && result == nccl::last_of_thread.result) return nccl::last_of_thread.text.c_str();
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "a call of CUDA failed";
    case ncclSystemError: return "a call of the operating system failed";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "not supported here";
    case ncclRemoteError: return "another rank failed, or a kernel waited for one in vain";
    case ncclInProgress: return "in progress";
    case ncclTimeout: return "a rank did not come in time";
    default: return "unknown result";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const auto of = nccl::look_up(comm);
  return of ? of->error.c_str() : nccl::last_of_thread.text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return nccl::guarded(nullptr, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommGetAsyncError");
    nccl::require(asyncError, "ncclCommGetAsyncError: where the result goes");
    *asyncError = nccl::guarded(comm, [&] { comm->get().check(); });
  });
}

ncclResult_t ncclGetVersion(int* version) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(version, "ncclGetVersion: where the version goes");
    *version = NCCL_VERSION_CODE;
  });
}

void ncclResetDebugInit() {}
