/// \file profiler_range.hpp
/// Ranges in NVIDIA's profilers: what the host library is doing. Empty where NVTX was not found.
#pragma once

#if DEVCOMM_HAVE_NVTX
#  include <nvtx3/nvToolsExt.h>
#endif

namespace devcomm::host::detail {

#if DEVCOMM_HAVE_NVTX

/// A range named `name`, in the domain "devcomm", until it is destroyed.
class range {
 public:
  explicit range(const char* name) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  ~range() { nvtxDomainRangePop(domain()); }
  range(const range&) = delete;
  range& operator=(const range&) = delete;

 private:
  static nvtxDomainHandle_t domain() {
    static auto* const devcomm = nvtxDomainCreateA("devcomm");
    return devcomm;
  }
};

#else

class [[maybe_unused]] range {
 public:
  explicit range(const char*) {}
  range(const range&) = delete;
  range& operator=(const range&) = delete;
};

#endif

}  // namespace devcomm::host::detail
