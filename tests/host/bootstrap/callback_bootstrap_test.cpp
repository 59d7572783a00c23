#include "job_harness.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <stdexcept>

using namespace devcomm_test;
namespace host = devcomm::host;

namespace {

outcome gather_with(host::all_gather_function gather, std::size_t mine_bytes, std::size_t all_bytes) {
  return outcome_of([&] {
    const auto job = host::callback_bootstrap(1, 3, std::move(gather));
    std::vector<std::byte> mine(mine_bytes, std::byte{5});
    std::vector<std::byte> all(all_bytes);
    job->all_gather(mine, all, 1s);
  });
}

void copy_everywhere(std::span<const std::byte> mine, std::span<std::byte> all) {
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

TEST_CASE("callback_bootstrap gathers through the caller's function") {
  auto ranks = host::thread_bootstraps(4);
  const auto outcomes = on_threads(4, [&](int rank) {
    const auto inner = ranks[static_cast<std::size_t>(rank)];
    const auto job = host::callback_bootstrap(
        rank, 4,
        [inner](std::span<const std::byte> mine, std::span<std::byte> all) { inner->all_gather(mine, all, 5s); });
    for (const std::size_t bytes : {0U, 1U, 33U, 5000U}) gather_and_check(*job, bytes, 3);
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("callback_bootstrap wraps what the function throws, with the rank") {
  const outcome standard = gather_with([](auto, auto) { throw std::runtime_error("store is gone"); }, 4, 12);
  CHECK(standard.kind == "error");
  CHECK(standard.says("rank 1 of 3"));
  CHECK(standard.says("store is gone"));
  const outcome strange = gather_with([](auto, auto) { throw 7; }, 4, 12);
  CHECK(strange.kind == "error");
  const outcome ours = gather_with([](auto, auto) { throw host::timeout_error("rank 2 is late"); }, 4, 12);
  CHECK(ours.kind == "timeout_error");
}

TEST_CASE("callback_bootstrap checks sizes before it calls") {
  int calls = 0;
  const auto count = [&](auto, auto) { ++calls; };
  const outcome wrong = gather_with(count, 4, 11);
  CHECK(wrong.kind == "invalid_argument");
  CHECK(wrong.says("11 bytes is not 3 times 4"));
  CHECK(calls == 0);
}

TEST_CASE("callback_bootstrap sees a result that is out of order") {
  CHECK(gather_with(copy_everywhere, 4, 12).ok());
  const outcome o =
      gather_with([](auto, std::span<std::byte> all) { std::fill(all.begin(), all.end(), std::byte{9}); }, 4, 12);
  CHECK(o.kind == "error");
  CHECK(o.says("did not put this rank's bytes at rank 1"));
}

TEST_CASE("callback_bootstrap refuses ranks that make no sense and an empty function") {
  CHECK_THROWS_AS(host::callback_bootstrap(3, 3, copy_everywhere), host::invalid_argument);
  CHECK_THROWS_AS(host::callback_bootstrap(-1, 3, copy_everywhere), host::invalid_argument);
  CHECK_THROWS_AS(host::callback_bootstrap(0, 0, copy_everywhere), host::invalid_argument);
  CHECK_THROWS_AS(host::callback_bootstrap(0, 1, {}), host::invalid_argument);
}

namespace {

/// Ranks that share a `unique_id` by an all-gather; `hosts_differ` makes its first call show each another host.
std::vector<outcome> on_shared_id(int size, bool hosts_differ, const std::function<void(host::bootstrap&)>& body) {
  auto ranks = host::thread_bootstraps(size);
  return on_threads(size, [&](int rank) {
    int calls = 0;
    const auto job = host::tcp_bootstrap(
        rank, size,
        [&](std::span<const std::byte> mine, std::span<std::byte> all) {
          ranks[static_cast<std::size_t>(rank)]->all_gather(mine, all, 5s);
          if (hosts_differ && calls++ == 0) all[rank == 0 ? mine.size() : 0] ^= std::byte{1};
        },
        5s);
    body(*job);
  });
}

}  // namespace

TEST_CASE("ranks with an all-gather of their own share an id by it and go on over TCP") {
  CHECK(first_failure(on_shared_id(3, false, [](host::bootstrap& job) {
          gather_and_check(job, 33, 3);
          if (!job.derive_secret({}).has_value()) throw std::runtime_error("this is no TCP bootstrap");
        })) == "");
  // Without another call, as they would not over the callback.
  const auto ends = on_shared_id(3, false, [](host::bootstrap& job) {
    if (job.rank() == 1) return;
    std::vector<std::byte> all(3);
    job.all_gather(std::span(all).first(1), all, 5s);
  });
  for (const int rank : {0, 2}) {
    CHECK(ends[static_cast<std::size_t>(rank)].kind == "remote_error");
    CHECK(ends[static_cast<std::size_t>(rank)].says("rank 1"));
  }
}

TEST_CASE("on several hosts rank 0 listens where others reach it, and all ranks hear why it cannot") {
  ::setenv("DEVCOMM_ADDRESS", "127.0.0.1", 1);
  const auto listening = on_shared_id(2, true, [](host::bootstrap& job) { gather_and_check(job, 9, 3); });
  ::unsetenv("DEVCOMM_ADDRESS");
  CHECK(first_failure(listening) == "");

  ::setenv("DEVCOMM_INTERFACE", "none0", 1);
  const auto lacking = on_shared_id(2, true, [](host::bootstrap&) {});
  ::unsetenv("DEVCOMM_INTERFACE");
  for (const outcome& end : lacking) {
    CHECK(end.kind == "not_supported");
    CHECK(end.says("rank 0 cannot listen: "));
    CHECK(end.says("none0"));
  }
}
