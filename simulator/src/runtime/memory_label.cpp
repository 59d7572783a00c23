#include "runtime/memory_label.hpp"

#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/memory_names.hpp"
#include "gpu/multicast.hpp"
#include "gpu/shared_memory.hpp"
#include "runtime/simulation.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

using host::detail::window_part;

class label final : public host::detail::memory_label {
 public:
  label(const std::string& name, std::span<const window_part> parts) {
    const engine_guard hold;
    for (const window_part& part : parts) {
      name_memory(name, part);
      parts_.push_back(part);
    }
  }
  void ends(int rank) override {
    const engine_guard hold;
    for (const window_part& part : parts_) {
      if (part.rank == rank) sanitizer::end_memory(part.base, part.bytes);
    }
  }
  ~label() override {
    const engine_guard hold;
    for (const window_part& part : parts_) forget_memory_name(part.base);
  }
  label(const label&) = delete;
  label& operator=(const label&) = delete;

 private:
  std::vector<window_part> parts_;
};

/// The address that a report of AddressSanitizer is about.
const void* address_in(const char* report) {
  const char* const at = std::strstr(report, "address 0x");
  return at == nullptr ? nullptr : reinterpret_cast<const void*>(std::strtoull(at + 8, nullptr, 16));
}

/// Follows each report; on the thread that made the access, so that in a kernel the baton is here.
void explain(const char* report) {
  const void* const address = address_in(report);
  if (address == nullptr) return;
  std::string where = describe_multicast(address);
  if (!where.empty()) where += ", which only multimem accesses may use (multimem::ptr)";
  if (where.empty()) where = describe_in_window(address);
  if (where.empty()) where = describe_allocation(address);
  if (where.empty()) where = describe_far_from_window(address);
  if (where.empty() && this_block != nullptr) {
    where = shared_memory::describe(address, this_block->launch.shape.dynamic_bytes);
  }
  if (where.empty()) return;
  const std::string who = this_fiber != nullptr
                              ? describe_thread(*this_fiber) + ", " + describe_kernel(this_block->launch)
                              : std::string("a thread of the host");
  std::fprintf(stderr, "devcomm simulator: %p is %s; accessed by %s (seed %" PRIu64 ")\n", address, where.c_str(),
               who.c_str(), the_engine().config.seed);
}

__attribute__((constructor)) void explain_address_reports() {
  if (sanitizer::address()) __asan_set_error_report_callback(&explain);
}

}  // namespace

std::unique_ptr<host::detail::memory_label> label_memory(const std::string& name, std::span<const window_part> parts) {
  return std::make_unique<label>(name, parts);
}

}  // namespace devcomm::simulator::detail
