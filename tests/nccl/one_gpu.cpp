// For LD_PRELOAD: as many devices as DEVCOMM_RANKS says, all of them the first one. For programs that take a device for
// each rank, on machines with fewer; they link the CUDA runtime as a shared library.
#include <dlfcn.h>

#include <cstdlib>

extern "C" int cudaGetDeviceCount(int* count) {
  const char* const ranks = std::getenv("DEVCOMM_RANKS");
  *count = ranks != nullptr ? std::atoi(ranks) : 1;
  return 0;
}

extern "C" int cudaSetDevice(int) {
  static auto* const set = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "cudaSetDevice"));
  return set(0);
}
