#include <bootstrap/tcp/local_notices.hpp>

#include <catch2/catch_test_macros.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <utility>

using devcomm::host::detail::local_notices;

namespace {

std::function<void()> before_next_read;

bool is_readable(const local_notices& notices, int milliseconds) {
  pollfd entry{notices.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

}  // namespace

/// In place of the C library's.
extern "C" ssize_t read(int descriptor, void* to, size_t bytes) {
  if (const auto action = std::exchange(before_next_read, {})) action();
  return ::syscall(SYS_read, descriptor, to, bytes);
}

TEST_CASE("an abort is taken once, an interruption stays, and the first cause is kept") {
  local_notices notices;
  REQUIRE(notices.good());
  CHECK_FALSE(is_readable(notices, 0));
  notices.abort("first");
  notices.abort("second");
  notices.interrupt(3, "rank 3 is gone");
  notices.interrupt(4, "rank 4 is gone");
  CHECK(is_readable(notices, 0));
  const auto taken = notices.take();
  CHECK(taken.abort == "second");
  REQUIRE(taken.interrupted.has_value());
  CHECK((taken.interrupted->culprit == 3 && taken.interrupted->text == "rank 3 is gone"));
  CHECK_FALSE(is_readable(notices, 0));
  CHECK_FALSE(notices.take().abort.has_value());
  CHECK(notices.take().interrupted->culprit == 3);
}

TEST_CASE("a notice that comes while another one is taken is not lost") {
  for (const bool aborts : {false, true}) {
    local_notices notices;
    notices.abort("first");
    before_next_read = [&] {
      if (aborts) {
        notices.abort("late");
      } else {
        notices.interrupt(1, "late");
      }
    };
    const auto taken = notices.take();
    CHECK_FALSE(before_next_read);
    CHECK(taken.abort == (aborts ? "late" : "first"));
    CHECK((taken.interrupted.has_value() != aborts || is_readable(notices, 0)));
  }
}
