// Every interleaving of the comparison of launches at a barrier, whose stores, loads and fences are hidden elsewhere.
#include "exhaustive/bench.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <mutex>
#include <set>
#include <vector>

using namespace exhaustive;

namespace {

/// Counts the outcomes of an execution.
__device__ void note(std::uint32_t* result, status outcome) { result[static_cast<int>(outcome)] += 1; }

/// Sessions of one barrier, each of another key, as launches that follow one another have; the last has `last`.
__global__ void meet(device_comm comm, std::uint64_t sessions, std::uint64_t last, std::uint32_t* result) {
  for (std::uint64_t n = 1; n <= sessions; ++n) {
    lsa::barrier_session barrier{thread{}, comm.with_launch_key(n < sessions ? n : last), 0};
    barrier.sync(memory_order::relaxed);
    note(result, barrier.agree());
  }
}

/// A round of packets, of one key.
__global__ void send(device_comm comm, lsa::ll_handle mailboxes, std::uint64_t key, std::uint32_t* result) {
  lsa::ll_session session{thread{}, comm.with_launch_key(key), mailboxes, 0};
  session.begin_round();
  session.send(1 - comm.rank, 0, 5);
  std::uint64_t got[1][1];
  session.receive(1 - comm.rank, 2 - comm.rank, 0, got);
  note(result, session.agree());
}

std::uint32_t count(const bench& b, int rank, status outcome) { return b.result(rank)[static_cast<int>(outcome)]; }

constexpr std::uint64_t sessions = 3;

sim::exploration_result explore_barrier(bool differ) {
  return explore(
      2, {}, true, [](requirements& needs) { needs.lsa_barriers(1); },
      [=](const bench& b) {
        b.on_each_rank([&](int rank) {
          devcomm::launch(meet, {}, b.comm(rank), sessions, std::uint64_t{differ && rank == 1 ? 99u : 50u},
                          b.result(rank));
        });
        b.finish();
        for (int rank = 0; rank < b.size(); ++rank) {
          const std::uint32_t well = count(b, rank, status::success);
          const std::uint32_t told = count(b, rank, status::mismatch) + count(b, rank, status::aborted);
          const std::string of_rank = " on rank " + std::to_string(rank);
          b.require(well == sessions - (differ ? 1 : 0), std::to_string(well) + " sessions pass the check" + of_rank);
          b.require(told == (differ ? 1u : 0u), std::to_string(told) + " sessions do not" + of_rank);
        }
        b.restore();  // the failures have been seen
      });
}

sim::exploration_result explore_packets(bool differ) {
  const auto mailboxes = std::make_shared<lsa::ll_handle>();
  return explore(
      2, {}, true,
      [=](requirements& needs) {
        *mailboxes = needs.add(lsa::ll_mailboxes{{0, 2, 0, 1}, 1, 1});
      },
      [=](const bench& b) {
        b.on_each_rank([&](int rank) {
          devcomm::launch(send, {}, b.comm(rank), *mailboxes, std::uint64_t{differ && rank == 1 ? 99u : 50u},
                          b.result(rank));
        });
        b.finish();
        for (int rank = 0; rank < b.size(); ++rank) {
          const std::uint32_t told = count(b, rank, status::mismatch) + count(b, rank, status::aborted);
          b.require(told == (differ ? 1u : 0u), std::to_string(told) + " differences on rank " + std::to_string(rank));
        }
        b.restore();
      });
}

// --- the network ---

enum class act : std::uint32_t {
  store,
  load,
  put,
  put_weak,
  put_strong,
  value,
  get,
  weak,
  strong,
  set,
  read,
  flush,
  fence
};
constexpr std::uint32_t acts = 13;
constexpr int acts_of_rank = 4;
constexpr std::size_t programs = 60;

/// What both ranks do, one act after the other, each with one of two words.
struct program {
  act what[2][acts_of_rank];
  std::uint32_t word[2][acts_of_rank];
};

/// Words 0 and 1 of a rank are put to, got to and loaded; 2 and 3 are stored and loaded, put and got from. What is
/// loaded or read goes to the result, 1 more; `settles` waits until nothing is on its way any more.
__global__ void act_out(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> board, program all,
                        bool settles, std::uint32_t* result) {
  namespace arch = devcomm::arch;
  gin::context net{thread{}, comm, contexts, 0};
  const int peer = 1 - comm.rank;
  std::uint32_t* const own = board.local();
  const auto load = [](const std::uint32_t* word) { return arch::load<memory_order::acquire, scope::system>(word); };
  const std::uint64_t before = settles ? net.read_signal(0) : 0;
  for (int i = 0; i < acts_of_rank; ++i) {
    const std::uint32_t word = all.word[comm.rank][i];
    const auto send = [&](auto signal) { net.put(peer, board + word, board + (2 + word), 1, signal); };
    const std::uint32_t mine = static_cast<std::uint32_t>(10 * (comm.rank + 1) + i);
    switch (all.what[comm.rank][i]) {
      case act::store: arch::store<memory_order::release, scope::system>(own + 2 + word, mine); break;
      case act::load: result[i] = 1 + load(own + word); break;
      case act::put: send(gin::no_action{}); break;
      case act::put_weak: send(gin::signal_add{0, 1, gin::strength::weak}); break;
      case act::put_strong: send(gin::signal_add{0}); break;
      case act::value: net.put_value(peer, board + word, mine, gin::signal_add{0, 1, gin::strength::weak}); break;
      case act::get: net.get(peer, board + word, board + (2 + word), 1); break;
      case act::weak: net.signal(peer, gin::signal_add{0, 10, gin::strength::weak}); break;
      case act::strong: net.signal(peer, gin::signal_add{0, 10}); break;
      case act::set: net.signal(peer, gin::signal_set{1, mine}); break;
      case act::read:
        result[i] = static_cast<std::uint32_t>(1 + net.read_signal(word) - (word == 0 ? before : 0));
        break;
      case act::flush: net.flush(); break;
      case act::fence: net.fence(peer); break;
    }
  }
  if (!settles) return;
  net.signal(peer, gin::signal_set{1, 0});
  net.fence(peer);
  net.flush();
}

program random_program(std::uint32_t& state) {
  const auto below = [&](std::uint32_t count) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % count;
  };
  program made{};
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < acts_of_rank; ++i) {
      // A load after a load would be a poll, where nothing is stored in between.
      const auto stores = [](act what) { return what != act::load && what < act::read; };
      do made.what[rank][i] = static_cast<act>(below(acts));
      while (i > 0 && !stores(made.what[rank][i - 1]) && !stores(made.what[rank][i]));
      made.word[rank][i] = below(2);
    }
  }
  return made;
}

/// What the ranks found.
using outcome = std::vector<std::uint32_t>;

outcome run(const program& all, bool settles, const gin::context_handle& contexts, const bench& b) {
  b.on_each_rank([&](int rank) {
    devcomm::launch(act_out, {}, b.comm(rank), contexts, b.board(rank), all, settles, b.result(rank));
  });
  b.finish();
  outcome found;
  for (int rank = 0; rank < 2; ++rank) found.insert(found.end(), b.result(rank), b.result(rank) + acts_of_rank);
  return found;
}

void check(const sim::exploration_result& result) {
  INFO(result.failure);
  INFO(result.executions << " executions");
  CHECK(result.failure.empty());
  CHECK(result.complete);
}

}  // namespace

TEST_CASE("an exploration finds every outcome of the network that seeds find") {
  const auto contexts = std::make_shared<gin::context_handle>();
  const auto needs = [=](requirements& wants) {
    const auto made = wants.add(gin::contexts{.world = {0, 2, 0, 1}, .count = 1, .signals = 2, .depth = 16});
    static std::mutex one;
    const std::lock_guard hold(one);
    *contexts = made;
  };
  std::uint32_t state = 1;
  std::uint64_t executions = 0;
  std::size_t outcomes = 0;
  for (std::size_t n = 0; n < programs; ++n) {
    const program all = random_program(state);
    std::set<outcome> explored;
    const auto result = explore(2, {.schedule_file = ""}, false, needs,
                                [&](const bench& b) { explored.insert(run(all, false, *contexts, b)); });
    CAPTURE(n);
    check(result);
    executions += result.executions;
    outcomes += explored.size();
    std::size_t missed = 0;
    on_bench(2, false, needs, [&](const bench& b) {
      for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        sim::set_seed(seed);
        for (int rank = 0; rank < 2; ++rank) std::memset(b.board(rank).local(), 0, board_words * sizeof(std::uint32_t));
        missed += explored.count(run(all, true, *contexts, b)) == 0 ? 1 : 0;
      }
    });
    CHECK(missed == 0);
  }
  CHECK(outcomes > programs);  // or they would show nothing
  CHECK(executions > outcomes);
}

TEST_CASE("launches that send packets are compared in every interleaving") {
  check(explore_packets(false));
  check(explore_packets(true));
}

TEST_CASE("launches are compared with those of the same epoch in every interleaving") {
  check(explore_barrier(false));
  check(explore_barrier(true));
}
