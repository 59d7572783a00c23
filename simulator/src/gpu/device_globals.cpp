#include "gpu/device_globals.hpp"

#include "base/sanitizer.hpp"
#include "gpu/code_module.hpp"

#include <cstddef>

namespace devcomm::simulator::detail {

void use_globals_of(int device) {
  for (code_module* const each : code_modules()) {
    code_module& m = *each;
    if (m.in_place == device || m.initial.empty()) continue;
    const sanitizer::unobserved hidden;
    char* const place = m.parts.globals_begin;
    const std::size_t bytes = m.initial.size();
    if (m.in_place >= 0) m.put_away[m.in_place].assign(place, place + bytes);
    const auto own = m.put_away.try_emplace(device, m.initial).first;
    for (std::size_t i = 0; i < bytes; ++i) place[i] = own->second[i];
    m.in_place = device;
  }
}

bool is_global(const void* address) {
  for (const code_module* const m : code_modules())
    if (m->has_global(address)) return true;
  return false;
}

const void* global_of(int device, const void* address) {
  for (const code_module* const m : code_modules()) {
    if (!m->has_global(address)) continue;
    const auto own = m->put_away.find(device);
    if (device == m->in_place || own == m->put_away.end()) return address;
    return own->second.data() + (static_cast<const char*>(address) - m->parts.globals_begin);
  }
  return address;
}

}  // namespace devcomm::simulator::detail
