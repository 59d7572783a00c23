#include "stand_in.hpp"

#include <cuda.h>

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>

namespace devcomm_test {
namespace {

template <class Function>
void find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw std::runtime_error("libcuda.so.1 is not the stand-in: it lacks " + std::string(name));
}

stand_in_driver load() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("there is no stand-in for libcuda.so.1");
  stand_in_driver found{};
  find(library, found.held, "stand_in_count_held");
  find(library, found.fail, "stand_in_fail");
  find(library, found.calls, "stand_in_count_calls");
  find(library, found.keep_busy, "stand_in_keep_busy");
  find(library, found.delay_copies, "stand_in_delay_copies");
  find(library, found.complaints, "stand_in_complaints");
  static decltype(&cuGetProcAddress) get_address;
  find(library, get_address, "cuGetProcAddress_v2");
  found.find = [](const char* name) {
    void* function = nullptr;
    static_cast<void>(get_address(name, &function, 12010, 0, nullptr));
    return function;
  };
  return found;
}

/// Variables of the environment, and those that forbid multicast gone, until its end.
class changed_environment {
 public:
  explicit changed_environment(const variables& set) {
    change("DEVCOMM_NVLS_ENABLE", nullptr);
    change("NCCL_NVLS_ENABLE", nullptr);
    for (const auto& [name, value] : set) change(name, value.c_str());
  }
  ~changed_environment() {
    for (auto each = before_.rbegin(); each != before_.rend(); ++each) {
      put(each->first, each->second ? each->second->c_str() : nullptr);
    }
  }
  changed_environment(const changed_environment&) = delete;
  changed_environment& operator=(const changed_environment&) = delete;

 private:
  static void put(const std::string& name, const char* value) {
    if (value == nullptr) {
      ::unsetenv(name.c_str());
    } else {
      ::setenv(name.c_str(), value, 1);
    }
  }
  void change(const std::string& name, const char* value) {
    const char* const now = std::getenv(name.c_str());
    before_.emplace_back(name, now == nullptr ? std::nullopt : std::optional<std::string>(now));
    put(name, value);
  }

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace

const stand_in_driver& stand_in() {
  static const stand_in_driver driver = load();
  return driver;
}

outcomes on_stand_in(int ranks, int inside, const rank_body& body, const variables& set) {
  static_cast<void>(stand_in());
  const changed_environment during(set);
  return on_processes(
      ranks,
      [&](auto bootstrap) {
        body(std::move(bootstrap));
        const std::string complaints = stand_in().complaints();
        require(complaints.empty(), "no rule of the driver is broken: " + complaints);
      },
      inside);
}

void require_nothing_held(const std::string& when) {
  const stand_in_held now = stand_in().held();
  const std::pair<const char*, int> all[] = {
      {"handles of memory", now.memory}, {"multicast objects", now.multicast},
      {"bindings", now.bindings},        {"reservations", now.reservations},
      {"mappings", now.mappings},        {"device memory", now.device_memory},
      {"host memory", now.host_memory},  {"registered host memory", now.registered},
      {"streams", now.streams},
  };
  for (const auto& [what, count] : all) {
    require(count == 0, when + " nothing is held, but " + std::to_string(count) + " " + what);
  }
}

}  // namespace devcomm_test
