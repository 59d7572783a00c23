/// Memory of a peer that does not arrive, in a process whose `sendmsg` is linked with `--wrap`.
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

/// Messages with descriptors get lost.
std::atomic<bool> losing{false};

}  // namespace

extern "C" ssize_t __real_sendmsg(int fd, const msghdr* what, int flags);
extern "C" ssize_t __wrap_sendmsg(int fd, const msghdr* what, int flags);
extern "C" ssize_t __wrap_sendmsg(int fd, const msghdr* what, int flags) {
  if (!losing || what->msg_controllen == 0) return __real_sendmsg(fd, what, flags);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < what->msg_iovlen; ++i) bytes += what->msg_iov[i].iov_len;
  return static_cast<ssize_t>(bytes);
}

TEST_CASE("the limit of taking a peer's memory starts with the call, so that all ranks hear what is missing") {
  constexpr auto limit = 4s;
  constexpr auto late = 2500ms;
  const auto ends = on_processes(2, [&](auto bootstrap) {
    host::communicator_options options;
    options.limit = limit;
    host::communicator comm(std::move(bootstrap), options);
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(late);
      losing = true;
    }
    const std::string text = text_of<host::error>([&] { static_cast<void>(comm.allocate(64)); });
    const auto took = std::chrono::steady_clock::now() - start;
    require(text.find("waited 4 s for memory of rank 1") != std::string::npos, "the missing memory is named: " + text);
    require(took < limit + late - 500ms, "the time before the ranks met counts");
  });
  CHECK(ends == all_ok(2));
}
