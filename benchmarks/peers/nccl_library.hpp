/// \file nccl_library.hpp
/// NCCL's host calls, found at run time: `DEVCOMM_NCCL_LIBRARY` names the file, else the loader's
/// `libnccl.so.2`. Its device headers fix the version at build time, so another one is refused.
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
    const char* path = named != nullptr ? named : "libnccl.so.2";
    handle_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(std::string("NCCL cannot be loaded: ") + dlerror());
    load(get_version, "ncclGetVersion");
    load(get_error_string, "ncclGetErrorString");
    load(get_unique_id, "ncclGetUniqueId");
    load(comm_init_rank, "ncclCommInitRank");
    load(comm_destroy, "ncclCommDestroy");
    load(dev_comm_create, "ncclDevCommCreate");
    load(dev_comm_destroy, "ncclDevCommDestroy");
    load(all_reduce, "ncclAllReduce");
    load(reduce_scatter, "ncclReduceScatter");
    load(all_gather, "ncclAllGather");
    load(broadcast, "ncclBroadcast");
    load(mem_alloc, "ncclMemAlloc");
    load(mem_free, "ncclMemFree");
    load(window_register, "ncclCommWindowRegister");
    load(window_deregister, "ncclCommWindowDeregister");
    int version = 0;
    check(get_version(&version), "ncclGetVersion");
    if (version != NCCL_VERSION_CODE) {
      throw std::runtime_error(std::string("built for NCCL ") + std::to_string(NCCL_VERSION_CODE) + ", but " + path +
                               " is " + std::to_string(version) +
                               ": name the matching library in DEVCOMM_NCCL_LIBRARY");
    }
  }
  nccl_library(const nccl_library&) = delete;
  nccl_library& operator=(const nccl_library&) = delete;

  void check(ncclResult_t result, const char* call) const {
    if (result != ncclSuccess) throw std::runtime_error(std::string(call) + " failed: " + get_error_string(result));
  }

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclDevCommCreate) dev_comm_create = nullptr;
  decltype(&ncclDevCommDestroy) dev_comm_destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
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

  void* handle_ = nullptr;
};

}  // namespace peers
