#include "gpu/device_globals.hpp"

#include "base/sanitizer.hpp"

#include <cstddef>
#include <map>
#include <vector>

// Of the linker; null where the program has no such variable.
extern "C" {
extern char __start_devcomm_of_each_gpu[] __attribute__((weak));
extern char __stop_devcomm_of_each_gpu[] __attribute__((weak));
}

namespace devcomm::simulator::detail {
namespace {

struct all_globals {
  const std::vector<char> initial{__start_devcomm_of_each_gpu, __stop_devcomm_of_each_gpu};
  std::map<int, std::vector<char>> put_away;  ///< of GPUs whose variables are not in place
  int in_place = -1;                          ///< -1: nobody has used them yet
};

all_globals& all() {
  static auto& only = *new all_globals;
  return only;
}

bool are_any() { return &__start_devcomm_of_each_gpu[0] != &__stop_devcomm_of_each_gpu[0]; }

}  // namespace

void use_globals_of(int device) {
  if (!are_any()) return;
  const sanitizer::unobserved hidden;
  all_globals& globals = all();
  if (globals.in_place == device) return;
  char* const place = __start_devcomm_of_each_gpu;
  const std::size_t bytes = globals.initial.size();
  if (globals.in_place >= 0) globals.put_away[globals.in_place].assign(place, place + bytes);
  const auto own = globals.put_away.try_emplace(device, globals.initial).first;
  for (std::size_t i = 0; i < bytes; ++i) place[i] = own->second[i];
  globals.in_place = device;
}

bool is_global(const void* address) {
  const char* const at = static_cast<const char*>(address);
  return at >= &__start_devcomm_of_each_gpu[0] && at < &__stop_devcomm_of_each_gpu[0];
}

const void* global_of(int device, const void* address) {
  if (!is_global(address)) return address;
  const char* const at = static_cast<const char*>(address);
  const all_globals& globals = all();
  const auto own = globals.put_away.find(device);
  if (device == globals.in_place || own == globals.put_away.end()) return address;
  return own->second.data() + (at - __start_devcomm_of_each_gpu);
}

}  // namespace devcomm::simulator::detail
