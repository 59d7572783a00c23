#include "device/cuda/nvml.hpp"

#include "util/hex.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace devcomm::host::cuda {
namespace {

// nvml.h is not part of every toolkit: these are its types, whose layout is NVML's binary interface.
using device_handle = struct nvml_device*;
using cluster_uuid = std::array<std::uint8_t, 16>;

constexpr int success = 0;
constexpr int not_supported_code = 3;

enum class fabric_state : std::uint8_t { not_supported = 0, not_started = 1, in_progress = 2, completed = 3 };

/// `nvmlGpuFabricInfo_t`, of drivers from 525 on.
struct fabric_info {
  cluster_uuid cluster;
  std::int32_t status;
  std::uint32_t clique;
  fabric_state state;
};
static_assert(sizeof(fabric_info) == 28);

/// `nvmlGpuFabricInfo_v2_t`, of drivers from 545 on.
struct fabric_info_v2 {
  std::uint32_t version = sizeof(fabric_info_v2) | 2U << 24;
  cluster_uuid cluster{};
  std::int32_t status = 0;
  std::uint32_t clique = 0;
  fabric_state state{};
  std::uint32_t health = 0;
};
static_assert(sizeof(fabric_info_v2) == 36);

class nvml {
 public:
  /// Never closed: other parts of the program may use it.
  nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      const char* const why = ::dlerror();
      problem_ = std::string("NVML cannot be loaded: ") + (why == nullptr ? "libnvidia-ml.so.1" : why);
      return;
    }
    const bool complete = load(init_, "nvmlInit_v2") && load(text_of_, "nvmlErrorString") &&
                          load(find_device_, "nvmlDeviceGetHandleByUUID");
    if (!complete) return;
    if (!load(tell_v2_, "nvmlDeviceGetGpuFabricInfoV") && !load(tell_, "nvmlDeviceGetGpuFabricInfo")) return;
    problem_.clear();
    if (const int code = init_(); code != success) problem_ = text("nvmlInit_v2", code);
  }

  [[nodiscard]] capability domain_of(const std::string& uuid) const {
    if (!problem_.empty()) return {false, problem_};
    device_handle device = nullptr;
    if (const int code = find_device_(uuid.c_str(), &device); code != success) {
      return {false, text("nvmlDeviceGetHandleByUUID", code)};
    }
    fabric_info info{};
    int code = success;
    if (tell_v2_ != nullptr) {
      fabric_info_v2 newer;
      code = tell_v2_(device, &newer);
      info = {newer.cluster, newer.status, newer.clique, newer.state};
    } else {
      code = tell_(device, &info);
    }
    if (code == not_supported_code || (code == success && info.state == fabric_state::not_supported)) {
      return {false, "NVML says that the GPU is part of no NVLink fabric"};
    }
    if (code != success) return {false, text("nvmlDeviceGetGpuFabricInfo", code)};
    return domain_in(info);
  }

 private:
  template <class Function>
  bool load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) problem_ = std::string("NVML is too old: it lacks ") + name;
    return function != nullptr;
  }
  [[nodiscard]] std::string text(const char* call, int code) const {
    return std::string("NVML does not report it: ") + call + ": " + text_of(code);
  }
  [[nodiscard]] std::string text_of(int code) const {
    const char* const said = text_of_(code);
    return said == nullptr ? "error " + std::to_string(code) : said;
  }
  [[nodiscard]] capability domain_in(const fabric_info& info) const {
    const std::string logs = "; see the logs of nvidia-fabricmanager and nvidia-imex";
    if (info.state == fabric_state::not_started) {
      return {false, "NVML says that the GPU has not begun to join its NVLink fabric" + logs};
    }
    if (info.state == fabric_state::in_progress) {
      return {false,
              "NVML says that the GPU is still joining its NVLink fabric; start again later, or" + logs.substr(1)};
    }
    if (info.state != fabric_state::completed) {
      return {false, "NVML gives a state of the NVLink fabric that this version does not know, " +
                         std::to_string(static_cast<int>(info.state))};
    }
    if (info.status != success) {
      return {false, "NVML says that the GPU could not join its NVLink fabric: " + text_of(info.status) + logs};
    }
    if (std::all_of(info.cluster.begin(), info.cluster.end(), [](std::uint8_t byte) { return byte == 0; })) {
      return {false, "NVML says that the GPU's NVLink fabric ends with this host: its cluster has no UUID"};
    }
    return {true, "cluster " + detail::to_hex(std::as_bytes(std::span(info.cluster))) + ", clique " +
                      std::to_string(info.clique) + ", says NVML"};
  }

  void* library_;
  std::string problem_;
  int (*init_)() = nullptr;
  const char* (*text_of_)(int code) = nullptr;
  int (*find_device_)(const char* uuid, device_handle*) = nullptr;
  int (*tell_)(device_handle, fabric_info*) = nullptr;
  int (*tell_v2_)(device_handle, fabric_info_v2*) = nullptr;
};

/// As NVML writes it: "GPU-" and groups of 4, 2, 2, 2 and 6 bytes.
std::string nvml_name(const CUuuid& uuid) {
  const std::string digits = detail::to_hex(std::as_bytes(std::span(uuid.bytes)));
  return "GPU-" + digits.substr(0, 8) + "-" + digits.substr(8, 4) + "-" + digits.substr(12, 4) + "-" +
         digits.substr(16, 4) + "-" + digits.substr(20);
}

}  // namespace

capability nvlink_domain_of(const CUuuid& uuid) {
  static const nvml library;
  return library.domain_of(nvml_name(uuid));
}

}  // namespace devcomm::host::cuda
