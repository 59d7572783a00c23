/// \file nccl_library.hpp
/// NCCL's host calls, found at run time: `DEVCOMM_NCCL_LIBRARY` names the file, else the loader's
/// `libnccl.so.2`.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace peers {

class nccl_library {
 public:
  nccl_library() {
    const char* named = std::getenv("DEVCOMM_NCCL_LIBRARY");
    path_ = named != nullptr ? named : "libnccl.so.2";
    handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(std::string("NCCL cannot be loaded: ") + dlerror());
    load(get_version, "ncclGetVersion");
    load(get_error_string, "ncclGetErrorString");
    load(get_unique_id, "ncclGetUniqueId");
    load(comm_init_rank, "ncclCommInitRank");
    load(comm_destroy, "ncclCommDestroy");
    load(all_reduce, "ncclAllReduce");
    load(reduce_scatter, "ncclReduceScatter");
    load(all_gather, "ncclAllGather");
    load(broadcast, "ncclBroadcast");
    load(send, "ncclSend");
    load(recv, "ncclRecv");
    load(group_start, "ncclGroupStart");
    load(group_end, "ncclGroupEnd");
    all_to_all = reinterpret_cast<all_to_all_function*>(dlsym(handle_, "ncclAlltoAll"));
    load(mem_alloc, "ncclMemAlloc");
    load(mem_free, "ncclMemFree");
    load(window_register, "ncclCommWindowRegister");
    load(window_deregister, "ncclCommWindowDeregister");
  }
  nccl_library(const nccl_library&) = delete;
  nccl_library& operator=(const nccl_library&) = delete;

  /// Loads the calls below that make an `ncclDevComm`. Throws unless kernels compiled with this build's device headers
  /// fit the library, which fills what they read: the layout is kept within a minor version.
  void load_device_api() {
    load(dev_comm_create, "ncclDevCommCreate");
    load(dev_comm_destroy, "ncclDevCommDestroy");
    int version = 0;
    check(get_version(&version), "ncclGetVersion");
    if (version / 100 == NCCL_VERSION_CODE / 100) return;
    throw std::runtime_error("built with the device headers of NCCL " + text_of(NCCL_VERSION_CODE) + ", but " + path_ +
                             " is " + text_of(version) + ": name a library of version " + std::to_string(NCCL_MAJOR) +
                             "." + std::to_string(NCCL_MINOR) + " in DEVCOMM_NCCL_LIBRARY");
  }

  void check(ncclResult_t result, const char* call) const {
    if (result != ncclSuccess) throw std::runtime_error(std::string(call) + " failed: " + get_error_string(result));
  }

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclDevCommCreate) dev_comm_create = nullptr;    ///< after `load_device_api`
  decltype(&ncclDevCommDestroy) dev_comm_destroy = nullptr;  ///< after `load_device_api`
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  /// `ncclAlltoAll`, from NCCL 2.28 on; null where the library has none.
  using all_to_all_function = ncclResult_t(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  all_to_all_function* all_to_all = nullptr;
  decltype(&ncclMemAlloc) mem_alloc = nullptr;
  decltype(&ncclMemFree) mem_free = nullptr;
  decltype(&ncclCommWindowRegister) window_register = nullptr;
  decltype(&ncclCommWindowDeregister) window_deregister = nullptr;

 private:
  template <class Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(std::string("this NCCL has no ") + name);
  }

  static std::string text_of(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }

  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace peers
