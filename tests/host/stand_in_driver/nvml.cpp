// A libnvidia-ml.so.1 for tests: as much of NVML as tells of the NVLink fabric. It is stricter than NVML. With
// STAND_IN_OLD_NVML it is that of drivers before 545.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define DEVCOMM_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum code : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  not_found = 6,
  mismatch = 25
};

bool started = false;

std::string setting(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

int number(const char* name, int otherwise) {
  return std::atoi(setting(name, std::to_string(otherwise).c_str()).c_str());
}

/// "nvmlInit_v2:999" in STAND_IN_NVML_FAIL: that call ends so.
int failure_of(const std::string& call) {
  const std::string failing = setting("STAND_IN_NVML_FAIL", "");
  return failing.rfind(call + ":", 0) == 0 ? std::atoi(failing.c_str() + call.size() + 1) : success;
}

/// What both versions of the structure have, in this order.
void tell(unsigned char* cluster, int* status, unsigned* clique, unsigned char* state) {
  const std::string name = setting("STAND_IN_NVML_CLUSTER", "");
  std::memset(cluster, 0, 16);
  std::memcpy(cluster, name.data(), std::min<std::size_t>(name.size(), 16));
  *status = number("STAND_IN_NVML_STATUS", success);
  *clique = static_cast<unsigned>(number("STAND_IN_NVML_CLIQUE", 0));
  *state = static_cast<unsigned char>(number("STAND_IN_NVML_STATE", 3));
}

int ready(const void* device, const void* info, const char* call) {
  if (!started) return uninitialized;
  if (device == nullptr || info == nullptr) return invalid_argument;
  return failure_of(call);
}

}  // namespace

DEVCOMM_EXPORTED int nvmlInit_v2() {
  const int failure = failure_of("nvmlInit_v2");
  started = failure == success;
  return failure;
}

DEVCOMM_EXPORTED const char* nvmlErrorString(int code) {
  switch (code) {
    case success: return "Success";
    case uninitialized: return "Uninitialized";
    case invalid_argument: return "Invalid Argument";
    case not_supported: return "Not Supported";
    case not_found: return "Not Found";
    case mismatch: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

/// A GPU of the stand-in for the driver: its UUID is fifteen times 0x5a, and the number of the GPU.
DEVCOMM_EXPORTED int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (!started) return uninitialized;
  if (const int failure = failure_of("nvmlDeviceGetHandleByUUID"); failure != success) return failure;
  unsigned gpu = 0;
  int length = 0;
  if (std::sscanf(uuid, "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a%2x%n", &gpu, &length) != 1) return not_found;
  if (static_cast<std::size_t>(length) != std::strlen(uuid)) return not_found;
  static char devices[256];
  *device = &devices[gpu & 0xff];
  return success;
}

DEVCOMM_EXPORTED int nvmlDeviceGetGpuFabricInfo(void* device, void* info) {
  struct layout {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
  };
  if (const int code = ready(device, info, "nvmlDeviceGetGpuFabricInfo"); code != success) return code;
  auto* const filled = static_cast<layout*>(info);
  tell(filled->cluster, &filled->status, &filled->clique, &filled->state);
  return success;
}

#ifndef STAND_IN_OLD_NVML
DEVCOMM_EXPORTED int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) {
  struct layout {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
  };
  if (const int code = ready(device, info, "nvmlDeviceGetGpuFabricInfo"); code != success) return code;
  auto* const filled = static_cast<layout*>(info);
  if (filled->version != (sizeof(layout) | 2U << 24)) return mismatch;
  tell(filled->cluster, &filled->status, &filled->clique, &filled->state);
  filled->health = 0;
  return success;
}
#endif
