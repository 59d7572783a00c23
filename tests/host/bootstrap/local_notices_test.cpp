#include <bootstrap/tcp/local_notices.hpp>

#include <catch2/catch_test_macros.hpp>

#include <poll.h>

#include <string>
#include <thread>

using devcomm::host::detail::local_notices;

namespace {

bool is_readable(const local_notices& notices, int milliseconds) {
  pollfd entry{notices.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

}  // namespace

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

TEST_CASE("whoever polls the descriptor and takes misses no notice") {
  constexpr int rounds = 20'000;
  int missed = 0;
  for (int round = 0; round < rounds && missed == 0; ++round) {
    local_notices notices;
    const bool aborts = round % 2 == 0;
    std::thread other([&] {
      if (aborts) {
        notices.abort("why");
      } else {
        notices.interrupt(1, "why");
      }
    });
    for (;;) {
      const auto taken = notices.take();
      if (aborts ? taken.abort.has_value() : taken.interrupted.has_value()) break;
      if (is_readable(notices, 2000)) continue;
      ++missed;
      break;
    }
    other.join();
  }
  CHECK(missed == 0);
}
