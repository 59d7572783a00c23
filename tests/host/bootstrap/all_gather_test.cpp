// The laws of bootstrap::all_gather, for ranks that are threads and for ranks over TCP.
#include "job_harness.hpp"

#include <devcomm/host/bootstrap.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <unistd.h>
#include <array>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace devcomm_test;
namespace host = devcomm::host;

namespace {

way any_way() { return GENERATE(way::threads, way::tcp_threads, way::tcp_processes); }

}  // namespace

TEST_CASE("all_gather gives every rank all bytes in rank order") {
  const way w = any_way();
  const int ranks = GENERATE(1, 2, 3, 4, 7, 8);
  CAPTURE(to_string(w), ranks);
  const auto outcomes = run_job(w, ranks, [](const shared_bootstrap& job) {
    unsigned seed = 0;
    for (const std::size_t bytes : {0U, 1U, 7U, 64U, 4096U, 100'000U}) gather_and_check(*job, bytes, ++seed);
    for (int i = 0; i < 50; ++i) gather_and_check(*job, 9, ++seed);
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("all_gather moves contributions larger than socket buffers") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes =
      run_job(w, 3, [](const shared_bootstrap& job) { gather_and_check(*job, std::size_t{2} << 20, 1); });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("ranks over TCP derive the same secret from a label, each label another one, and none is the job's") {
  const host::unique_id id = host::unique_id::create();
  std::array<std::optional<host::bootstrap::secret>, 3> derived;
  const auto outcomes = on_threads(3, [&](int rank) {
    const auto job = host::tcp_bootstrap(id, rank, 3, 20s);
    const auto of = [&](const std::string& label) { return job->derive_secret(std::as_bytes(std::span(label))); };
    derived[static_cast<std::size_t>(rank)] = of("a");
    if (of("a") == of("b")) throw std::runtime_error("two labels have one secret");
    barrier(*job);
  });
  REQUIRE(first_failure(outcomes) == "");
  for (const auto& each : derived) {
    REQUIRE(each.has_value());
    CHECK(*each == *derived[0]);
    CHECK(*each != id.secret());
  }
  for (const auto& job : host::thread_bootstraps(2)) CHECK(!job->derive_secret({}).has_value());
}

TEST_CASE("gather_and_check sees a wrong byte") {
  class liar final : public devcomm::host::bootstrap {
   public:
    [[nodiscard]] int rank() const noexcept override { return 0; }
    [[nodiscard]] int size() const noexcept override { return 1; }
    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds) override {
      std::copy(mine.begin(), mine.end(), all.begin());
      all[3] ^= std::byte{1};
    }
  };
  liar ranks;
  REQUIRE_THROWS(gather_and_check(ranks, 10, 1));
}

TEST_CASE("all_gather names the missing ranks to all who wait") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes = run_job(w, 4, [](const shared_bootstrap& job) {
    barrier(*job);
    if (job->rank() == 2) std::this_thread::sleep_for(1500ms);
    gather_and_check(*job, 8, 1, 500ms);
  });
  for (const int rank : {0, 1, 3}) {
    const outcome& o = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank, o.kind, o.text);
    CHECK(o.kind == "timeout_error");
    CHECK(o.says("on rank " + std::to_string(rank) + " of 4"));
    CHECK(o.says("rank 2"));
    CHECK(o.took < 1400ms);
  }
  CAPTURE(outcomes[2].text);
  CHECK(outcomes[2].kind == "remote_error");
  CHECK(outcomes[2].says("timed out after 500 ms"));
}

TEST_CASE("all_gather names rank 0 when it is the missing one") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes = run_job(w, 3, [](const shared_bootstrap& job) {
    barrier(*job);
    if (job->rank() == 0) std::this_thread::sleep_for(1200ms);
    gather_and_check(*job, 8, 1, 400ms);
  });
  for (const int rank : {1, 2}) {
    const outcome& o = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank, o.kind, o.text);
    CHECK(o.kind == "timeout_error");
    CHECK(o.says("rank 0"));
  }
  CAPTURE(outcomes[0].text);
  CHECK(outcomes[0].kind == "remote_error");
  CHECK(outcomes[0].culprit > 0);
}

TEST_CASE("one rank's short limit ends the wait of all") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes = run_job(w, 4, [](const shared_bootstrap& job) {
    barrier(*job);
    if (job->rank() == 3) std::this_thread::sleep_for(1000ms);
    gather_and_check(*job, 8, 1, job->rank() == 1 ? 300ms : 10s);
  });
  for (const int rank : {0, 1, 2}) {
    const outcome& o = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank, o.kind, o.text);
    CHECK(o.kind == "timeout_error");
    CHECK(o.says("rank 1 timed out after 300 ms"));
    CHECK(o.says("rank 3"));
    CHECK(o.took < 5s);
  }
  CHECK(outcomes[3].kind == "remote_error");
  CHECK(outcomes[3].culprit == 1);
}

TEST_CASE("a rank that ends with an error turns the others' wait into remote_error") {
  const way w = any_way();
  const int culprit = GENERATE(0, 1, 2);
  CAPTURE(to_string(w), culprit);
  const auto outcomes = run_job(w, 3, [&](const shared_bootstrap& job) {
    barrier(*job);
    if (job->rank() == culprit) throw std::runtime_error("on purpose");
    gather_and_check(*job, 8, 1, 10s);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const outcome& o = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank, o.kind, o.text);
    CHECK(o.took < 3s);
    if (rank == culprit) {
      CHECK(o.text == "on purpose");
      continue;
    }
    CHECK(o.kind == "remote_error");
    CHECK(o.culprit == culprit);
    CHECK(o.says("rank " + std::to_string(culprit)));
  }
}

TEST_CASE("a killed process is named to all others at once") {
  const int culprit = GENERATE(0, 2);
  CAPTURE(culprit);
  const auto outcomes = run_job(way::tcp_processes, 4, [&](const shared_bootstrap& job) {
    barrier(*job);
    if (job->rank() == culprit) {
      std::this_thread::sleep_for(200ms);
      ::kill(::getpid(), SIGKILL);
    }
    gather_and_check(*job, 8, 1, 20s);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const outcome& o = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank, o.kind, o.text);
    if (rank == culprit) {
      CHECK(o.kind == "signal");
      continue;
    }
    CHECK(o.kind == "remote_error");
    CHECK(o.culprit == culprit);
    CHECK(o.took < 5s);
  }
}

TEST_CASE("different sizes are an error of all ranks, and the job goes on") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes = run_job(w, 3, [](const shared_bootstrap& job) {
    const outcome first = outcome_of([&] { gather_and_check(*job, job->rank() == 2 ? 16 : 8, 1, 5s); });
    gather_and_check(*job, 8, 2, 5s);
    if (first.kind != "invalid_argument") throw std::runtime_error("no invalid_argument but " + first.kind);
    if (!first.says("rank 0 gave 8 bytes and rank 2 gave 16")) throw std::runtime_error("unclear: " + first.text);
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("wrong arguments of one rank are its error, the others hear of it, and the job goes on") {
  const way w = any_way();
  const int culprit = GENERATE(0, 1);
  CAPTURE(to_string(w), culprit);
  const auto outcomes = run_job(w, 3, [&](const shared_bootstrap& job) {
    const outcome first = outcome_of([&] {
      if (job->rank() != culprit) return gather_and_check(*job, 8, 1, 5s);
      std::vector<std::byte> mine(8);
      std::vector<std::byte> all(23);
      job->all_gather(mine, all, 5s);
    });
    gather_and_check(*job, 8, 2, 5s);
    const bool mine = job->rank() == culprit;
    if (first.kind != (mine ? "invalid_argument" : "remote_error")) throw std::runtime_error("got " + first.kind);
    if (!mine && first.culprit != culprit) throw std::runtime_error("wrong culprit");
    if (!first.says("23 bytes is not 3 times 8")) throw std::runtime_error("unclear: " + first.text);
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("a contribution above the bound is refused by name") {
  const way w = any_way();
  CAPTURE(to_string(w));
  const auto outcomes =
      run_job(w, 1, [](const shared_bootstrap& job) { gather_and_check(*job, (std::size_t{16} << 20) + 1, 1, 5s); });
  CHECK(outcomes[0].kind == "invalid_argument");
  CHECK(outcomes[0].says("gather them in pieces"));
}

TEST_CASE("a job leaves no descriptor open, however it ends") {
  const int ending = GENERATE(0, 1, 2);
  // Earlier ids of this process still hold ports; from now on each new one replaces one.
  for (int i = 0; i < 16; ++i) static_cast<void>(devcomm::host::unique_id::create());
  REQUIRE(first_failure(run_job(way::tcp_threads, 1, [](const shared_bootstrap& job) { barrier(*job); })) == "");
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    const auto outcomes = run_job(way::tcp_threads, 3, [&](const shared_bootstrap& job) {
      barrier(*job);
      if (ending == 1 && job->rank() == 1) throw std::runtime_error("on purpose");
      if (ending == 2 && job->rank() == 2) return;
      gather_and_check(*job, 100, 1, 200ms);
    });
    REQUIRE(outcomes.size() == 3);
  }
  CHECK(open_descriptors() == before);
}
