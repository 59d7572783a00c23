// Signals: what they order, how waits for them end, and what reports say of them.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr std::uint64_t nearly_wrapped = ~std::uint64_t{0} - 2;

launch_config one_block() { return {.grid = 1, .block = threads, .stream = cudaStreamPerThread}; }

/// Around a ring, a word for each thread and round; the receiver's neighbor to the left may write again once it has a
/// credit. Returns how many words this thread found wrong.
template <class Group>
__device__ std::uint32_t send_around(const Group& group, lsa::signal_session<Group>& data,
                                     lsa::signal_session<Group>& credit, sym_ptr<std::uint32_t> words, int rounds) {
  const team& ranks = data.members();
  const int next = (ranks.rank + 1) % ranks.size;
  const int previous = (ranks.rank + ranks.size - 1) % ranks.size;
  const std::uint32_t thread = group.thread_rank();
  const std::uint32_t other = (thread + 1) % group.size();
  std::uint32_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto round = static_cast<std::uint32_t>(credit.taken());
    words.peer(ranks.world_rank(next))[thread] = round * 64 + static_cast<std::uint32_t>(ranks.rank);
    data.add(next, 1);
    data.take(previous);
    wrong += words.local()[other] != round * 64 + static_cast<std::uint32_t>(previous) ? 1u : 0u;
    credit.add(previous, 1);
    credit.take(next);
  }
  return wrong;
}

__global__ void go_around(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> words, int rounds,
                          std::uint32_t* wrong) {
  lsa::signal_session data{block{}, comm, signals, 2 * blockIdx.x};
  lsa::signal_session credit{block{}, comm, signals, 2 * blockIdx.x + 1};
  wrong[blockIdx.x * blockDim.x + threadIdx.x] =
      send_around(block{}, data, credit, words + static_cast<std::int64_t>(blockIdx.x) * blockDim.x, rounds);
}

/// The same with words of the caller's own, next to each other behind the data.
__global__ void go_around_in_window(device_comm comm, sym_ptr<std::uint64_t> flags, sym_ptr<std::uint32_t> words,
                                    std::uint64_t taken, std::uint32_t* wrong) {
  lsa::signal_session data{block{}, comm, flags, taken};
  lsa::signal_session credit{block{}, comm, flags + 1, taken};
  wrong[threadIdx.x] = send_around(block{}, data, credit, words, 5);
}

void require_none(const std::vector<std::uint32_t>& wrong, const std::string& where) {
  for (std::size_t i = 0; i < wrong.size(); ++i)
    test::require(wrong[i] == 0, [&] { return where + ": wrong words at thread " + std::to_string(i); });
}

}  // namespace

TEST_CASE("a signal orders what its group wrote before what those who take it read, launch after launch") {
  for (const int ranks : test::rank_counts) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      auto needs = comm.requirements();
      const auto signals = needs.add(lsa::signals{comm.lsa(), 2 * blocks});
      const auto device_comm = comm.create_device_comm(needs);
      const auto words = comm.allocate(blocks * threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(blocks * threads, 0xff);
      for (const int rounds : {3, 1, 2}) {
        launch(go_around, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), signals,
               words.pointer<std::uint32_t>(), rounds, wrong.get());
        test::finish("go_around");
        device_comm.check();
        require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      }
      comm.barrier();
    });
  }
}

TEST_CASE("a signal may be a word of a window or of registered memory, and wraps around") {
  for (const bool registered : {false, true}) {
    INFO((registered ? "registered" : "allocated"));
    test::on_ranks(3, [registered](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements());
      const test::device_array<std::uint64_t> own(std::vector<std::uint64_t>(8, nearly_wrapped));
      const auto memory = registered ? comm.register_memory(own.get(), 8 * sizeof(std::uint64_t), "flags")
                                     : comm.allocate(8 * sizeof(std::uint64_t), "flags");
      const auto words = comm.allocate(threads * sizeof(std::uint32_t));
      const sym_ptr<std::uint64_t> flags = memory.pointer<std::uint64_t>() + 3;
      if (!registered) check_cuda(cudaMemcpy(memory.data(), own.get(), 64, cudaMemcpyDefault), "cudaMemcpy");
      comm.barrier();
      const test::device_array<std::uint32_t> wrong(threads, 0xff);
      launch(go_around_in_window, one_block(), device_comm.get(), flags, words.pointer<std::uint32_t>(), nearly_wrapped,
             wrong.get());
      test::finish("go_around_in_window");
      device_comm.check();
      require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

namespace {

struct foreign_block {
  __device__ std::uint32_t thread_rank() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

constexpr unsigned groups = 23;

__global__ void go_around_in_groups(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> words,
                                    std::uint32_t* wrong) {
  const unsigned warp_index = threadIdx.x / 32;
  const auto go = [&](const auto& group, std::uint32_t index) {
    lsa::signal_session data{group, comm, signals, 2 * index};
    lsa::signal_session credit{group, comm, signals, 2 * index + 1};
    return send_around(group, data, credit, words + static_cast<std::int64_t>(index) * threads, 2);
  };
  std::uint32_t count = 0;
  count += go(block{}, 0);
  count += go(foreign_block{}, 1);
  count += go(any_group(block{}), 2);
  count += go(warp{}, 3 + warp_index);
  count += go(tile<8>{}, 5 + threadIdx.x / 8);
  count += go(lanes(threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau), 13 + warp_index * 2 + threadIdx.x % 2);
  count += go(warp_span(warp_index, 1, 1 + warp_index), 17 + warp_index);
  if (threadIdx.x % 16 == 0) count += go(thread{}, 19 + threadIdx.x / 16);
  wrong[threadIdx.x] = count;
}

/// Members of teams of two and of every second rank signal each other.
__global__ void go_around_in_teams(device_comm comm, team inner, lsa::signal_handle inner_signals, team outer,
                                   lsa::signal_handle outer_signals, sym_ptr<std::uint32_t> words,
                                   std::uint32_t* wrong) {
  std::uint32_t count = 0;
  {
    lsa::signal_session data{block{}, comm, inner, inner_signals, 0};
    lsa::signal_session credit{block{}, comm, inner, inner_signals, 1};
    count += send_around(block{}, data, credit, words, 2);
  }
  {
    lsa::signal_session data{block{}, comm, outer, outer_signals, 0};
    lsa::signal_session credit{block{}, comm, outer, outer_signals, 1};
    count += send_around(block{}, data, credit, words + threads, 2);
  }
  wrong[threadIdx.x] = count;
}

}  // namespace

TEST_CASE("members of teams within the LSA team signal each other") {
  for (const int factor : {1, 2, 3, 6}) {
    INFO("factor " << factor);
    test::on_ranks(6, [factor](host::communicator& comm) {
      if (comm.size() % factor != 0) return;  // DEVCOMM_RANKS asks for another number
      const team inner = inner_factor(comm.lsa(), factor);
      const team outer = outer_factor(comm.lsa(), factor);
      auto needs = comm.requirements();
      const auto inner_signals = needs.add(lsa::signals{inner, 2});
      const auto outer_signals = needs.add(lsa::signals{outer, 2});
      const auto device_comm = comm.create_device_comm(needs);
      const auto words = comm.allocate(2 * threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(threads, 0xff);
      launch(go_around_in_teams, one_block(), device_comm.get(), inner, inner_signals, outer, outer_signals,
             words.pointer<std::uint32_t>(), wrong.get());
      test::finish("go_around_in_teams");
      device_comm.check();
      require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

TEST_CASE("every kind of group can signal") {
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto signals = needs.add(lsa::signals{comm.lsa(), 2 * groups});
      const auto device_comm = comm.create_device_comm(needs);
      const auto words = comm.allocate(groups * threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(threads, 0xff);
      launch(go_around_in_groups, one_block(), device_comm.get(), signals, words.pointer<std::uint32_t>(), wrong.get());
      test::finish("go_around_in_groups");
      device_comm.check();
      require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

namespace {

/// Rank 0 stores values and flags; rank 1 waits for each by another condition. `first` is one of two signals.
template <class Group>
__global__ void meet_conditions(device_comm comm, lsa::signal_handle signals, std::uint32_t first,
                                sym_ptr<std::uint32_t> words, std::uint32_t* wrong) {
  const int me = comm.lsa().rank;
  const int peer = 1 - me;
  lsa::signal_session there{Group{}, comm, signals, first};
  lsa::signal_session back{Group{}, comm, signals, first + 1};
  std::uint32_t count = 0;
  // What rank 0 stores, and who is told of it.
  const std::uint64_t steps[] = {5, 3, ~std::uint64_t{0}, 0x1234567800000040u};
  for (std::uint32_t step = 0; step < 4; ++step) {
    if (me == 0) {
      words.lsa(peer)[threadIdx.x] = 100 + step;
      there.store(peer, steps[step]);
      back.take(peer);
    } else {
      if (step == 0) there.wait(peer, lsa::at_least{4});
      if (step == 1) there.wait(lsa::any_peer, lsa::equal_to{3});
      if (step == 2) there.wait(peer, [](std::uint64_t seen) { return seen > 5; });
      if (step == 3) {
        while (there.load() != steps[3]) {  // a loop that the whole group makes alike
        }
      }
      count += words.local()[(threadIdx.x + 1) % blockDim.x] != 100 + step ? 1u : 0u;
      count += there.load(memory_order::relaxed) != steps[step] ? 1u : 0u;
      back.add(peer, 1, memory_order::release);
    }
  }
  count += (me == 0 ? back : there).taken() != (me == 0 ? 4u : 0u) ? 1u : 0u;
  // A relaxed signal paces, and a rank may signal itself.
  back.store(me, 40, memory_order::relaxed);
  back.wait(me, lsa::equal_to{40}, memory_order::relaxed);
  wrong[threadIdx.x] = count;
}

}  // namespace

TEST_CASE("a wait is for a value, for a value at least, or for what a predicate takes") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 4});
    const auto device_comm = comm.create_device_comm(needs);
    const auto words = comm.allocate(threads * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> of_block(threads, 0xff);
    const test::device_array<std::uint32_t> of_warp(32, 0xff);
    launch(meet_conditions<block>, one_block(), device_comm.get(), signals, 0u, words.pointer<std::uint32_t>(),
           of_block.get());
    launch(meet_conditions<warp>, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), signals,
           2u, words.pointer<std::uint32_t>(), of_warp.get());
    test::finish("meet_conditions");
    device_comm.check();
    require_none(of_block.read(), "block of rank " + std::to_string(comm.rank()));
    require_none(of_warp.read(), "warp of rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

namespace {

constexpr int overwritten_words = 64;

/// Rank 1 hands a word over with the value 1; rank 2, which knows of nothing, overwrites each signal with 2. Where rank
/// 0 has seen the 1, the word is there. Both begin with a word when rank 0 waits for it.
__global__ void overwrite_signals(device_comm comm, lsa::signal_handle pace, sym_ptr<std::uint64_t> flags,
                                  sym_ptr<std::uint32_t> words, std::uint32_t* wrong) {
  std::uint32_t count = 0;
  lsa::signal_session next{thread{}, comm, pace, 0};
  for (int i = 0; i < overwritten_words; ++i) {
    lsa::signal_session signal{thread{}, comm, flags + i};
    if (comm.lsa_rank() == 0) {
      for (int peer = 1; peer <= 2; ++peer) next.add(peer, 1);
    } else {
      next.take(0);
    }
    if (comm.lsa_rank() == 1) {
      words.lsa(0)[i] = 500 + static_cast<std::uint32_t>(i);
      signal.store(0, 1);
    } else if (comm.lsa_rank() == 2) {
      signal.store(0, 2, memory_order::relaxed);
    } else if (signal.wait_for(1, lsa::equal_to{1}, microseconds(100)) == status::success) {
      count += words.local()[i] != 500 + static_cast<std::uint32_t>(i) ? 1u : 0u;
    }
  }
  *wrong = count;
}

}  // namespace

TEST_CASE("a value that met the condition is acquired, though another rank has overwritten it since") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto pace = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto flags = comm.allocate(overwritten_words * sizeof(std::uint64_t), "flags");
    const auto words = comm.allocate(overwritten_words * sizeof(std::uint32_t), "words");
    const test::device_array<std::uint32_t> wrong(1, 0xff);
    comm.barrier();
    launch(overwrite_signals, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, device_comm.get(), pace,
           flags.pointer<std::uint64_t>(), words.pointer<std::uint32_t>(), wrong.get());
    test::finish("overwrite_signals");
    device_comm.check();
    require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

TEST_CASE("at_least compares by the sign of the difference") {
  CHECK(lsa::at_least{5}(5));
  CHECK(lsa::at_least{5}(6));
  CHECK_FALSE(lsa::at_least{5}(4));
  CHECK(lsa::at_least{~std::uint64_t{0}}(2));
  CHECK_FALSE(lsa::at_least{2}(~std::uint64_t{0}));
  CHECK(lsa::equal_to{7}(7));
  CHECK_FALSE(lsa::equal_to{7}(8));
}

namespace {

/// Adds from all blocks of all ranks to one signal of rank 0, which waits for all in its first block.
__global__ void count_all(device_comm comm, lsa::signal_handle signals, std::uint64_t launches) {
  lsa::signal_session counter{block{}, comm, signals, 0};
  counter.add(0, 1);
  if (comm.lsa().rank == 0 && blockIdx.x == 0)
    counter.wait(lsa::any_peer, lsa::equal_to{launches * gridDim.x * static_cast<unsigned>(comm.lsa_size)});
}

}  // namespace

TEST_CASE("several groups and ranks may add to one signal") {
  test::on_ranks(4, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    for (std::uint64_t n = 1; n <= 3; ++n) {
      launch(count_all, {.grid = 3, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), signals, n);
      test::finish("count_all");
      device_comm.check();
      comm.barrier();
    }
  });
}

namespace {

template <class Group>
__global__ void try_to_take(device_comm comm, lsa::signal_handle signals, nanoseconds limit, status* outcomes,
                            std::uint64_t* taken) {
  lsa::signal_session signal{Group{}, comm, signals, 0};
  const status outcome = signal.take_for(1 - comm.lsa().rank, limit, 2);
  outcomes[threadIdx.x] = outcome;
  taken[threadIdx.x] = signal.taken();
}

__global__ void give(device_comm comm, lsa::signal_handle signals, std::uint64_t count) {
  lsa::signal_session signal{block{}, comm, signals, 0};
  signal.add(1 - comm.lsa().rank, count);
}

template <class Group>
void check_deadline() {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<status> outcomes(threads, 0xff);
    const test::device_array<std::uint64_t> taken(threads, 0xff);
    const auto expect = [&](status outcome, std::uint64_t count) {
      test::finish("try_to_take");
      for (const status one : outcomes.read())
        test::require(one == outcome, [&] { return std::string("outcome is ") + to_string(one); });
      for (const std::uint64_t one : taken.read())
        test::require(one == count, [&] { return std::to_string(one) + " were taken"; });
      test::require(device_comm.failures().empty(), "a deadline of the caller's own is no failure");
    };
    if (comm.rank() == 0) {
      launch(try_to_take<Group>, one_block(), device_comm.get(), signals, milliseconds(20), outcomes.get(),
             taken.get());
      expect(status::timeout, 0);
    } else {
      launch(give, one_block(), device_comm.get(), signals, 1);  // of two
      test::finish("give");
    }
    comm.barrier();
    if (comm.rank() == 0) {
      launch(try_to_take<Group>, one_block(), device_comm.get(), signals, milliseconds(20), outcomes.get(),
             taken.get());
      expect(status::timeout, 0);
    }
    comm.barrier();
    if (comm.rank() == 0) {
      launch(try_to_take<Group>, one_block(), device_comm.get(), signals, milliseconds(60000), outcomes.get(),
             taken.get());
      expect(status::success, 2);
    } else {
      launch(give, one_block(), device_comm.get(), signals, 1);
      test::finish("give");
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("a deadline ends a wait for a signal for all threads alike, and takes nothing") {
  check_deadline<block>();
  check_deadline<foreign_block>();
}

namespace {

std::string said_by(const host::device_communicator& comm) {
  try {
    comm.check();
  } catch (const host::kernel_error& error) {
    return error.what();
  }
  return "";
}

host::communicator_options impatient() {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(40);
  return options;
}

enum class awaited_condition { at_least, equal, predicate, word_of_window };

/// Waits in vain; then tells the peer all the same, which must not arrive, as this rank has given up.
__global__ void wait_in_vain(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint64_t> flag,
                             awaited_condition which, status* outcomes) {
  const int peer = 1 - comm.lsa().rank;
  const bool own = which == awaited_condition::word_of_window;
  lsa::signal_session never{block{}, comm, signals, 3};
  lsa::signal_session word{block{}, comm, flag};
  if (which == awaited_condition::at_least) never.take(peer, 7);
  if (which == awaited_condition::equal) never.wait(peer, lsa::equal_to{9});
  if (which == awaited_condition::predicate) never.wait(lsa::any_peer, [](std::uint64_t seen) { return seen == 11; });
  if (own) word.wait(peer, lsa::at_least{1});
  outcomes[threadIdx.x] = own ? word.agree() : never.agree();
  lsa::signal_session told{block{}, comm, signals, 1};
  told.store(peer, 1);
  told.add(peer, 1);
  told.take(peer);  // returns
  outcomes[blockDim.x + threadIdx.x] = told.take_for(peer, milliseconds(60000));
}

void check_record(awaited_condition which, std::int32_t peer, wait_condition condition, std::uint64_t expected,
                  const std::string& text) {
  test::on_ranks(
      2,
      [&](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto signals = needs.add(lsa::signals{comm.lsa(), 4});
        const auto device_comm = comm.create_device_comm(needs);
        const auto memory = comm.allocate(64, "flags");
        const sym_ptr<std::uint64_t> flag = memory.pointer<std::uint64_t>() + 6;
        comm.barrier();
        if (comm.rank() == 0) {
          const test::device_array<status> outcomes(2 * threads, 0xff);
          launch(wait_in_vain, one_block(), device_comm.get(), signals, flag, which, outcomes.get());
          test::finish("wait_in_vain");
          const auto got = outcomes.read();
          for (std::size_t i = 0; i < got.size(); ++i) {
            const status wanted = i < threads ? status::timeout : status::aborted;
            test::require(got[i] == wanted, [&] { return std::string("outcome is ") + to_string(got[i]); });
          }
          const auto records = device_comm.failures();
          test::require(records.size() == 1, "there is not one record");
          const failure_record& record = records[0];
          test::require(record.outcome == status::timeout && record.what == operation::lsa_signal,
                        "what of the record");
          test::require(record.rank == 0 && record.peer == peer && record.block == 0 && record.thread == 0, "who");
          test::require(record.condition == condition && record.expected == expected && record.seen == 0, "values");
          const std::string said = said_by(device_comm);
          test::require(said.find(text) != std::string::npos, "it said: " + said);
        }
        comm.barrier();
        if (comm.rank() == 1) {  // nothing has been told
          std::uint64_t told = 1;
          check_cuda(cudaMemcpy(&told, device_comm.get().resources.local + signals.offset + 8, 8, cudaMemcpyDefault),
                     "cudaMemcpy");
          test::require(told == 0, "a rank that timed out signals");
        }
        comm.barrier();
      },
      impatient());
}

}  // namespace

TEST_CASE("a wait for a signal that never comes leaves a record of what was waited for, and the rank is silent") {
  check_record(awaited_condition::at_least, 1, wait_condition::at_least, 7,
               "rank 0, block 0: LSA signal 3 waited for rank 1 to bring it to at least 7 and last saw 0: timeout");
  check_record(awaited_condition::equal, 1, wait_condition::equal, 9,
               "LSA signal 3 waited for rank 1 to set it to 9 and last saw 0: timeout");
  check_record(awaited_condition::predicate, -1, wait_condition::predicate, 0,
               "LSA signal 3 waited for any rank to set it to what the caller's predicate takes and last saw 0");
  check_record(awaited_condition::word_of_window, 1, wait_condition::at_least, 1,
               "LSA signal at word 6 of window 2 waited for rank 1 to bring it to at least 1 and last saw 0");
}

TEST_CASE("an abort ends a wait for a signal, with a deadline and without") {
  for (const bool with_deadline : {false, true}) {
    test::on_ranks(2, [with_deadline](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto signals = needs.add(lsa::signals{comm.lsa(), 4});
      const auto device_comm = comm.create_device_comm(needs);
      const auto memory = comm.allocate(64);
      if (comm.rank() == 0) {
        const test::device_array<status> outcomes(2 * threads, 0xff);
        const test::device_array<std::uint64_t> taken(threads, 0xff);
        if (with_deadline) {
          launch(try_to_take<block>, one_block(), device_comm.get(), signals, milliseconds(60000), outcomes.get(),
                 taken.get());
        } else {
          launch(wait_in_vain, one_block(), device_comm.get(), signals, memory.pointer<std::uint64_t>(),
                 awaited_condition::at_least, outcomes.get());
        }
        comm.abort();
        test::finish("the waiting launch");
        for (std::size_t i = 0; i < threads; ++i)
          test::require(outcomes.read()[i] == status::aborted, "the outcome is not an abort");
        test::require(said_by(device_comm).find("LSA signal") != std::string::npos, "the record names no signal");
      }
      comm.barrier();
    });
  }
}

#if defined(DEVCOMM_SIMULATOR)

#  include <devcomm/simulator/simulator.hpp>

namespace {

enum class mistake { index, peer, negative_peer, team_size, unaligned, past_the_end, two_takers, none };

__global__ void make_mistake(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint64_t> flags, mistake made) {
  if (made == mistake::unaligned || made == mistake::past_the_end) {
    sym_ptr<std::uint64_t> word = flags + 8;
    if (made == mistake::unaligned) word.offset = 12;
    lsa::signal_session signal{thread{}, comm, word};
    return;
  }
  const team members = made == mistake::team_size ? team{0, 1, comm.rank, 1} : comm.lsa();
  lsa::signal_session signal{thread{}, comm, members, signals, made == mistake::index ? 2u : 1u};
  if (made == mistake::peer) signal.store(members.size, 1);
  if (made == mistake::negative_peer) signal.take(-2);
  signal.add(members.rank, 1);
  signal.take(members.rank);
  if (made == mistake::two_takers) {
    lsa::signal_session other{thread{}, comm, signals, 1};
    other.add(members.rank, 1);
    other.take(members.rank);
  }
}

void check_misuse(mistake made, const std::string& text) {
  test::on_ranks(2, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 2});
    const auto device_comm = comm.create_device_comm(needs);
    const auto memory = comm.allocate(64);
    if (comm.rank() == 0) {
      launch(make_mistake, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, device_comm.get(), signals,
             memory.pointer<std::uint64_t>(), made);
      const bool failed = cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess;
      test::require(failed == !text.empty(), failed ? simulator::last_failure() : "the launch succeeded");
      const std::string said = failed ? simulator::last_failure() : "";
      test::require(said.find(text) != std::string::npos, "it said: " + said);
    }
    comm.barrier();
  });
}

__global__ void wait_for_each_other(device_comm comm, lsa::signal_handle signals) {
  lsa::signal_session signal{block{}, comm, signals, 1};
  signal.take(1 - comm.lsa().rank);  // both wait first
  signal.add(1 - comm.lsa().rank, 1);
}

}  // namespace

TEST_CASE("mistakes with signals are named") {
  check_misuse(mistake::none, "");
  check_misuse(mistake::index, "signal index is past the signals that requirements asked for");
  check_misuse(mistake::peer, "the peer of a signal is outside its team");
  check_misuse(mistake::negative_peer, "the peer of a signal is outside its team");
  check_misuse(mistake::team_size, "the signals were made for a team of another size");
  check_misuse(mistake::unaligned, "a signal's word lies at a multiple of 8 bytes");
  check_misuse(mistake::past_the_end, "a signal's word is past its window's end");
  check_misuse(mistake::two_takers, "two sessions took from one signal at a time");
}

TEST_CASE("a deadlock of ranks that wait for each other's signal is found at once, and told as a cycle") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 2});
    const auto device_comm = comm.create_device_comm(needs);
    comm.barrier();
    launch(wait_for_each_other, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, device_comm.get(), signals);
    test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
    comm.barrier();
    const std::string said = simulator::last_failure();
    for (const char* part :
         {"rank 0, block 0, thread 0: LSA signal 1: waits for rank 1 to bring it to at least 1, saw 0",
          "rank 1, block 0, thread 0: LSA signal 1: waits for rank 0 to bring it to at least 1, saw 0",
          "the waits form a cycle"})
      test::require(said.find(part) != std::string::npos, "it said: " + said);
  });
}

#endif
