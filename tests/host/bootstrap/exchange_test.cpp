// The laws of bootstrap::exchange, and what rank 0 sends.
#include "bootstrap/tcp/gather_wire.hpp"
#include "bootstrap/tcp/retry_pauses.hpp"
#include "job_harness.hpp"
#include "sent_bytes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <stdexcept>

using namespace devcomm_test;
using devcomm::host::bootstrap;
using namespace devcomm::host::detail;

namespace {

std::vector<std::byte> bytes_of_rank(int rank, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(rank * 31 + static_cast<int>(i % 113) + 1);
  return bytes;
}

bootstrap::group_name name(int group) {
  bootstrap::group_name made{};
  made[3] = static_cast<std::byte>(group + 1);
  return made;
}

void require(bool holds, const std::string& law) {
  if (!holds) throw std::runtime_error(law);
}

/// Ranks are in groups by their remainder; all that arrives is checked.
void exchange_and_check(bootstrap& job, int groups, std::size_t note, std::size_t part) {
  std::vector<std::byte> notes(note * static_cast<std::size_t>(job.size()));
  const auto found = job.exchange(bytes_of_rank(job.rank(), note), notes, name(job.rank() % groups),
                                  bytes_of_rank(job.rank() + 5, part), 20s);
  std::vector<int> members;
  std::vector<std::byte> parts;
  std::vector<std::byte> all;
  for (int rank = 0; rank < job.size(); ++rank) {
    const auto theirs = bytes_of_rank(rank, note);
    all.insert(all.end(), theirs.begin(), theirs.end());
    if (rank % groups != job.rank() % groups) continue;
    members.push_back(rank);
    const auto mine = bytes_of_rank(rank + 5, part);
    parts.insert(parts.end(), mine.begin(), mine.end());
  }
  require(notes == all, "every rank gets the notes of all in rank order");
  require(found.ranks == members, "a group has the ranks that gave its name");
  require(found.parts == parts, "a group's parts are in the order of its ranks");
}

/// What rank 0 sends to each of the other ranks in `step`, which all ranks take; the bytes of a frame's head and proof
/// included.
std::uint64_t sent_to_each_once(int ranks, const job_body& step) {
  const auto outcomes = run_job(way::tcp_processes, ranks, [&](const shared_bootstrap& job) {
    const std::uint64_t before = sent_bytes();
    step(job);
    if (job->rank() == 0) {
      throw std::runtime_error(std::to_string((sent_bytes() - before) / static_cast<unsigned>(ranks - 1)));
    }
  });
  CAPTURE(outcomes[0].text);
  REQUIRE(outcomes[0].kind == "other");
  return std::stoull(outcomes[0].text);
}

/// The least of five times: on a busy machine rank 0 also tells the others for whom it waits.
std::uint64_t sent_to_each(int ranks, const job_body& step) {
  std::uint64_t least = sent_to_each_once(ranks, step);
  for (int i = 0; i < 4; ++i) least = std::min(least, sent_to_each_once(ranks, step));
  return least;
}

contribution of(const bootstrap::group_name& group, const std::vector<std::byte>& note,
                const std::vector<std::byte>& mine) {
  return {group, note, mine};
}

}  // namespace

TEST_CASE("exchange gives all ranks the notes and each group its parts") {
  const way w = GENERATE(way::threads, way::tcp_threads, way::tcp_processes);
  const int ranks = GENERATE(1, 2, 3, 4, 7, 8);
  CAPTURE(to_string(w), ranks);
  const auto outcomes = run_job(w, ranks, [](const shared_bootstrap& job) {
    for (const int groups : {1, 2, 3, 8}) {
      for (const std::size_t note : {0U, 1U, 500U}) {
        for (const std::size_t part : {0U, 7U, 40'000U}) exchange_and_check(*job, groups, note, part);
      }
      gather_and_check(*job, 9, 3);
    }
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("rank 0 sends a rank the parts of its own group only") {
  const std::uint64_t sent = sent_to_each(8, [](const shared_bootstrap& job) { exchange_and_check(*job, 4, 4, 5000); });
  CHECK(sent >= 2 * 5000);
  CHECK(sent < 2 * 5000 + 300);
}

TEST_CASE("what is for rank 0 reaches no other rank, and rank 0 sends none of it") {
  const std::size_t part = 10'000;
  const auto to_first = [](const shared_bootstrap& job) {
    std::vector<std::byte> notes(static_cast<std::size_t>(job->size()));
    const auto found = job->exchange(bytes_of_rank(job->rank(), 1), notes, bootstrap::for_first_rank,
                                     bytes_of_rank(job->rank(), part), 20s);
    require(found.ranks.size() == (job->rank() == 0 ? static_cast<std::size_t>(job->size()) : 0u), "rank 0 gets them");
    for (const int rank : found.ranks) {
      const auto theirs = std::span(found.parts).subspan(static_cast<std::size_t>(rank) * part, part);
      require(std::ranges::equal(theirs, bytes_of_rank(rank, part)), "in the order of the ranks");
    }
  };
  CHECK(sent_to_each(5, to_first) < 500);
  REQUIRE(first_failure(run_job(way::threads, 5, to_first)) == "");
  REQUIRE(first_failure(run_job(way::tcp_processes, 5, to_first)) == "");
}

TEST_CASE("rank 0 sends once what all ranks gave alike") {
  const std::uint64_t sent = sent_to_each(8, [](const shared_bootstrap& job) {
    const auto same = bytes_of_rank(1, 5000);
    std::vector<std::byte> all(8 * same.size());
    job->all_gather(same, all, 20s);
    for (std::size_t i = 0; i < 8; ++i) {
      require(std::equal(same.begin(), same.end(), all.begin() + static_cast<std::ptrdiff_t>(i * same.size())),
              "equal bytes arrive from every rank");
    }
  });
  CHECK(sent >= 5000);
  CHECK(sent < 5000 + 200);
}

TEST_CASE("ranks that exchange while others gather are named, and the job goes on") {
  const auto outcomes = run_job(way::tcp_threads, 3, [](const shared_bootstrap& job) {
    const outcome mixed = outcome_of([&] {
      if (job->rank() == 1) {
        std::vector<std::byte> notes(3 * 8);
        static_cast<void>(job->exchange(bytes_of_rank(1, 8), notes, name(0), {}, 20s));
      } else {
        gather_and_check(*job, 8, 1);
      }
    });
    require(mixed.kind == "invalid_argument" && mixed.says("rank 1") && mixed.says("same calls"), mixed.text);
    const outcome unnamed = outcome_of([&] {
      std::vector<std::byte> notes(3 * 8);
      static_cast<void>(job->exchange(bytes_of_rank(1, 8), notes, bootstrap::group_name{}, {}, 20s));
    });
    require(unnamed.kind == "invalid_argument" && unnamed.says("all zero"), unnamed.text);
    gather_and_check(*job, 8, 1);
  });
  REQUIRE(first_failure(outcomes) == "");
}

TEST_CASE("a result that is cut, lengthened or of other ranks is refused") {
  const auto a = bytes_of_rank(0, 20);
  const auto b = bytes_of_rank(1, 20);
  const auto part = bytes_of_rank(2, 6);
  const std::vector<contribution> all = {of(name(0), a, part), of(name(1), a, part), of(name(0), b, a)};
  std::vector<contribution> alike = {of(name(0), a, part), of(name(0), a, part), of(name(0), a, part)};
  const std::vector<std::byte> group = encode_group(alike, {0, 2});
  const auto takes_notes = [](std::span<const std::byte> data) {
    std::vector<std::byte> notes(3 * 20);
    return decode_notes(data, notes, 3) && data.empty();
  };
  for (const auto& encoded : {encode_notes(all), encode_notes(alike)}) {
    CHECK(takes_notes(encoded));
    for (std::size_t cut = 0; cut < encoded.size(); ++cut) CHECK_FALSE(takes_notes(std::span(encoded).first(cut)));
    auto wrong = encoded;
    wrong[0] ^= std::byte{4};
    CHECK_FALSE(takes_notes(wrong));
  }
  const auto found = decode_group(group, 2, 3, 6);
  REQUIRE(found);
  CHECK(found->ranks == std::vector<int>{0, 2});
  CHECK_FALSE(decode_group(group, 1, 3, 6));
  CHECK_FALSE(decode_group(group, 2, 2, 6));
  CHECK_FALSE(decode_group(group, 2, 3, 7));
  for (std::size_t cut = 0; cut < group.size(); ++cut) CHECK_FALSE(decode_group(std::span(group).first(cut), 2, 3, 6));
  auto longer = group;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_group(longer, 2, 3, 6));
}

TEST_CASE("ranks pause for different times before they try rank 0 again") {
  std::set<std::int64_t> third;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    retry_pauses pauses(1024, seed);
    std::int64_t whole = 10;
    for (int i = 0; i < 12; ++i) {
      const auto pause = pauses.next().count();
      CHECK(pause >= whole / 2);
      CHECK(pause <= whole);
      if (i == 5) third.insert(pause);
      whole = std::min<std::int64_t>(2 * whole, 200);
    }
  }
  CHECK(third.size() > 16);
}

TEST_CASE("rank 0 makes room for its ranks where the limit on open files is low") {
  constexpr int ranks = 40;
  const auto id = devcomm::host::unique_id::create();
  const auto many = on_processes(ranks, [&](int rank) {
    rlimit limit{};
    require(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    if (rank == 0) {
      limit.rlim_cur = open_descriptors() + 20;
      require(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    }
    const auto job = devcomm::host::tcp_bootstrap(id, rank, ranks, 20s);
    gather_and_check(*job, 8, 1);
  });
  CHECK(first_failure(many) == "");
}
