/// Accesses of kernels to multicast addresses.
#include "base/random.hpp"
#include "base/sanitizer.hpp"
#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/fiber.hpp"
#include "engine/grid.hpp"
#include "gpu/multicast.hpp"

#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

/// The same in every run of a seed.
uint64_t key_of(fiber& f) {
  const engine& e = f.home->simulation;
  random_choice of_thread(e.config.seed ^ static_cast<uint64_t>(f.home->device) << 48 ^ f.home->rank << 16 ^ f.rank);
  return of_thread.next() ^ ++f.multicasts;
}

void shuffle(multicast_members& members, uint64_t key) {
  random_choice random(key);
  members.first_word = random.below(multicast_members::most);
  for (int i = members.count - 1; i > 0; --i) {
    std::swap(members.at[i], members.at[random.below(static_cast<uint32_t>(i) + 1)]);
  }
}

std::string access_of(const void* address, std::size_t bytes) {
  return "a multimem access of " + std::to_string(bytes) + " bytes to " + describe_multicast(address);
}

[[noreturn]] void fail(const std::string& text) { fail_misuse(text.c_str()); }

}  // namespace

multicast_members begin_multicast(const void* address, std::size_t bytes) {
  if (this_fiber == nullptr) fail("multimem accesses are for kernels");
  multicast_members members{};
  {
    const sanitizer::unobserved hidden;
    const multicast_place place = find_multicast(address, bytes);
    if (!place.found) {
      fail("a multimem access to an address that is no multicast address: other memory is accessed by load and store");
    }
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
      fail(access_of(address, bytes) + ", which is no multiple of " + std::to_string(bytes));
    }
    if (place.bound != place.members) {
      fail(access_of(address, bytes) + ", where " + std::to_string(place.bound) + " of the " +
           std::to_string(place.members) + " members have bound memory");
    }
    if (place.at.size() != place.members) {
      fail(access_of(address, bytes) + ", where this process can reach the memory of " +
           std::to_string(place.at.size()) + " of the " + std::to_string(place.members) + " members");
    }
    for (char* const at : place.at) members.at[members.count++] = at;
  }
  fiber& f = *this_fiber;
  if (f.home->simulation.config.multicast != multicast_kind::in_rank_order) shuffle(members, key_of(f));
  sanitizer::multicast(true);
  return members;
}

void end_multicast() { sanitizer::multicast(false); }

void fence_alias() {
  sanitizer::alias_fence();
  preempt();
}

}  // namespace devcomm::simulator::detail
