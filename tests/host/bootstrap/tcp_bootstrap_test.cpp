// Joining over TCP: which connections are accepted, and that unproven ones disturb nobody.
#include "job_harness.hpp"
#include "many_addresses.hpp"

#include "bootstrap/tcp/acceptor.hpp"
#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/gather_wire.hpp"
#include "bootstrap/tcp/handshake.hpp"
#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

using namespace devcomm_test;
namespace host = devcomm::host;
using host::detail::challenge;
using host::detail::deadline;
using host::detail::hello;
using host::detail::transcript;
using host::detail::unique_fd;
using host::detail::verdict;

namespace {

using clock = std::chrono::steady_clock;

/// A connection to rank 0, made as soon as it listens.
unique_fd knock(const host::unique_id& id) {
  const deadline until(5s);
  std::string problem;
  while (!until.passed()) {
    for (const auto& address : host::detail::resolve(id.host(), id.port(), until, problem)) {
      if (unique_fd fd = host::detail::connect_to(address, until, problem)) return fd;
    }
    std::this_thread::sleep_for(5ms);
  }
  throw std::runtime_error("rank 0 does not listen: " + problem);
}

void say(const unique_fd& fd, std::span<const std::byte> data) {
  std::string problem;
  static_cast<void>(host::detail::send_all(fd.get(), data, deadline(2s), problem));
}

void say(const unique_fd& fd, const std::string& text) { say(fd, std::as_bytes(std::span(text.data(), text.size()))); }

/// Whether rank 0 ends the connection within `limit`, whatever it says before.
bool is_dropped(const unique_fd& fd, std::chrono::milliseconds limit) {
  std::array<std::byte, 256> ignored;
  std::string problem;
  while (host::detail::receive_all(fd.get(), std::span(ignored).first(1), deadline(limit), problem)) continue;
  return problem != "no answer in time";
}

hello hello_for(std::uint32_t rank, std::uint32_t size) {
  hello h;
  h.rank = rank;
  h.size = size;
  h.fresh = host::detail::random_value<host::detail::nonce>();
  return h;
}

challenge hear_challenge(const unique_fd& fd) {
  std::array<std::byte, challenge::wire_bytes> data;
  std::string problem;
  REQUIRE(host::detail::receive_all(fd.get(), data, deadline(5s), problem));
  return challenge::decode(data).value();
}

verdict::head hear_verdict(const unique_fd& fd) {
  std::array<std::byte, verdict::head_bytes> data;
  std::string problem;
  REQUIRE(host::detail::receive_all(fd.get(), data, deadline(5s), problem));
  return verdict::decode_head(data).value();
}

/// Gets in as a genuine rank.
transcript prove(const unique_fd& fd, const host::unique_id& id, std::uint32_t rank, std::uint32_t size) {
  const hello said = hello_for(rank, size);
  say(fd, said.encode());
  const transcript seen(said, hear_challenge(fd));
  say(fd, seen.rank_proof(id.secret()));
  REQUIRE(hear_verdict(fd).outcome == verdict::code::accepted);
  return seen;
}

/// Rank 0 of 2 in a thread of its own; `finish` brings rank 1 and tells how both fared.
class waiting_job {
 public:
  explicit waiting_job(const std::string& address = "127.0.0.1")
      : id(host::unique_id::create(address)), root_(std::async(std::launch::async, [this] { return run(0); })) {}

  std::vector<outcome> finish() {
    outcome one = run(1);
    return {root_.get(), one};
  }

  const host::unique_id id;

 private:
  outcome run(int rank) {
    return outcome_of([&] {
      const auto job = host::tcp_bootstrap(id, rank, 2, 20s);
      gather_and_check(*job, 100, 1);
    });
  }

  std::future<outcome> root_;
};

void check_undisturbed(waiting_job& job) {
  const auto outcomes = job.finish();
  CHECK(first_failure(outcomes) == "");
  // A slow or silent connection has 5 s to prove the secret.
  CHECK(outcomes[1].took < 2500ms);
}

std::vector<std::byte> join(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<std::byte> both(a.begin(), a.end());
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

}  // namespace

TEST_CASE("ranks join at IPv4 and IPv6 addresses and at names") {
  const std::string address = GENERATE("127.0.0.1", "::1", "localhost");
  CAPTURE(address);
  waiting_job job(address);
  check_undisturbed(job);
}

TEST_CASE("ranks may start in any order") {
  const auto id = host::unique_id::create();
  const auto outcomes = on_processes(4, [&](int rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds((3 - rank) * 150));
    gather_and_check(*host::tcp_bootstrap(id, rank, 4, 10s), 10, 1);
  });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("one id serves one job after another") {
  const auto id = host::unique_id::create();
  for (int i = 0; i < 5; ++i) {
    const auto outcomes =
        on_threads(3, [&](int rank) { gather_and_check(*host::tcp_bootstrap(id, rank, 3, 10s), 10, 1); });
    REQUIRE(first_failure(outcomes) == "");
  }
}

TEST_CASE("many ranks join at once") {
  const auto id = host::unique_id::create();
  const auto outcomes =
      on_threads(48, [&](int rank) { gather_and_check(*host::tcp_bootstrap(id, rank, 48, 20s), 10, 1); });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("unproven connections neither disturb nor delay a job") {
  waiting_job job;
  std::vector<unique_fd> open;

  SECTION("that leave at once") {
    for (int i = 0; i < 20; ++i) static_cast<void>(knock(job.id));
  }
  SECTION("that reset the connection") {
    for (int i = 0; i < 20; ++i) {
      const unique_fd fd = knock(job.id);
      const linger now{1, 0};
      REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    }
  }
  SECTION("that stay silent") {
    for (int i = 0; i < 20; ++i) open.push_back(knock(job.id));
  }
  SECTION("that stay silent in their hundreds") {
    for (int i = 0; i < 300; ++i) open.push_back(knock(job.id));
  }
  SECTION("that speak another protocol") {
    open.push_back(knock(job.id));
    say(open.back(), "GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: a test of manners\r\n\r\n");
    CHECK(is_dropped(open.back(), 2s));
  }
  SECTION("that send far too much") {
    open.push_back(knock(job.id));
    say(open.back(), std::string(4 << 20, 'x'));
    CHECK(is_dropped(open.back(), 2s));
  }
  SECTION("that stop in the middle of a hello") {
    open.push_back(knock(job.id));
    const auto data = hello_for(1, 2).encode();
    say(open.back(), std::span(data).first(20));
  }
  SECTION("that stop after the hello") {
    open.push_back(knock(job.id));
    say(open.back(), hello_for(1, 2).encode());
    static_cast<void>(hear_challenge(open.back()));
  }
  SECTION("that speak another version") {
    open.push_back(knock(job.id));
    hello h = hello_for(1, 2);
    h.version = 99;
    say(open.back(), h.encode());
    static_cast<void>(hear_challenge(open.back()));
    CHECK(is_dropped(open.back(), 2s));
  }
  SECTION("that guess the proof") {
    open.push_back(knock(job.id));
    say(open.back(), hello_for(1, 2).encode());
    static_cast<void>(hear_challenge(open.back()));
    say(open.back(), std::string(32, 'x'));
    CHECK(hear_verdict(open.back()).outcome == verdict::code::unproven);
    CHECK(is_dropped(open.back(), 2s));
  }
  SECTION("that send everything in one piece") {
    open.push_back(knock(job.id));
    say(open.back(), join(hello_for(1, 2).encode(), std::vector<std::byte>(5000)));
    CHECK(is_dropped(open.back(), 2s));
  }
  check_undisturbed(job);
}

TEST_CASE("a recorded conversation does not get in again") {
  const auto id = host::unique_id::create();
  const hello said = hello_for(1, 3);
  host::detail::digest proof{};
  {
    // The genuine conversation: rank 1 gets in, and the job fails when it leaves.
    auto root = std::async(std::launch::async,
                           [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 3, 10s)); }); });
    const unique_fd fd = knock(id);
    say(fd, said.encode());
    proof = transcript(said, hear_challenge(fd)).rank_proof(id.secret());
    say(fd, proof);
    REQUIRE(hear_verdict(fd).outcome == verdict::code::accepted);
    ::shutdown(fd.get(), SHUT_RDWR);
    const outcome o = root.get();
    CHECK(o.kind == "remote_error");
    CHECK(o.culprit == 1);
  }
  auto root = std::async(std::launch::async,
                         [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 3, 1s)); }); });
  const unique_fd fd = knock(id);
  say(fd, join(said.encode(), proof));
  static_cast<void>(hear_challenge(fd));
  CHECK(hear_verdict(fd).outcome == verdict::code::unproven);
  const outcome o = root.get();
  CHECK(o.kind == "timeout_error");
  CHECK(o.says("ranks 1 and 2 to join"));
  CHECK(o.says("it has another secret"));
}

TEST_CASE("a slow connection is dropped after its limit, and is named when the job times out") {
  const auto id = host::unique_id::create();
  auto root = std::async(std::launch::async,
                         [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 2, 6500ms)); }); });
  const unique_fd fd = knock(id);
  const auto start = clock::now();
  const auto data = hello_for(1, 2).encode();
  std::string problem;
  for (std::size_t i = 0; i < data.size() && clock::now() - start < 6s; ++i) {
    if (!host::detail::send_all(fd.get(), std::span(data).subspan(i, 1), deadline(1s), problem)) break;
    std::this_thread::sleep_for(150ms);
  }
  const auto took = clock::now() - start;
  CHECK(took > 4s);
  CHECK(took < 6s);
  const outcome o = root.get();
  CHECK(o.kind == "timeout_error");
  CHECK(o.says("rank 1 to join"));
  CHECK(o.says("did not prove the secret within 5 s"));
}

TEST_CASE("a missing rank is named to rank 0 and to all who joined") {
  const auto id = host::unique_id::create();
  const auto outcomes = on_processes(4, [&](int rank) {
    if (rank == 2) return;
    static_cast<void>(host::tcp_bootstrap(id, rank, 4, 1s));
  });
  for (const std::size_t rank : {0U, 1U, 3U}) {
    CAPTURE(rank, outcomes[rank].text);
    CHECK(outcomes[rank].kind == "timeout_error");
    CHECK(outcomes[rank].says("tcp_bootstrap on rank " + std::to_string(rank) + " of 4"));
    CHECK(outcomes[rank].says("rank 2"));
    CHECK(outcomes[rank].took < 3s);
  }
}

TEST_CASE("without rank 0 a rank names its address within the limit") {
  const auto id = host::unique_id::create();
  const outcome o = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 2, 400ms)); });
  CHECK(o.kind == "timeout_error");
  CHECK(o.says("127.0.0.1:" + std::to_string(id.port())));
  CHECK(o.says("Connection refused"));
  CHECK(o.took < 2s);
}

TEST_CASE("a name that nobody knows is an error within the limit") {
  const host::unique_id id("no-such-host.invalid", 29500, {});
  const outcome o = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 2, 500ms)); });
  CHECK(o.kind == "timeout_error");
  CHECK(o.says("no-such-host.invalid"));
  CHECK(o.took < 2s);
}

TEST_CASE("a wrong secret is the error of who has it") {
  waiting_job job;
  auto secret = job.id.secret();
  secret[5] ^= std::byte{1};
  const host::unique_id wrong(job.id.host(), job.id.port(), secret);
  const outcome o = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(wrong, 1, 2, 700ms)); });
  CAPTURE(o.text);
  CHECK(o.kind == "invalid_argument");
  CHECK(o.says("has another secret"));
  CHECK(o.says("rank 1 of 2"));
  CHECK(o.took < 2s);
  check_undisturbed(job);
}

TEST_CASE("a listener that is no rank 0 gets no proof and is named") {
  const auto fake = host::detail::bind_for("127.0.0.1", 0, "test");
  REQUIRE(::listen(fake.get(), 5) == 0);
  const std::uint16_t port = host::detail::bound_port(fake.get());
  std::size_t heard = 0;
  std::thread impostor([&] {
    std::string peer;
    unique_fd fd;
    const deadline until(3s);
    while (!fd && !until.passed()) {
      fd = host::detail::accept_from(fake.get(), peer);
      std::this_thread::sleep_for(2ms);
    }
    say(fd, std::string(verdict::head_bytes + challenge::wire_bytes, 'x'));
    std::array<std::byte, 1> one;
    std::string problem;
    while (host::detail::receive_all(fd.get(), one, deadline(1s), problem)) ++heard;
  });
  const host::unique_id id("127.0.0.1", port, {});
  const outcome o = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 2, 300ms)); });
  impostor.join();
  CAPTURE(o.kind, o.text);
  CHECK_FALSE(o.ok());
  CHECK(o.says("127.0.0.1:" + std::to_string(port)));
  CHECK(heard == hello::wire_bytes);
}

TEST_CASE("rank 0 is found at each of the addresses of its host, however silent the others are") {
  const bool challenges = GENERATE(false, true);  // an impostor, and waits for ever
  CAPTURE(challenges);
  const auto id = host::unique_id::create("127.0.0.1");
  const auto beside = host::detail::bind_for("127.0.0.2", id.port(), "test");
  REQUIRE(::listen(beside.get(), 64) == 0);
  std::atomic<bool> over = false;
  std::thread impostor([&] {
    std::vector<unique_fd> open;
    std::string peer;
    for (; !over; std::this_thread::sleep_for(2ms)) {
      unique_fd fd = host::detail::accept_from(beside.get(), peer);
      if (!fd) continue;
      if (challenges) say(fd, challenge().encode());
      open.push_back(std::move(fd));
    }
  });
  const host_with_addresses named({"127.0.0.2", "127.0.0.1"});
  const auto outcomes = on_threads(2, [&](int rank) {
    const host::unique_id by_name(host_with_addresses::name(), id.port(), id.secret());
    gather_and_check(*host::tcp_bootstrap(rank == 0 ? id : by_name, rank, 2, 6s), 10, 1);
  });
  over = true;
  impostor.join();
  CHECK(first_failure(outcomes) == "");
  CHECK(outcomes[1].took < 5s);
}

TEST_CASE("an impostor that grants entry without the secret is not believed") {
  const auto fake = host::detail::bind_for("127.0.0.1", 0, "test");
  REQUIRE(::listen(fake.get(), 64) == 0);
  const host::unique_id id("127.0.0.1", host::detail::bound_port(fake.get()), {});
  std::thread impostor([&] {
    std::string peer;
    std::string problem;
    std::array<std::byte, hello::wire_bytes> said;
    std::array<std::byte, 32> proof;
    for (const deadline until(1500ms); !until.passed(); std::this_thread::sleep_for(2ms)) {
      const unique_fd fd = host::detail::accept_from(fake.get(), peer);
      if (!fd || !host::detail::receive_all(fd.get(), said, deadline(1s), problem)) continue;
      const challenge asked;
      say(fd, asked.encode());
      if (!host::detail::receive_all(fd.get(), proof, deadline(1s), problem)) continue;
      const std::vector<std::byte> guess(16, std::byte{0x77});
      say(fd, verdict{verdict::code::accepted, ""}.encode(transcript(*hello::decode(said), asked), guess));
    }
  });
  const outcome o = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 2, 500ms)); });
  impostor.join();
  CAPTURE(o.text);
  CHECK(o.kind == "invalid_argument");
  CHECK(o.says("has another secret"));
}

TEST_CASE("a second process with one rank is refused, and the first stays") {
  const auto id = host::unique_id::create();
  auto root = std::async(std::launch::async, [&] {
    return outcome_of([&] { gather_and_check(*host::tcp_bootstrap(id, 0, 3, 10s), 10, 1); });
  });
  auto first = std::async(std::launch::async, [&] {
    return outcome_of([&] { gather_and_check(*host::tcp_bootstrap(id, 1, 3, 10s), 10, 1); });
  });
  std::this_thread::sleep_for(400ms);
  const outcome second = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 3, 5s)); });
  CHECK(second.kind == "invalid_argument");
  CHECK(second.says("rank 1 has already joined from 127.0.0.1:"));
  CHECK(second.took < 2s);
  const outcome last = outcome_of([&] { gather_and_check(*host::tcp_bootstrap(id, 2, 3, 10s), 10, 1); });
  CHECK(first_failure({root.get(), first.get(), last}) == "");
}

TEST_CASE("of two processes that prove one rank at the same moment, one joins") {
  const auto id = host::unique_id::create();
  host::detail::acceptor acceptor(host::detail::bind_for("127.0.0.1", id.port(), "test"), 3, id.secret());
  const auto serve = [&] {
    std::vector<pollfd> entries;
    acceptor.add_to(entries);
    REQUIRE(::poll(entries.data(), entries.size(), 5000) > 0);
    return acceptor.serve(entries, 0);
  };
  std::array<unique_fd, 2> twins;
  std::vector<host::detail::digest> proofs;
  const hello said = hello_for(1, 3);
  for (unique_fd& fd : twins) {
    fd = knock(id);
    say(fd, said.encode());
    for (int step = 0; step < 2; ++step) CHECK(serve().empty());  // the connection, then its hello
    proofs.push_back(transcript(said, hear_challenge(fd)).rank_proof(id.secret()));
  }
  for (std::size_t i = 0; i < twins.size(); ++i) say(twins[i], proofs[i]);
  CHECK(serve().size() == 1);
  CHECK(hear_verdict(twins[0]).outcome == verdict::code::accepted);
  CHECK(hear_verdict(twins[1]).outcome == verdict::code::refused);
  CHECK(acceptor.refusals().find("rank 1 has already joined from 127.0.0.1:") != std::string::npos);
}

TEST_CASE("a rank of another size ends the job at once, and all are told both sizes") {
  const auto id = host::unique_id::create();
  const auto start = [&](int rank, int size) {
    return std::async(std::launch::async, [&id, rank, size] {
      return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, rank, size, 20s)); });
    });
  };
  auto root = start(0, 4);
  auto joined = start(2, 4);
  std::this_thread::sleep_for(300ms);
  const outcome other = start(1, 3).get();
  auto late = start(3, 4);
  CHECK(other.kind == "invalid_argument");
  CHECK(other.says("it is rank 1 of 3, but rank 0 was started for 4; start all ranks with one size"));
  for (const outcome& o : {root.get(), joined.get()}) {
    CAPTURE(o.text);
    CHECK(o.kind == "invalid_argument");
    CHECK(o.says("was started as rank 1 of 3, but rank 0 for 4 ranks; start all ranks with one size"));
    CHECK(o.took < 3s);
  }
  const outcome last = late.get();
  CAPTURE(last.text);
  CHECK(last.says("was started as rank 1 of 3, but rank 0 for 4 ranks"));
  CHECK(last.took < 3s);
}

TEST_CASE("rank 0 names a second process with one rank when the first ends, and when it times out") {
  const bool ends = GENERATE(true, false);
  const auto id = host::unique_id::create();
  auto root = std::async(std::launch::async,
                         [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 3, 2s)); }); });
  auto twin = knock(id);
  static_cast<void>(prove(twin, id, 1, 3));
  const outcome second = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 3, 5s)); });
  CHECK(second.kind == "invalid_argument");
  if (ends) twin.reset();  // as where a launcher ends all when one fails
  const outcome zero = root.get();
  CAPTURE(zero.text);
  CHECK(zero.kind == (ends ? "remote_error" : "timeout_error"));
  CHECK(zero.says("refused so far: 127.0.0.1:"));
  CHECK(zero.says("rank 1 has already joined from 127.0.0.1:"));
  CHECK(zero.says("give every process a rank of its own"));
}

TEST_CASE("rank 0 names a second process with one rank when the first runs out of time") {
  const auto id = host::unique_id::create();
  auto root = std::async(std::launch::async,
                         [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 3, 10s)); }); });
  auto first = std::async(std::launch::async,
                          [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 3, 1s)); }); });
  std::this_thread::sleep_for(300ms);
  const outcome second = outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 1, 3, 5s)); });
  CHECK(second.kind == "invalid_argument");
  CHECK(first.get().kind == "timeout_error");
  const outcome zero = root.get();
  CAPTURE(zero.text);
  CHECK(zero.says("refused so far: 127.0.0.1:"));
  CHECK(zero.says("rank 1 has already joined from 127.0.0.1:"));
}

TEST_CASE("a rank outside the job is refused by rank 0 itself") {
  waiting_job job;
  for (const std::uint32_t rank : {0U, 2U, 0x80000001U}) {
    CAPTURE(rank);
    const unique_fd fd = knock(job.id);
    const hello said = hello_for(rank, 2);
    say(fd, said.encode());
    say(fd, transcript(said, hear_challenge(fd)).rank_proof(job.id.secret()));
    CHECK(hear_verdict(fd).outcome == verdict::code::refused);
    CHECK(is_dropped(fd, 2s));
  }
  check_undisturbed(job);
}

TEST_CASE("ranks and sizes that make no sense are refused before anything is opened") {
  const auto id = host::unique_id::create();
  for (const auto& [rank, size] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    CAPTURE(rank, size);
    CHECK_THROWS_AS(host::tcp_bootstrap(id, rank, size, 1s), host::invalid_argument);
  }
}

TEST_CASE("a second rank 0 is told that its address is taken") {
  waiting_job job;
  static_cast<void>(knock(job.id));
  const outcome o = outcome_of([&] {
    const host::unique_id again = host::unique_id::parse(job.id.to_string());
    static_cast<void>(host::tcp_bootstrap(again, 0, 2, 1s));
  });
  CHECK(o.kind == "system_error");
  CHECK(o.says("another rank 0"));
  check_undisturbed(job);
}

TEST_CASE("a rank that proves the secret and then talks nonsense is named") {
  const auto id = host::unique_id::create();
  auto root = std::async(std::launch::async,
                         [&] { return outcome_of([&] { static_cast<void>(host::tcp_bootstrap(id, 0, 3, 5s)); }); });
  const unique_fd fd = knock(id);
  static_cast<void>(prove(fd, id, 2, 3));
  say(fd, std::string(200, '\xff'));
  const outcome o = root.get();
  CHECK(o.kind == "remote_error");
  CHECK(o.culprit == 2);
  CHECK(o.took < 3s);
}

TEST_CASE("a rank that does not read its result is named within the limit") {
  const auto id = host::unique_id::create();
  constexpr std::size_t bytes = std::size_t{4} << 20;
  auto root = std::async(std::launch::async, [&] {
    return outcome_of([&] {
      const auto job = host::tcp_bootstrap(id, 0, 2, 5s);
      gather_and_check(*job, 0, 1);
      std::vector<std::byte> mine(bytes);
      std::vector<std::byte> all(2 * bytes);
      // Long enough for an unoptimized build to get as far as the result.
      job->all_gather(mine, all, 8s);
    });
  });
  unique_fd fd = knock(id);
  const int small = 4096;
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  const transcript seen = prove(fd, id, 1, 2);
  host::detail::frame_stream rank(std::move(fd), seen.key_of_rank(id.secret()), seen.key_of_root(id.secret()));
  const auto send_part = [&](std::uint32_t round, std::size_t size) {
    const std::vector<std::byte> note(size);
    host::detail::contribution mine;
    mine.note = note;
    rank.queue(host::detail::frame_type::part, round, host::detail::shared_payload(mine.encode()));
    for (rank.flush(); rank.unsent(); rank.flush()) std::this_thread::sleep_for(1ms);
  };
  for (std::uint32_t round = 0; round < 2; ++round) {
    send_part(round, 0);
    while (!rank.receive() && !rank.closed()) std::this_thread::sleep_for(1ms);
  }
  send_part(2, bytes);
  const outcome o = root.get();
  CAPTURE(o.text);
  CHECK(o.kind == "timeout_error");
  CHECK(o.says("waiting for rank 1 to read the result"));
  CHECK(o.took < 15s);
}

TEST_CASE("failed joins leave no descriptor open") {
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    const auto id = host::unique_id::create();
    const auto outcomes = on_threads(3, [&](int rank) {
      if (rank == 2) {
        const unique_fd silent = knock(id);
        say(silent, "nonsense");
        std::this_thread::sleep_for(200ms);
        return;
      }
      static_cast<void>(host::tcp_bootstrap(id, rank, 3, 500ms));
    });
    CHECK(outcomes[0].kind == "timeout_error");
    CHECK(outcomes[1].kind == "timeout_error");
  }
  CHECK(open_descriptors() == before);
}
