// The watchdog's sentences and settings, without kernels.
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "../host/communicator/rank_harness.hpp"
#include "diagnostics/abort_state.hpp"
#include "diagnostics/wait_report.hpp"
#include "diagnostics/watchdog_settings.hpp"
#include "diagnostics/watched_waits.hpp"

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;

using namespace std::chrono_literals;

namespace {

host::detail::observed_wait wait(std::uint32_t index, std::int32_t peer, std::uint32_t block, std::uint32_t thread,
                                 std::chrono::nanoseconds age = 2s) {
  wait_record record{};
  record.number = 1;
  record.what = operation::lsa_barrier;
  record.index = index;
  record.peer_index = index;
  record.peer = peer;
  record.block = block;
  record.thread = thread;
  record.expected = 5;
  record.seen = 4;
  return {record, age};
}

/// Of a group that waits for another one of its rank.
host::detail::observed_wait group_wait(std::uint32_t index, std::uint32_t peer_index, std::uint32_t block,
                                       std::int32_t rank = 0, std::uint32_t offset = 0) {
  host::detail::observed_wait one = wait(index, rank, block, 0);
  one.record.what = operation::ll_mailbox;
  one.record.peer_index = peer_index;
  one.record.groups = offset / 128 + 1;
  return one;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

host::detail::environment variables(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("where nothing waits there is nothing to say") {
  CHECK(host::detail::report_waits({}).empty());
  CHECK(host::detail::report_waits({{"one", {{0, {}, false}, {1, {}, false}}}}).empty());
}

TEST_CASE("one wait is one sentence, and its peer's own wait is told") {
  const std::string text =
      host::detail::report_waits({{"one", {{0, {wait(3, 1, 2, 7, 1500ms)}, false}, {1, {}, false}}}});
  CHECK(text ==
        "  rank 0, block 2, thread 7 waits at LSA barrier 3 for rank 1 to reach epoch 5 and last saw 4, for 1.5 s; "
        "rank 1 waits for nobody\n"
        "  rank 0 waits in the end for rank 1, which waits for nobody: its kernel has not started, is over, or is "
        "busy with something else");
}

TEST_CASE("waits for signals say what the word is to become, and where it lies") {
  host::detail::observed_wait one = wait(3, 1, 2, 0);
  one.record.what = operation::lsa_signal;
  one.record.condition = wait_condition::at_least;
  host::detail::observed_wait other = wait(3, 1, 2, 0);
  other.record.what = operation::lsa_signal;
  other.record.condition = wait_condition::equal;
  const std::string text = host::detail::report_waits({{"one", {{0, {one, other}, false}, {1, {}, false}}}});
  CHECK(contains(
      text, "rank 0, block 2, thread 0 waits at LSA signal 3 for rank 1 to bring it to at least 5 and last saw 4"));
  CHECK(contains(text, "rank 0, block 2, thread 0 waits at LSA signal 3 for rank 1 to set it to 5 and last saw 4"));

  one.record.peer = -1;
  one.record.window = 8;
  one.record.condition = wait_condition::predicate;
  const std::string any = host::detail::report_waits({{"one", {{0, {one}, false}, {1, {wait(0, 0, 0, 0)}, false}}}});
  CHECK(any ==
        "  rank 0, block 2, thread 0 waits at LSA signal at word 3 of window 7 for any rank to set it to what the "
        "caller's predicate takes and last saw 4, for 2.0 s\n"
        "  rank 1, block 0, thread 0 waits at LSA barrier 0 for rank 0 to reach epoch 5 and last saw 4, for 2.0 s; "
        "rank 0 itself waits at LSA signal at word 3 of window 7 for any rank");
}

TEST_CASE("equal waits of many blocks and threads are one sentence") {
  std::vector<host::detail::observed_wait> many;
  for (std::uint32_t block = 0; block < 32; ++block) many.push_back(wait(block, 1, block, block % 2 * 3));
  const std::string text = host::detail::report_waits({{"one", {{0, many, false}, {1, {}, false}}}});
  CHECK(contains(text, "rank 0, blocks 0-31, threads 0 and 3 wait at LSA barriers 0-31 for rank 1"));
  const std::string gaps = host::detail::report_waits({{"one", {{0, {wait(0, 1, 1, 0), wait(2, 1, 5, 0)}, false}}}});
  CHECK(contains(gaps, "blocks 1 and 5, thread 0 wait at LSA barriers 0 and 2 for"));
}

TEST_CASE("ranks that wait for the same peers are one sentence, and so are the peers of a rank") {
  const std::string text = host::detail::report_waits({{"one",
                                                        {{0, {wait(0, 3, 0, 2)}, false},
                                                         {1, {wait(0, 3, 0, 2)}, false},
                                                         {2, {wait(0, 3, 0, 2)}, false},
                                                         {3, {wait(7, 0, 0, 0), wait(7, 1, 0, 1)}, false}}}});
  CHECK(contains(
      text,
      "  ranks 0-2, block 0, thread 2 wait at LSA barrier 0 for rank 3 to reach epoch 5 and last saw 4, for "
      "2.0 s; rank 3 itself waits at LSA barrier 7 for ranks 0 and 1\n"
      "  rank 3, block 0, threads 0 and 1 wait at LSA barrier 7 for ranks 0 and 1 to reach epoch 5 and last saw 4, "
      "for 2.0 s; ranks 0 and 1 themselves wait at LSA barrier 0 for rank 3\n"));
}

TEST_CASE("of a rank that waits in several places one is told, with the ranks that it waits for there") {
  host::detail::observed_wait in_channel = wait(5, 3, 1, 0);
  in_channel.record.what = operation::ll_mailbox;
  const std::string text = host::detail::report_waits(
      {{"one", {{0, {wait(0, 1, 0, 0)}, false}, {1, {wait(2, 0, 0, 0), in_channel}, false}, {3, {}, false}}}});
  CHECK(contains(text, "; rank 1 itself waits at LSA barrier 2 for rank 0\n"));
}

TEST_CASE("a chain of waits ends at the rank that waits for nobody") {
  const std::string text = host::detail::report_waits(
      {{"one", {{0, {wait(0, 1, 0, 0)}, false}, {1, {wait(2, 2, 0, 0)}, false}, {2, {}, false}}}});
  CHECK(contains(text, "rank 1 itself waits at LSA barrier 2 for rank 2"));
  CHECK(contains(text, "\n  ranks 0 and 1 wait in the end for rank 2, which waits for nobody"));
  CHECK_FALSE(contains(text, "each other"));
}

TEST_CASE("ranks that wait for each other are shown by a shortest way, once") {
  const std::string text = host::detail::report_waits({{"one",
                                                        {{0, {wait(0, 1, 0, 0)}, false},
                                                         {1, {wait(1, 2, 0, 0), wait(1, 3, 0, 1)}, false},
                                                         {2, {wait(2, 0, 0, 0)}, false},
                                                         {3, {wait(2, 1, 0, 0)}, false},
                                                         {4, {wait(2, 0, 0, 0)}, false}}}});
  CHECK(contains(text, "\n  these wait for each other: rank 0 -> rank 1 -> rank 2 -> rank 0"));
  CHECK(text.find("each other") == text.rfind("each other"));
  CHECK_FALSE(contains(text, "in the end"));
}

TEST_CASE("a wait for another group of the same rank names that group's channel") {
  const std::string text = host::detail::report_waits({{"one", {{0, {group_wait(3, 1, 7)}, false}, {1, {}, false}}}});
  CHECK(text ==
        "  rank 0, block 7, thread 0 waits at LL mailbox 3 for LL mailbox 1 of the same rank to reach epoch 5 and last "
        "saw 4, for 2.0 s; nobody waits at LL mailbox 1\n"
        "  rank 0 waits in the end for LL mailbox 1 of rank 0, where nobody waits: its group has not started, is over, "
        "waits elsewhere, or is busy");
  const std::string circle =
      host::detail::report_waits({{"one",
                                   {{0, {group_wait(3, 1, 7), group_wait(2, 1, 6), group_wait(1, 3, 5)}, false},
                                    {1, {wait(0, 0, 0, 0)}, false}}}});
  CHECK(contains(circle, "; LL mailbox 1, of block 5, itself waits for LL mailbox 3"));
  CHECK(contains(
      circle, "these wait for each other: LL mailbox 1 of rank 0 -> LL mailbox 3 of rank 0 -> LL mailbox 1 of rank 0"));
  CHECK(circle.find("each other") == circle.rfind("each other"));
  CHECK_FALSE(contains(circle, "rank 0 -> rank 0"));
}

TEST_CASE("groups of several ranks that wait alike are one sentence, and what else a rank waits for is told") {
  const std::string text = host::detail::report_waits(
      {{"one",
        {{0, {group_wait(3, 1, 7)}, false}, {1, {group_wait(3, 1, 7, 1), wait(4, 2, 0, 0)}, false}, {2, {}, false}}}});
  CHECK(contains(text, "; nobody waits at LL mailbox 1\n"));
  CHECK(contains(text, "ranks 0 and 1, block 7, thread 0 wait at LL mailbox 3 for LL mailbox 1 of the same rank"));
  CHECK(contains(text, "rank 1 waits in the end for rank 2, which waits for nobody"));
  CHECK(contains(text, "rank 1 waits in the end for LL mailbox 1 of rank 1, where nobody waits"));
}

TEST_CASE("ranks are named where their groups do not do the same") {
  const std::string text = host::detail::report_waits(
      {{"one", {{0, {group_wait(3, 1, 7)}, false}, {1, {group_wait(3, 1, 7, 1), group_wait(1, 2, 5, 1)}, false}}}});
  CHECK(
      contains(text,
               "  ranks 0 and 1, block 7, thread 0 wait at LL mailbox 3 for LL mailbox 1 of the same rank to reach "
               "epoch 5 and last saw 4, for 2.0 s; nobody waits at LL mailbox 1 of rank 0; LL mailbox 1 of rank 1, of "
               "block 5, itself waits for LL mailbox 2\n"));
}

TEST_CASE("groups of two handles are told apart, though their channels have the same numbers") {
  const std::string text =
      host::detail::report_waits({{"one", {{0, {group_wait(0, 1, 7, 0, 256), group_wait(1, 0, 6, 0, 1024)}, false}}}});
  CHECK(
      text ==
      "  rank 0, block 7, thread 0 waits at LL mailbox 0 for LL mailbox 1 of the handle at 256 bytes of the same rank "
      "to reach epoch 5 and last saw 4, for 2.0 s; nobody waits at LL mailbox 1 of the handle at 256 bytes\n"
      "  rank 0, block 6, thread 0 waits at LL mailbox 1 for LL mailbox 0 of the handle at 1024 bytes of the same rank "
      "to reach epoch 5 and last saw 4, for 2.0 s; nobody waits at LL mailbox 0 of the handle at 1024 bytes\n"
      "  rank 0 waits in the end for LL mailbox 1 of the handle at 256 bytes of rank 0, where nobody waits: its group "
      "has not started, is over, waits elsewhere, or is busy\n"
      "  rank 0 waits in the end for LL mailbox 0 of the handle at 1024 bytes of rank 0, where nobody waits: its group "
      "has not started, is over, waits elsewhere, or is busy");
}

TEST_CASE("a group that waits for its own packet is told by its channel, and to wait for itself") {
  const std::string text = host::detail::report_waits({{"one", {{0, {group_wait(3, 3, 7)}, false}}}});
  CHECK(text ==
        "  rank 0, block 7, thread 0 waits at LL mailbox 3 for LL mailbox 3 of the same rank to reach epoch 5 and last "
        "saw 4, for 2.0 s; LL mailbox 3, of block 7, itself waits for LL mailbox 3\n"
        "  LL mailbox 3 of rank 0 waits for itself");
  const std::string rank = host::detail::report_waits(
      {{"one", {{0, {wait(3, 0, 7, 0), wait(4, 1, 0, 0)}, false}, {1, {wait(4, 0, 0, 0)}, false}}}});
  CHECK(contains(rank, "\n  rank 0 waits for itself\n  these wait for each other: rank 0 -> rank 1 -> rank 0"));
}

TEST_CASE("of a rank that waits for ranks as well as among its groups, the former is told") {
  const std::string text = host::detail::report_waits(
      {{"one", {{0, {group_wait(3, 1, 7), wait(5, 1, 0, 0)}, false}, {1, {wait(2, 0, 0, 0)}, false}}}});
  CHECK(contains(text, "rank 1, block 0, thread 0 waits at LSA barrier 2 for rank 0"));
  CHECK(contains(text, "; rank 0 itself waits at LSA barrier 5 for rank 1\n"));
  const std::string groups_only =
      host::detail::report_waits({{"one", {{0, {group_wait(3, 1, 7)}, false}, {1, {wait(2, 0, 0, 0)}, false}}}});
  CHECK(contains(groups_only, "; rank 0 itself waits at LL mailbox 3 for LL mailbox 1 of rank 0\n"));
}

TEST_CASE("a peer in another process is said to be there") {
  const std::string text = host::detail::report_waits({{"one", {{0, {wait(0, 1, 0, 0)}, false}}}});
  CHECK(contains(text, "; rank 1 is in another process"));
  CHECK(contains(text, "rank 0 waits in the end for rank 1, which is in another process: ask that one"));
}

TEST_CASE("device communicators are told apart, and a full table is said") {
  const std::string text = host::detail::report_waits(
      {{"first", {{0, {wait(0, 1, 0, 0)}, false}}}, {"second", {{3, {wait(0, 1, 0, 0)}, true}}}, {"third", {}}});
  CHECK(contains(text, "first:\n  rank 0"));
  CHECK(contains(text, "\nsecond:\n  rank 3"));
  CHECK(contains(text, "rank 3 has more waits than the 1024 that its table holds"));
  CHECK_FALSE(contains(text, "third"));
}

TEST_CASE("a report has a limited number of lines and says what it left out") {
  std::vector<host::detail::observed_wait> many;
  for (std::uint32_t index = 1; index <= 70; ++index) many.push_back(wait(index, 1, index / 2 * 2, 0));
  for (auto& one : many) one.record.seen = one.record.index;
  CHECK(contains(host::detail::report_waits({{"one", {{0, many, false}}}}), "\n  and 6 more of such lines"));
}

TEST_CASE("a record is read only when it is complete") {
  wait_record record = wait(1, 2, 3, 4).record;
  record.groups = 9;
  CHECK(host::detail::read_wait(record).peer == 2);
  CHECK(host::detail::read_wait(record).groups == 9);
  record.condition = wait_condition::equal;
  record.window = 7;
  CHECK(host::detail::read_wait(record).condition == wait_condition::equal);
  CHECK(host::detail::read_wait(record).window == 7);
  record.number = 0;
  CHECK(host::detail::read_wait(record).number == 0);
}

TEST_CASE("the watchdog's variables set its options, or are refused by name") {
  CHECK(host::detail::watchdog_options_from(variables({})).after == 10s);
  const auto options = host::detail::watchdog_options_from(
      variables({{"DEVCOMM_WATCHDOG_AFTER", "2.5"}, {"DEVCOMM_WATCHDOG_SIGNAL", "1"}}));
  CHECK(options.after == 2500ms);
  CHECK(options.on_signal);
  CHECK(host::detail::watchdog_options_from(variables({{"DEVCOMM_WATCHDOG_AFTER", "0"}})).after == 0ms);
  for (const char* bad : {"", "-1", "soon", "nan", "inf", "2e9", "1 "})
    CHECK_THROWS_AS(host::detail::watchdog_options_from(variables({{"DEVCOMM_WATCHDOG_AFTER", bad}})),
                    host::invalid_argument);
  CHECK_THROWS_AS(host::detail::watchdog_options_from(variables({{"DEVCOMM_WATCHDOG_SIGNAL", "yes"}})),
                  host::invalid_argument);
  CHECK_THROWS_AS(host::set_watchdog({-1ms, false, {}}), host::invalid_argument);
}

TEST_CASE("ranks that do not agree on being watched are told so") {
  const auto ends = devcomm_test::on_threads(2, [](std::shared_ptr<host::bootstrap> ranks) {
    host::communicator_options options;
    options.watchdog = ranks->rank() == 0;
    host::communicator comm(std::move(ranks), options);
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  });
  for (const std::string& end : ends) CHECK(contains(end, "rank 1 watches no waits and rank 0 does; compile"));
}

TEST_CASE("a watched device communicator leaves nothing behind") {
  std::optional<devcomm_test::holdings> first;
  for (int round = 0; round < 20; ++round) {
    const auto ends = devcomm_test::on_threads(2, [](std::shared_ptr<host::bootstrap> ranks) {
      host::communicator_options options;
      options.watchdog = true;
      host::communicator comm(std::move(ranks), options);
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      comm.barrier();
    });
    REQUIRE(ends == devcomm_test::all_ok(2));
    const auto now = devcomm_test::count_holdings();
    if (!first && round == 2) first = now;
    if (first) CHECK(now.threads == first->threads);
    if (first) CHECK(now.descriptors == first->descriptors);
  }
}

TEST_CASE("where a peer's windows are gone because another rank has died, check names that rank") {
  failure_log log{};
  host::detail::abort_state aborts(0, 3);
  aborts.attach(&log, 1);
  aborts.fail(&log, "put to rank 2: rank 2 has no window 4");
  std::thread news([&] {
    std::this_thread::sleep_for(50ms);  // which comes by another connection
    aborts.lose(1, "rank 1 is gone");
  });
  int named = -1;
  try {
    aborts.check(&log);
  } catch (const host::remote_error& error) {
    named = error.rank();
  }
  news.join();
  CHECK(named == 1);
}

TEST_CASE("a failure of the network that no rank's end explains is thrown as it is") {
  failure_log log{};
  host::detail::abort_state aborts(0, 3);
  aborts.attach(&log, 1);
  aborts.fail(&log, "put to rank 2: rank 2 has no window 4");
  CHECK_THROWS_AS(aborts.check(&log), host::kernel_error);
}
