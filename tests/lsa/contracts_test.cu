// What ranks compare of their launches and calls: each field by itself, in a second call as in the first, and nothing
// that belongs to another launch. Also built so that what the comparison stores and loads are accesses like all others.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "support/ranks.hpp"

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 32;

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

/// What a rank shows of its two calls, and of its launch.
struct shown {
  call_contract first = call_contract::of("a_call_of_three_words", 1, 9, 4, 1);
  call_contract second = first;
  std::uint64_t key = 5;
};

/// A round in which every rank hears from all.
template <class Session>
__device__ void make_call(Session& session, const call_contract& call) {
  session.begin_call(call);
  session.begin_round();
  const auto at = session.cursor();
  session.send_pack_to_all(at, pack<float>{{1, 2, 3, 4}});
  for (int member = 0; member < session.members().size; ++member) {
    pack<float> value[1];
    session.receive_packs(member, member + 1, at, value);
  }
}

template <class Session>
__global__ void make_calls(device_comm comm, typename Session::handle mailboxes, shown mine, status* outcomes) {
  Session session{block{}, comm, mailboxes, 0};
  make_call(session, mine.first);
  const status first = session.agree();
  make_call(session, mine.second);
  const status second = session.agree();
  if (threadIdx.x == 0) {
    outcomes[0] = first;
    outcomes[1] = second;
  }
}

#if DEVCOMM_CHECKED

/// Rank 1 of three shows something else than the others, which `differs` finds in their records. Groups are of `size`
/// threads, each of which shows its rank's.
template <class Session>
void check_difference(unsigned size, const std::string& what, bool in_first, const std::function<void(shown&)>& change,
                      const std::function<bool(const failure_record&)>& differs) {
  INFO(what << ", " << to_string(Session::what) << ", groups of " << size);
  test::on_ranks(test::ranks_that_meet(3),
                 [&](host::communicator& comm) {
                   auto needs = comm.requirements();
                   const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, threads));
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<status> outcomes(2, 0xff);
                   shown mine;
                   if (comm.rank() == 1) change(mine);
                   comm.barrier();
                   launch(make_calls<Session>, {.grid = 1, .block = size, .stream = cudaStreamPerThread},
                          device_comm.get().with_launch_key(mine.key), mailboxes, mine, outcomes.get());
                   test::finish("make_calls");
                   const auto seen = outcomes.read();
                   test::require(in_first || seen[0] == status::success, "the first call, which is the same, failed");
                   const status told = seen[in_first ? 0 : 1];
                   test::require(told == status::mismatch || told == status::aborted,
                                 std::string("it is a ") + to_string(told));
                   bool found = false;
                   for (const failure_record& record : device_comm.failures()) {
                     test::require(record.outcome == status::mismatch && (record.rank == 1) != (record.peer == 1),
                                   host::describe(record));
                     test::require(differs(record), "the records of both are the same: " + host::describe(record));
                     found = true;
                   }
                   test::require(found, "no record of the mismatch");
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
}

template <class Session>
void check_fields(unsigned size) {
  using field = std::function<std::uint64_t(const call_contract&)>;
  struct one_field {
    std::string name;
    std::function<void(call_contract&)> change;
    field get;
  };
  const one_field fields[] = {
      {"name, letters 1 to 8", [](call_contract& c) { c.name[0] ^= 1; }, [](const auto& c) { return c.name[0]; }},
      {"name, letters 9 to 16", [](call_contract& c) { c.name[1] ^= 1; }, [](const auto& c) { return c.name[1]; }},
      {"name, letters 17 to 23", [](call_contract& c) { c.name[2] ^= 1; }, [](const auto& c) { return c.name[2]; }},
      {"begin", [](call_contract& c) { c.begin += 1; }, [](const auto& c) { return c.begin; }},
      {"begin past 32 bits", [](call_contract& c) { c.begin += 1ull << 32; }, [](const auto& c) { return c.begin; }},
      {"end", [](call_contract& c) { c.end += 1; }, [](const auto& c) { return c.end; }},
      {"end past 32 bits", [](call_contract& c) { c.end += 1ull << 32; }, [](const auto& c) { return c.end; }},
      {"element bytes", [](call_contract& c) { c.element_bytes = 8; }, [](const auto& c) { return c.element_bytes; }},
      {"root", [](call_contract& c) { c.root = 0; }, [](const auto& c) { return static_cast<std::uint64_t>(c.root); }},
  };
  for (const one_field& each : fields) {
    check_difference<Session>(
        size, each.name + " of a second call", false, [&](shown& mine) { each.change(mine.second); },
        [&](const failure_record& r) { return each.get(r.my_call) != each.get(r.their_call); });
  }
  check_difference<Session>(
      size, "root of a first call", true, [](shown& mine) { mine.first.root = 2; },
      [](const failure_record& r) { return r.my_call.root != r.their_call.root; });
  for (const std::uint64_t other : {std::uint64_t{6}, std::uint64_t{1} << 32 | 5}) {
    check_difference<Session>(
        size, "key " + std::to_string(other), true, [&](shown& mine) { mine.key = other; },
        [](const failure_record& r) { return r.mine.key != r.theirs.key; });
  }
}

#endif

/// The first block's barrier.
__global__ void meet_in_one_launch(device_comm comm, status* outcome) {
  if (blockIdx.y != 0) return;
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync(memory_order::relaxed);
  const status mine = barrier.agree();
  if (threadIdx.x == 0) *outcome = mine;
}

}  // namespace

#if DEVCOMM_CHECKED

TEST_CASE("each field of a call's contract is compared, in a second call as in the first") {
  check_fields<ll>(threads);
  check_fields<ll>(1);
  check_fields<lamport>(threads);
  check_fields<ll128>(threads);
}

namespace {

/// Rank 0 sends `sent` as one kind of element, rank 1 receives `received` as another.
template <channel::protocol Protocol, class Sent, class Received>
__global__ void move_packs(device_comm comm, channel::fifo_handle<Protocol> fifos, slice sent, slice received,
                           unsigned* moved) {
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - comm.lsa().rank, 0, 0};
  channel::session link{block{}, comm, fifos, comm.lsa().rank == 1 ? other : none, comm.lsa().rank == 0 ? other : none};
  if (comm.lsa().rank == 0) link.template send<Sent>(sent, [](std::uint64_t) { return pack<Sent>{}; });
  if (comm.lsa().rank == 1)
    link.template recv<Received>(received, [&](std::uint64_t, const pack<Received>&) { atomicAdd(moved, 1u); });
}

/// What rank 1 is told.
template <channel::protocol Protocol, class Sent, class Received>
std::string told_of(slice sent, slice received) {
  std::string text;
  test::on_ranks(2,
                 [&](host::communicator& comm) {
                   const test::takes_left_steps at_end{comm};
                   auto needs = comm.requirements();
                   const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), 1, 30, 2});
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<unsigned> moved(1);
                   comm.barrier();
                   launch(move_packs<Protocol, Sent, Received>,
                          {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), fifos, sent,
                          received, moved.get());
                   test::finish("move_packs");
                   const auto failures = device_comm.failures();
                   if (comm.rank() == 1 && !failures.empty()) text = host::describe(failures.front());
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
  return text;
}

}  // namespace

TEST_CASE("each field of a FIFO's contract is compared") {
  const auto check = [](const std::string& said, const std::string& theirs, const std::string& mine) {
    INFO(said);
    CHECK(said.find("rank 0 sent " + theirs + " elements where rank 1 expects " + mine) != std::string::npos);
  };
  test::for_each_protocol([&](auto protocol) {
    INFO(to_string(protocol()));
    // Both count packs from the first of their slice.
    CHECK(told_of<protocol(), float, float>({1, 9}, {0, 8}).empty());
    check(told_of<protocol(), float, float>({1, 8}, {1, 9}), "7 packs of 4-byte", "8 packs of 4-byte");
    check(told_of<protocol(), float, double>({1, 9}, {1, 9}), "8 packs of 4-byte", "8 packs of 8-byte");
  });
}

#endif

TEST_CASE("each field of a launch's contract is compared at a barrier") {
  for (const std::string what : {"grid", "group", "key", "key past 32 bits"}) {
    INFO(what);
    test::on_ranks(2,
                   [&](host::communicator& comm) {
                     const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
                     const test::device_array<status> outcome(1, 0xff);
                     const bool other = comm.rank() == 1;
                     std::uint64_t key = 5;
                     if (other && what == "key") key = 6;
                     if (other && what == "key past 32 bits") key |= std::uint64_t{1} << 32;
                     comm.barrier();
                     const dim3 grid = what == "grid" && other ? dim3(1, 2) : dim3(1);
                     const unsigned group = what == "group" && other ? threads / 2 : threads;
                     launch(meet_in_one_launch, {.grid = grid, .block = group, .stream = cudaStreamPerThread},
                            device_comm.get().with_launch_key(key), outcome.get());
                     test::finish("meet_in_one_launch");
                     test::require(outcome.read().front() == status::mismatch,
                                   [&] { return std::string("outcome is ") + to_string(outcome.read().front()); });
                     test::require(!device_comm.failures().empty(), "no record of the mismatch");
                     comm.barrier();
                   },
                   {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
  }
}

TEST_CASE("launches and calls that change, the same on all ranks, pass the check with no host between them") {
  test::on_ranks(test::ranks_that_meet(3),
                 [](host::communicator& comm) {
                   auto needs = comm.requirements().lsa_barriers(1);
                   const auto mailboxes = needs.add(lsa::mailboxes_for<ll>(comm.lsa(), 1, 2 * threads));
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<status> outcomes(2, 0xff);
                   comm.barrier();
                   // A rank that is ahead shows its next launch while a slower one still compares this one.
                   for (std::uint64_t n = 0; n < 24; ++n) {
                     const unsigned group = n % 2 == 0 ? threads : 2 * threads;
                     const launch_config config{.grid = 1, .block = group, .stream = cudaStreamPerThread};
                     shown mine;
                     mine.first.begin = n;
                     mine.second.end = n;
                     mine.key = n;
                     launch(meet_in_one_launch, config, device_comm.get().with_launch_key(n), outcomes.get());
                     launch(make_calls<ll>, config, device_comm.get().with_launch_key(n), mailboxes, mine,
                            outcomes.get());
                   }
                   test::finish("the launches");
                   device_comm.check();
                   for (const status outcome : outcomes.read())
                     test::require(outcome == status::success, to_string(outcome));
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(20), .check_launch = true});
}

#if defined(DEVCOMM_SIMULATOR) && DEVCOMM_CHECKED
namespace {

struct handles {
  lsa::barrier_handle barriers;
  lsa::ll_handle mailboxes;
  lsa::signal_handle signals;
  lsa::ll_slots_handle slots;
  channel::fifo_handle<channel::protocol::simple> fifos;
  channel::connection_handle connections;
  buffer_handle<int> buffer;
};
enum class kind { none, barriers, mailboxes, signals, slots, fifos, connections, buffer, end };

__global__ void use_handle(device_comm comm, handles of, kind which) {
  const block group{};
  const team ranks = comm.lsa();
  switch (which) {
    case kind::barriers: lsa::barrier_session{group, comm, ranks, of.barriers, 0}; break;
    case kind::mailboxes: lsa::ll_session{group, comm, of.mailboxes, 0}; break;
    case kind::signals: lsa::signal_session{group, comm, of.signals, 0}; break;
    case kind::slots: lsa::ll_all_to_all_session{group, comm, of.slots, 0}; break;
    case kind::fifos:
      channel::session{group, comm, of.fifos, channel::from_previous(ranks, 0), channel::to_next(ranks, 0)};
      break;
    case kind::connections: channel::group_session{group, comm, of.connections, channel::stripe_of_block()}; break;
    case kind::buffer: static_cast<void>(comm.buffer(of.buffer)); break;
    case kind::none:
    case kind::end: break;
  }
}

handles ask_for(requirements& needs) {
  handles made{};
  made.barriers = needs.add(lsa::barriers{needs.lsa(), 1});
  made.mailboxes = needs.add(lsa::ll_mailboxes{needs.lsa(), 1, 32});
  made.signals = needs.add(lsa::signals{needs.lsa(), 1});
  made.slots = needs.add(lsa::ll_slots{needs.lsa(), 1, 4, 8});
  made.fifos = needs.add(channel::simple_fifos{needs.lsa(), 1, 8});
  made.connections = needs.add(channel::connections{needs.lsa(), 1});
  made.buffer = needs.add_buffer<int>(8);
  return made;
}

}  // namespace

TEST_CASE("a handle of one device communicator is refused with another") {
  for (int i = 0; i < static_cast<int>(kind::end); ++i) {
    INFO("handle " << i);
    test::on_ranks(1, [&](host::communicator& comm) {
      auto needs = comm.requirements();
      auto other_needs = comm.requirements();
      const handles own = ask_for(needs);
      other_needs.add_buffer<int>(100);
      static_cast<void>(ask_for(other_needs));
      const auto first = comm.create_device_comm(needs);
      const auto second = comm.create_device_comm(other_needs);
      const auto run = [&](const device_comm& with) {
        launch(use_handle, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, with, own, static_cast<kind>(i));
        return cudaStreamSynchronize(cudaStreamPerThread);
      };
      test::require(run(first.get()) == cudaSuccess, "its own handle is refused");
      if (i == 0) return;
      test::require(run(second.get()) == cudaErrorAssert, "another one's handle is taken");
      const std::string said = simulator::last_failure();
      test::require(said.find("a handle of another device communicator") != std::string::npos, "it said: " + said);
    });
  }
}
#endif
