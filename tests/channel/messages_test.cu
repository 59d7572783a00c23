/// Groups of sends and receives: every message arrives whole, whatever the sizes, the order of lists and who comes
/// late; and ranks that do not agree, or never come, are named.
#include <devcomm/devcomm.cuh>

#include "channel/post_office.hpp"
#include "support/ranks.hpp"
#include "support/watched.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace devcomm;
using channel::message;
using test::planned;
using test::post_office;

namespace {

void check_rounds(int ranks, int messages, int rounds, std::uint32_t slots, std::uint32_t from,
                  std::uint32_t inline_bytes = 512) {
  INFO(ranks << " ranks, " << messages << " messages, " << rounds << " rounds, " << slots << " slots, from " << from
             << ", inline up to " << inline_bytes);
  test::on_ranks(ranks, [=](host::communicator& comm) {
    constexpr std::uint32_t stripes = 3;
    post_office office(comm, stripes, slots, 1024, inline_bytes);
    if (from != 0) office.start_at(from);
    std::mt19937 all(static_cast<unsigned>(ranks * 1000 + messages));
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (int round = 0; round < rounds; ++round)
      office.move(test::random_plan(comm.size(), messages, all), own, 1 + static_cast<unsigned>(round) % stripes,
                  round % 4 == 3 ? 32 : 64);
  });
}

}  // namespace

TEST_CASE("messages of a group arrive whole for any number of ranks and any order of the lists") {
  for (const int ranks : test::is_watched ? std::vector{1, 2, 3, 4, 7} : test::rank_counts)
    check_rounds(ranks, test::is_watched ? 10 : 20, test::is_watched ? 2 : 3, 2, 0);
}

TEST_CASE("messages arrive whole whether none of them, some or all go inline") {
  for (const std::uint32_t inline_bytes : {0u, 64u, 4096u, channel::connections::fit_inline})
    check_rounds(test::ranks_that_meet(3), test::is_watched ? 10 : 30, 2, 2, 0, inline_bytes);
}

TEST_CASE("short messages, one from and one to each rank, arrive whole, also where a peer's list has more") {
  for (const std::uint32_t from : {0u, ~0u - 5})
    test::on_ranks(test::ranks_that_meet(3), [=](host::communicator& comm) {
      post_office office(comm, 2, 2, 1024, 2048);
      if (from != 0) office.start_at(from);
      std::mt19937 all(7);
      std::mt19937 own(static_cast<unsigned>(comm.rank()));
      for (int round = 0; round < (test::is_watched ? 3 : 8); ++round) {
        std::vector<planned> plan;
        for (int to = 0; to < comm.size(); ++to)
          for (int sender = 0; sender < comm.size(); ++sender)
            if (all() % 4 != 0) plan.push_back({sender, to, 1 + all() % (to == sender ? 3000 : 2040)});
        const int last = comm.size() - 1;  // every other round: its list alone is not short
        if (round % 2 == 1) plan.insert(plan.end(), {{last, last, 9000}, {last, last, 100}});
        office.move(plan, own, round % 3 == 0 ? 1u : 2u, 256);  // the stripe that is left out counts the messages too
      }
    });
}

TEST_CASE("short messages that several warps move arrive whole, one after another") {
  test::on_ranks(2, [](host::communicator& comm) {
    post_office office(comm, 2, 2, 1024, 2048);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (std::uint64_t round = 0; round < 4; ++round) office.move({{0, 1, 2000 + round}, {1, 0, 1900}}, own, 2, 256);
  });
}

TEST_CASE("long messages, one from and one to each rank, arrive whole, among short and empty ones") {
  for (const std::uint32_t from : {0u, ~0u - 5})
    test::on_ranks(test::ranks_that_meet(3), [=](host::communicator& comm) {
      post_office office(comm, 2, 2, 1024, 512);
      if (from != 0) office.start_at(from);
      std::mt19937 all(11);
      std::mt19937 own(static_cast<unsigned>(comm.rank()));
      constexpr std::uint64_t sizes[] = {0, 1, 500, 513, 3000, 9000, 20001};
      for (int round = 0; round < (test::is_watched ? 4 : 12); ++round) {
        // Else some lists need slots, and what others send by warps goes through them, piece by piece.
        office.receive_in_window_only(round % 3 != 2);
        std::vector<planned> plan;
        for (int to = 0; to < comm.size(); ++to)
          for (int sender = 0; sender < comm.size(); ++sender)
            if (all() % 5 != 0) plan.push_back({sender, to, sizes[all() % std::size(sizes)]});
        office.move(plan, own, round % 4 == 3 ? 1u : 2u, round % 2 == 0 ? 256 : 512);
      }
    });
}

TEST_CASE("long messages that several warps send arrive whole, one after another") {
  test::on_ranks(2, [](host::communicator& comm) {
    post_office office(comm, 1, 2, 1024, 512);
    office.receive_in_window_only(true);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (std::uint64_t round = 0; round < 5; ++round) office.move({{0, 1, 9000 + round}, {1, 0, 7000}}, own, 1, 128);
  });
}

TEST_CASE("a message that several warps send goes through slots piece by piece") {
  test::on_ranks(2, [](host::communicator& comm) {
    post_office office(comm, 1, 2, 1024, 0);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    // The own messages, two of one connection, keep the list of rank 1 from going by warps; that of rank 0 does.
    for (std::uint64_t round = 0; round < 3; ++round)
      office.move({{0, 1, 7000 + round}, {1, 1, 5}, {1, 1, 3}}, own, 1, 128);
  });
}

TEST_CASE("a message that has a CTS goes, whoever else is late") {
  // Rank 0 sends to 1 and 2 in one call; 2 lists its receive only after it has something from 1, and 1 has what 0
  // sends.
  for (const std::uint64_t bytes : {std::uint64_t{100}, std::uint64_t{20000}})
    test::on_ranks(3, [=](host::communicator& comm) {
      requirements needs = comm.requirements();
      const auto connections = needs.add(channel::connections{comm.lsa(), 1, 2, 1024, 512});
      const auto device_comm = comm.create_device_comm(needs);
      const auto memory = comm.allocate(1 << 16);
      const test::device_array<char> sent(std::vector<char>(bytes, static_cast<char>('a' + comm.rank())));
      channel::message_table first(2, 1), second(2, 1);
      const auto in_window = [&](int peer) {
        return message::receive(peer, sym_ptr<char>{memory.window(), static_cast<std::uint64_t>(peer) * bytes}, bytes);
      };
      const auto to = [&](int peer) { return message::send(peer, sent.get(), bytes); };
      const std::vector<std::vector<message>> calls[] = {
          {{to(1), to(2)}, {}}, {{in_window(0)}, {to(2)}}, {{in_window(1)}, {in_window(0)}}};
      const auto& mine = calls[comm.rank()];
      first.assign(mine[0], {memory.window()}, cudaStreamPerThread);
      second.assign(mine[1], {memory.window()}, cudaStreamPerThread);
      comm.barrier();
      for (const channel::message_table* table : {&first, &second})
        collective::send_receive(device_comm.get(), connections, *table,
                                 {.grid = 1, .block = 128, .stream = cudaStreamPerThread});
      test::finish("send_receive");
      device_comm.check();
      std::vector<char> got(2 * bytes);
      check_cuda(cudaMemcpyAsync(got.data(), memory.data(), got.size(), cudaMemcpyDefault, cudaStreamPerThread),
                 "copy");
      test::finish("copy");
      for (int from = 0; from < comm.rank(); ++from)
        for (std::uint64_t i = 0; i < bytes; ++i)
          test::require(got[static_cast<std::uint64_t>(from) * bytes + i] == static_cast<char>('a' + from),
                        "wrong bytes from rank " + std::to_string(from));
      comm.barrier();
    });
}

namespace {

/// What lies around `bytes` bytes from `begin` on.
__global__ void write_around(char* data, std::uint64_t size, std::uint64_t begin, std::uint64_t bytes) {
  for (std::uint64_t i = threadIdx.x; i < size; i += blockDim.x)
    if (i < begin || i >= begin + bytes) data[i] = 'x';
}

}  // namespace

TEST_CASE("another kernel may write what lies around a message while it is on its way") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::uint64_t size = 64;
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 2, 1024, 512});
    const auto device_comm = comm.create_device_comm(needs);
    cudaStream_t other = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const int peer = 1 - comm.rank();
    channel::message_table table(2, 0);
    for (std::uint64_t bytes = 1; bytes <= 20; ++bytes) {
      const std::uint64_t begin = bytes % 3 == 0 ? 19 : 16;  // of whole words, or not
      std::vector<char> sent(size, 'x'), expected(size, 'x');
      for (std::uint64_t i = 0; i < bytes; ++i) {
        sent[begin + i] = static_cast<char>(post_office::byte_of(comm.rank(), peer, bytes, i));
        expected[begin + i] = static_cast<char>(post_office::byte_of(peer, comm.rank(), bytes, i));
      }
      const test::device_array<char> out(sent);
      const test::device_array<char> in(size);
      table.assign({message::send(peer, out.get() + begin, bytes), message::receive(peer, in.get() + begin, bytes)}, {},
                   cudaStreamPerThread);
      test::finish("a table");
      comm.barrier();
      for (char* const data : {out.get(), in.get()})
        launch(write_around, {.grid = 1, .block = 32, .stream = other}, data, size, begin, bytes);
      collective::send_receive(device_comm.get(), connections, table,
                               {.grid = 1, .block = 64, .stream = cudaStreamPerThread});
      test::finish("send_receive");
      check_cuda(cudaStreamSynchronize(other), "write_around");
      device_comm.check();
      test::require(in.read() == expected, [&] {
        return "a message of " + std::to_string(bytes) + " bytes is wrong on rank " + std::to_string(comm.rank());
      });
      comm.barrier();
    }
    check_cuda(cudaStreamDestroy(other), "cudaStreamDestroy");
  });
}

TEST_CASE("one slot suffices for all connections of a stripe") {
  check_rounds(test::ranks_that_meet(4), test::is_watched ? 20 : 40, 2, 1, 0);
}

TEST_CASE("connections go on across the wrap-around of their counts") {
  if (test::is_watched) {
    for (const std::uint32_t from : {~0u - 1, 0x7ffffffdu}) check_rounds(2, 16, 2, 2, from);
  } else {
    for (const std::uint32_t from : {~0u - 7, ~0u - 1, 0x7ffffff9u}) check_rounds(3, 60, 3, 2, from);
  }
}

TEST_CASE("packets of a message are not taken again when their flags come again after a wrap-around") {
  test::on_ranks(2, [](host::communicator& comm) {
    post_office office(comm, 1);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (std::size_t round = 0; round < 4; ++round) {
      office.start_at(1000);
      // The bytes of a message depend on its place in the plan.
      std::vector<planned> plan(round, planned{0, 0, 1});
      plan.insert(plan.end(), {{0, 1, 400}, {1, 0, 400}});
      office.move(plan, own, 1, 64);
    }
  });
}

TEST_CASE("a large message takes all stripes and many slots") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    post_office office(comm, 4);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    std::vector<planned> plan;
    for (int rank = 0; rank < comm.size(); ++rank)
      plan.push_back({rank, (rank + 1) % comm.size(), test::is_watched ? 30001u : 300001u});
    office.move(plan, own, 4, 64);
  });
}

namespace {

/// What went wrong on each rank where rank `r` moves `lists[r]`, one launch; a rank without messages launches nothing.
/// Lists of two short messages have warps of their own in blocks of 64 threads, and not in those of 32.
std::vector<std::string> failures_of(const std::vector<std::vector<message>>& lists, bool names_windows = true,
                                     unsigned threads = 64) {
  std::vector<std::string> texts(lists.size());
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(60);
  test::on_ranks(
      static_cast<int>(lists.size()),
      [&](host::communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank());
        requirements needs = comm.requirements();
        const auto connections = needs.add(channel::connections{comm.lsa(), 1, 2, 1024});
        const auto device_comm = comm.create_device_comm(needs);
        const auto window = comm.allocate(1 << 16);
        const test::device_array<char> sent(1 << 14);
        const test::device_array<char> received(1 << 14);
        channel::message_table table(16, 1);
        std::vector<message> mine = lists[me];
        for (message& m : mine) {
          m.data = m.way == channel::direction::send ? sent.get() : received.get();
          if (m.window != 0) {
            m.window += window.window().id;
            m.data = window.window().local;
          }
        }
        table.assign(mine,
                     names_windows || comm.rank() == 1 ? std::vector{window.window()} : std::vector<devcomm::window>{},
                     cudaStreamPerThread);
        comm.barrier();
        if (!mine.empty())
          collective::send_receive(device_comm.get(), connections, table,
                                   {.grid = 1, .block = threads, .stream = cudaStreamPerThread});
        test::finish("send_receive");
        const auto failures = device_comm.failures();
        if (!failures.empty()) texts[me] = host::describe(failures.front());
        comm.barrier();
      },
      options);
  return texts;
}

message send(int peer, std::uint64_t bytes) { return message::send(peer, nullptr, bytes); }
message receive(int peer, std::uint64_t bytes) { return message::receive(peer, nullptr, bytes); }
message receive_in_window(int peer, std::uint64_t bytes) {
  message m = receive(peer, bytes);
  m.window = 1;  // the test's, see failures_of
  return m;
}
message receive_in_other_window(int peer, std::uint64_t bytes) {
  message m = receive(peer, bytes);
  m.window = 2;
  return m;
}

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;

}  // namespace

TEST_CASE("ranks that name different sizes for a message are named, with both sizes") {
  for (const auto& [direct, threads] : {std::pair{false, 32u}, {true, 32u}, {false, 64u}, {true, 64u}}) {
    for (const auto& [sent, received] :
         std::vector<std::pair<std::uint64_t, std::uint64_t>>{{100, 50}, {0, 7}, {9000, 0}}) {
      const auto texts = failures_of({{receive(1, 8), send(1, sent)},
                                      {direct ? receive_in_window(0, received) : receive(0, received), send(0, 8)}},
                                     true, threads);
      const std::string sends = std::to_string(sent) + " bytes";
      const std::string receives = std::to_string(received) + " bytes";
      CHECK_THAT(texts[1], ContainsSubstring("rank 1, block 0: receive 0: mismatch: rank 0 sends " + sends +
                                             " where rank 1 receives " + receives));
      CHECK_THAT(texts[0], ContainsSubstring("rank 0, block 0: send 1: mismatch: rank 1 receives " + receives +
                                             " where rank 0 sends " + sends));
    }
  }
}

TEST_CASE("a rank that never lists the message is named") {
  CHECK_THAT(failures_of({{send(1, 20)}, {}})[0],
             ContainsSubstring("rank 0, block 0: send 0 waited for rank 1 to receive piece 1 and last saw 0: timeout"));
  CHECK_THAT(
      failures_of({{receive(1, 20)}, {}})[0],
      ContainsSubstring("rank 0, block 0: receive 0 waited for rank 1 to send message 1 and last saw 0: timeout"));
  // The others are moved all the same, and one message too many is found.
  const auto texts = failures_of({{send(1, 20), send(1, 30)}, {receive(0, 20)}});
  CHECK_THAT(texts[0], ContainsSubstring("send 1 waited for rank 1 to receive piece 2"));
  CHECK(texts[1].empty());
}

namespace {

__global__ void transfer_twice(device_comm comm, channel::connection_handle connections,
                               const channel::message_list* list, status* outcome) {
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  session.transfer(*list);
  session.transfer(*list);
  const status said = session.agree();
  if (threadIdx.x == 0) *outcome = said;
}

}  // namespace

TEST_CASE("a session whose transfer has failed moves nothing more, and says why") {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(60);
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        requirements needs = comm.requirements();
        const auto connections = needs.add(channel::connections{comm.lsa(), 1, 2, 1024});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<char> data(9000);
        const test::device_array<status> outcome(1);
        channel::message_table table(1, 0);
        if (comm.rank() == 0) {
          for (const std::uint64_t bytes : {std::uint64_t{20}, std::uint64_t{9000}}) {
            table.assign({message::send(1, data.get(), bytes)}, {}, cudaStreamPerThread);
            launch(transfer_twice, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(),
                   connections, table.on_device(), outcome.get());
            test::finish("transfer_twice");
            test::require(outcome.read()[0] == (bytes == 20 ? status::timeout : status::aborted), "a wrong outcome");
            test::require(device_comm.failures().size() == 1, "a dead session leaves another record");
          }
        }
        comm.barrier();
      },
      options);
}

TEST_CASE("a message to the wrong rank is missed by the right one") {
  const auto texts = failures_of({{send(2, 20)}, {receive(0, 20)}, {}});
  CHECK_THAT(texts[0], ContainsSubstring("send 0 waited for rank 2 to receive piece 1"));
  CHECK_THAT(texts[1], ContainsSubstring("receive 0 waited for rank 0 to send message 1"));
}

TEST_CASE("a peer that is none, and a window that the list does not name, fail by name") {
  for (const int peer : {-1, 2})
    CHECK_THAT(failures_of({{send(peer, 20)}, {}})[0],
               ContainsSubstring("rank 0, block 0: send 0: mismatch: its peer or its window is none of the session's"));
  for (const unsigned threads : {16u, 64u})  // less than a warp, and more
    CHECK_THAT(failures_of({{send(1, 20)}, {receive_in_window(0, 20)}}, false, threads)[0],
               ContainsSubstring("send 0: mismatch: rank 1 receives it into window"));
  for (const unsigned threads : {16u, 64u})
    CHECK_THAT(
        failures_of({{receive_in_other_window(1, 20)}, {send(0, 20)}}, true, threads)[0],
        ContainsSubstring("rank 0, block 0: receive 0: mismatch: its peer or its window is none of the session's"));
  CHECK_THAT(
      failures_of({{receive_in_window(1, 20)}, {send(0, 20)}}, false)[0],
      ContainsSubstring("rank 0, block 0: receive 0: mismatch: its peer or its window is none of the session's"));
}

TEST_CASE("what a rank sends itself must match what it receives") {
  CHECK_THAT(failures_of({{send(0, 20), receive(0, 30)}})[0],
             ContainsSubstring("receive 1: mismatch: rank 0 sends 20 bytes where rank 0 receives 30 bytes"));
  CHECK_THAT(failures_of({{send(0, 20)}})[0], ContainsSubstring("sends itself more messages than it receives"));
  CHECK_THAT(failures_of({{receive(0, 20)}})[0], ContainsSubstring("receives more of itself than it sends"));
}

namespace {

/// Tries for a while, and goes on where it stopped; rank 1 comes late.
__global__ void transfer_in_time(device_comm comm, channel::connection_handle connections, lsa::signal_handle signals,
                                 channel::message_list list, status* outcome) {
  if (comm.rank == 1) {
    lsa::signal_session never{block{}, comm, signals, 0};
    static_cast<void>(never.wait_for(lsa::any_peer, lsa::at_least{1}, milliseconds(3)));
  }
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  const status first = session.transfer_for(list, microseconds(200));
  status last = first;
  while (last == status::timeout) last = session.transfer_for(list, milliseconds(1));
  if (threadIdx.x != 0) return;
  outcome[0] = first;
  outcome[1] = last;
}

}  // namespace

TEST_CASE("a transfer with a deadline goes on where it stopped") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::size_t bytes = 5000;
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 1, 1024});
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<char> in(std::vector<char>(bytes, comm.rank() == 0 ? 'a' : 'b'));
    const test::device_array<char> out(bytes);
    const test::device_array<status> outcome(2);
    channel::message_table table(2, 0);
    const int peer = 1 - comm.rank();
    table.assign({message::send(peer, in.get(), bytes), message::receive(peer, out.get(), bytes)}, {},
                 cudaStreamPerThread);
    comm.barrier();
    launch(transfer_in_time, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), connections,
           signals, table.list(), outcome.get());
    test::finish("transfer_in_time");
    device_comm.check();
    const auto said = outcome.read();
    test::require(comm.rank() == 1 || said[0] == status::timeout, "a transfer without a peer did not time out");
    test::require(said[1] == status::success, "a transfer did not succeed in the end");
    test::require(out.read() == std::vector<char>(bytes, comm.rank() == 0 ? 'b' : 'a'), "wrong bytes");
    comm.barrier();
  });
}

namespace {

/// Stripe 1 comes late.
__global__ void transfer_with_late_lane(device_comm comm, channel::connection_handle connections,
                                        lsa::signal_handle signals, const channel::message_list* list) {
  if (blockIdx.x == 1) {
    lsa::signal_session never{block{}, comm, signals, 0};
    static_cast<void>(never.wait_for(lsa::any_peer, lsa::at_least{1}, milliseconds(20)));
  }
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  session.transfer(*list);
}

}  // namespace

TEST_CASE("a stripe without a part of a message at one end stores nothing past the memory of another message") {
  constexpr std::uint64_t large = 9000;
  constexpr std::uint64_t place = 10240;  // of a message in the window
  test::on_ranks(2, [](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 2, 2, 1024});
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto memory = comm.allocate(2 * place);
    check_cuda(cudaMemsetAsync(memory.data(), 0x5a, 2 * place, cudaStreamPerThread), "cudaMemsetAsync");
    const test::device_array<char> data(std::vector<char>(large, 'x'));
    channel::message_table table(2, 1);
    const auto to = [&](std::uint64_t at) { return sym_ptr<char>{memory.window(), at}; };
    table.assign(comm.rank() == 0
                     ? std::vector{message::send(1, data.get(), 100), message::send(1, data.get(), large)}
                     : std::vector{message::receive(0, to(0), large), message::receive(0, to(place), large)},
                 {memory.window()}, cudaStreamPerThread);
    comm.barrier();
    launch(transfer_with_late_lane, {.grid = 2, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(),
           connections, signals, table.on_device());
    test::finish("transfer_with_late_lane");
    const auto failures = device_comm.failures();
    test::require(!failures.empty(), "no mismatch on rank " + std::to_string(comm.rank()));
    const std::string text = host::describe(failures.front());
    const std::string right = comm.rank() == 0
                                  ? "rank 0, block 0: send 1: mismatch: rank 1 receives 9000 bytes as message 0 where "
                                    "rank 0 sends 9000 bytes as message 1: an earlier message had two sizes"
                                  : "rank 1, block 0: receive 0: mismatch: rank 0 sends 9000 bytes as message 1 where "
                                    "rank 1 receives 9000 bytes as message 0: an earlier message had two sizes";
    test::require(text == right, text);
    std::vector<char> got(2 * place);
    check_cuda(cudaMemcpyAsync(got.data(), memory.data(), got.size(), cudaMemcpyDefault, cudaStreamPerThread), "copy");
    test::finish("copy");
    comm.barrier();
    for (std::uint64_t i = large; i < place; ++i) test::require(got[i] == 0x5a, "bytes behind a message have changed");
  });
}

namespace {

/// Gives up.
__global__ void transfer_for_a_while(device_comm comm, channel::connection_handle connections,
                                     const channel::message_list* list, status* outcome) {
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  const status said = session.transfer_for(*list, microseconds(200));
  if (threadIdx.x == 0) *outcome = said;
}

}  // namespace

TEST_CASE("a session that gives a list up leaves a record, and the next begins dead") {
  std::string text;
  test::on_ranks(2, [&](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 1, 1024});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<char> data(100);
    const test::device_array<status> outcome(2);
    channel::message_table table(1, 0);
    table.assign({message::send(1 - comm.rank(), data.get(), 100)}, {}, cudaStreamPerThread);
    comm.barrier();
    if (comm.rank() == 0) {
      for (int time = 0; time < 2; ++time)
        launch(transfer_for_a_while, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(),
               connections, table.on_device(), outcome.get() + time);
      test::finish("transfer_for_a_while");
      const auto said = outcome.read();
      test::require(said[0] == status::timeout, "a transfer without a peer did not time out");
      test::require(said[1] == status::aborted, "a session after one that timed out is alive");
      const auto failures = device_comm.failures();
      if (!failures.empty()) text = host::describe(failures.front());
    }
    comm.barrier();
  });
  CHECK_THAT(text, Equals("rank 0, block 0: send 0 waited for rank 1 to receive piece 1 and last saw 0: timeout"));
}

namespace {

/// Calls without time to wait, and the most pieces that one of them sent to the other rank.
__global__ void transfer_at_once(device_comm comm, channel::connection_handle connections,
                                 const channel::message_list* list, std::uint32_t* most) {
  const auto layout = connections.layout;
  const auto* state = reinterpret_cast<const channel::connection_state*>(
      comm.resources.local + connections.offset +
      layout.state(0, static_cast<std::uint32_t>(1 - comm.rank), channel::direction::send));
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  std::uint32_t before = 0;
  std::uint32_t largest = 0;
  status said = status::timeout;
  while (said == status::timeout) {
    said = session.transfer_for(*list, microseconds(0));
    session.group().sync();
    const std::uint32_t now = state->pieces;
    session.group().sync();
    if (now - before > largest) largest = now - before;
    before = now;
  }
  if (threadIdx.x == 0) *most = said == status::success ? largest : ~0u;
}

/// Sends one message after the other, with a pause before each.
__global__ void send_with_pauses(device_comm comm, channel::connection_handle connections, lsa::signal_handle signals,
                                 channel::message_list list) {
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  for (std::uint32_t i = 0; i < list.count; ++i) {
    {
      lsa::signal_session never{block{}, comm, signals, 0};
      static_cast<void>(never.wait_for(lsa::any_peer, lsa::at_least{1}, milliseconds(60)));
    }
    session.transfer({list.messages + i, 1, list.window_count, list.windows});
  }
}

}  // namespace

TEST_CASE("a transfer whose time is over ends after a piece, however many are ready") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::size_t bytes = 8 * 1024;
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 4, 256, 0});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<char> in(std::vector<char>(bytes, comm.rank() == 0 ? 'a' : 'b'));
    const test::device_array<char> out(bytes);
    const test::device_array<std::uint32_t> most(1);
    channel::message_table table(2, 0);
    const int peer = 1 - comm.rank();
    table.assign({message::send(peer, in.get(), bytes), message::receive(peer, out.get(), bytes)}, {},
                 cudaStreamPerThread);
    comm.barrier();
    launch(transfer_at_once, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), connections,
           table.on_device(), most.get());
    test::finish("transfer_at_once");
    device_comm.check();
    test::require(most.read()[0] == 1, "a call sent " + std::to_string(most.read()[0]) + " pieces");
    test::require(out.read() == std::vector<char>(bytes, comm.rank() == 0 ? 'b' : 'a'), "wrong bytes");
    comm.barrier();
  });
}

TEST_CASE("a receiver whose messages come one by one does not time out") {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(300);
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        constexpr int messages = 8;
        requirements needs = comm.requirements();
        const auto connections = needs.add(channel::connections{comm.lsa(), 1, 1, 1024});
        const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
        const auto device_comm = comm.create_device_comm(needs);
        const auto memory = comm.allocate(1024);
        const test::device_array<char> data(64);
        channel::message_table table(messages, 1);
        const message one = comm.rank() == 0 ? message::send(1, data.get(), 64)
                                             : message::receive(0, sym_ptr<char>{memory.window(), 0}, 64);
        table.assign(std::vector(messages, one), {memory.window()}, cudaStreamPerThread);
        comm.barrier();
        const launch_config shape{.grid = 1, .block = 64, .stream = cudaStreamPerThread};
        if (comm.rank() == 0) {
          launch(send_with_pauses, shape, device_comm.get(), connections, signals, table.list());
        } else {
          collective::send_receive(device_comm.get(), connections, table, shape);
        }
        test::finish("messages with pauses");
        device_comm.check();
        comm.barrier();
      },
      options);
}

TEST_CASE("a captured graph moves the list that was assigned last, however long") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::size_t messages = 3;
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 1, 1024});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<char> in(std::vector<char>(messages, 'x'));
    const test::device_array<char> out(messages);
    channel::message_table table(2 * messages, 0);
    const int peer = 1 - comm.rank();
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    collective::send_receive(device_comm.get(), connections, table, {.grid = 1, .block = 64, .stream = stream});
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    std::vector<message> list;
    for (std::size_t i = 0; i < messages; ++i) {
      list.push_back(message::send(peer, in.get() + i, 1));
      list.push_back(message::receive(peer, out.get() + i, 1));
    }
    table.assign(list, {}, stream);
    comm.barrier();
    check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    check_cuda(cudaStreamSynchronize(stream), "send_receive");
    device_comm.check();
    test::require(out.read() == std::vector<char>(messages, 'x'), "a graph moved another list");
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    comm.barrier();
  });
}

TEST_CASE("no world rank has the mark of a FIFO that has had no peer") {
  for (const int rank : {0, 1, 65534, 65535, 65536, 131071}) {
    CHECK(channel::fifo_peer_mark(rank) != 0);
    CHECK(channel::fifo_peer_mark(rank) <= 0xffffu);
  }
  CHECK(channel::fifo_peer_mark(65534) != channel::fifo_peer_mark(0));
}

TEST_CASE("sizes that would wrap around ask for more than any machine has") {
  requirements needs(team{0, 2, 0, 1});
  constexpr std::uint64_t endless = std::uint64_t{1} << 60;
  const auto bytes_of = [&](const auto& feature) {
    requirements with = needs;
    static_cast<void>(with.add(feature));
    return with.bytes();
  };
  CHECK(bytes_of(channel::simple_fifos{needs.lsa(), 1u << 16, 1u << 28, 1u << 16}) == endless);
  CHECK(bytes_of(channel::ll_fifos{needs.lsa(), ~0u, ~0u, ~0u}) == endless);
  CHECK(bytes_of(channel::ll128_fifos{needs.lsa(), 1u << 31, 1u << 31, 1u << 30}) == endless);
  CHECK(bytes_of(channel::connections{needs.lsa(), ~0u, 32, 1u << 30}) == endless);
  CHECK(bytes_of(lsa::ll_slots{needs.lsa(), ~0u, ~0u, ~0u}) == endless);
  CHECK(bytes_of(channel::simple_fifos{needs.lsa(), 2}) < endless);
  test::on_ranks(1, [](host::communicator& comm) {
    requirements too_much = comm.requirements();
    static_cast<void>(too_much.add(channel::simple_fifos{comm.lsa(), 1u << 16, 1u << 28, 1u << 16}));
    bool failed = false;
    try {
      static_cast<void>(comm.create_device_comm(too_much));
    } catch (const host::error&) {
      failed = true;
    }
    test::require(failed, "a device communicator has more memory than there is");
  });
}
