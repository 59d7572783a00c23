/// The lock of multicast objects, between processes of which one ends.
#include "gpu/multicast.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>

using devcomm::simulator::detail::multicast_lock;
using devcomm::simulator::detail::multicast_state;

namespace {

std::uint32_t holder_of(const multicast_state& state) { return __atomic_load_n(&state.lock, __ATOMIC_ACQUIRE); }

multicast_state& shared_state() {
  void* const memory =
      ::mmap(nullptr, sizeof(multicast_state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return *static_cast<multicast_state*>(memory);
}

void check_can_take(multicast_state& state) {
  {
    const multicast_lock hold(state);
    CHECK(holder_of(state) == static_cast<std::uint32_t>(::getpid()));
  }
  CHECK(holder_of(state) == 0);
}

}  // namespace

TEST_CASE("a process that ends with a multicast object's lock leaves it to the others") {
  multicast_state& state = shared_state();
  const pid_t child = ::fork();
  if (child == 0) {
    const multicast_lock hold(state);
    ::_exit(0);
  }
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(holder_of(state) == static_cast<std::uint32_t>(child));
  check_can_take(state);  // of a process that nobody has waited for
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  __atomic_store_n(&state.lock, static_cast<std::uint32_t>(child), __ATOMIC_RELEASE);
  check_can_take(state);
  ::munmap(&state, sizeof state);
}

TEST_CASE("a process that lives keeps a multicast object's lock") {
  multicast_state& state = shared_state();
  const pid_t child = ::fork();
  if (child == 0) {
    {
      const multicast_lock hold(state);
      const timespec some{0, 100'000'000};
      ::nanosleep(&some, nullptr);
      state.members = 1;
    }
    ::_exit(0);
  }
  while (holder_of(state) == 0 && __atomic_load_n(&state.members, __ATOMIC_RELAXED) == 0) {
  }
  {
    const multicast_lock hold(state);
    CHECK(state.members == 1);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  ::munmap(&state, sizeof state);
}
