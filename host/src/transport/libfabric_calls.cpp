#include "transport/libfabric_calls.hpp"

#include <devcomm/host/error.hpp>

#include "transport/libfabric_abi.hpp"

#include <dlfcn.h>

#include <array>
#include <climits>
#include <cstdlib>

namespace devcomm::host::detail {
namespace {

constexpr const char* advice = "; install libfabric 1.17 or newer (Debian and Ubuntu: libfabric1)";

/// Where the library was found, which may be another place than the one that was meant.
std::string file_of(void* library) {
  std::array<char, PATH_MAX> folder{};
  if (::dlinfo(library, RTLD_DI_ORIGIN, folder.data()) != 0) return "libfabric.so.1";
  return std::string(folder.data()) + "/libfabric.so.1";
}

std::string advice_about(void* library) {
  return advice + std::string(", or take ") + file_of(library) + " out of the search path (LD_LIBRARY_PATH)";
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw not_supported(file_of(library) + " lacks " + name + advice_about(library));
}

/// Never unloaded: providers keep threads and handlers.
libfabric_calls load() {
  // Otherwise each endpoint of tcp;ofi_rxm takes 50 MB for receives (libfabric 1.17). Read when providers initialize.
  ::setenv("FI_OFI_RXM_MSG_RX_SIZE", "256", 0);
  void* const library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw not_supported(std::string("libfabric cannot be loaded: ") + (why == nullptr ? "libfabric.so.1" : why) +
                        advice);
  }
  libfabric_calls found{};
  find(library, "fi_getinfo", found.getinfo);
  find(library, "fi_freeinfo", found.freeinfo);
  find(library, "fi_dupinfo", found.dupinfo);
  find(library, "fi_fabric", found.fabric);
  find(library, "fi_strerror", found.strerror);
  find(library, "fi_version", found.version);
  const std::uint32_t version = found.version();
  if (version < FI_VERSION(1, 17)) {
    throw not_supported(file_of(library) + " is libfabric " + std::to_string(FI_MAJOR(version)) + "." +
                        std::to_string(FI_MINOR(version)) + advice_about(library));
  }
  return found;
}

}  // namespace

std::string libfabric_calls::text_of(long code) const { return strerror(static_cast<int>(code < 0 ? -code : code)); }

const libfabric_calls& libfabric_library() {
  static const libfabric_calls loaded = load();
  return loaded;
}

}  // namespace devcomm::host::detail
