// From what kernels leave in memory to the clocks and the file, without kernels.
#include "diagnostics/trace_data.hpp"

#include <devcomm/diagnostics/failure.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace devcomm;
using namespace devcomm::host::detail;

namespace {

trace_record span(std::uint64_t begin, std::uint64_t end, span_name name) { return {begin, end, name.low, name.high}; }

trace_record sync_span(std::uint64_t begin, std::uint64_t end, std::uint32_t epoch) {
  const awaited_span name{static_cast<std::uint32_t>(operation::lsa_barrier), 3, 2, epoch, 0, span_kind::sync};
  return span(begin, end, name.pack());
}

rank_trace one_ring(int rank, std::vector<trace_record> spans) {
  rank_trace trace;
  trace.rank = rank;
  trace.rings.push_back({0, 0, 0, std::move(spans)});
  return trace;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Where `part` begins; a failure of the test when it is not there.
std::size_t place(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  REQUIRE(contains(text, part));
  return text.find(part);
}

}  // namespace

TEST_CASE("a name keeps up to 15 letters, and its kind") {
  constexpr span_name name{"exactly15letter", span_kind::copy};
  STATIC_REQUIRE(name.kind() == span_kind::copy);
  const std::string text = trace_json({one_ring(0, {span(1, 2, name), span(3, 4, "b")})}, {{}}, "simulator");
  CHECK(contains(text, "\"name\": \"exactly15letter\", \"cat\": \"copy\""));
  CHECK(contains(text, "\"name\": \"b\", \"cat\": \"user\""));
}

TEST_CASE("a name cannot break the file") {
  const std::string text = trace_json({one_ring(0, {span(1, 2, "a\"b\\c\nd\xff")})}, {{}}, "simulator");
  CHECK(contains(text, "\"name\": \"a?b?c?d?\""));
}

TEST_CASE("the name of a wait survives its packing") {
  const awaited_span wait{2, 0xfedcba98, 0x12345678, 0xffffffff, 0xabcd, span_kind::wait};
  const span_name packed = wait.pack();
  const awaited_span back = awaited_span::unpack(packed.low, packed.high);
  CHECK(back.what == wait.what);
  CHECK(back.index == wait.index);
  CHECK(back.handle == wait.handle);
  CHECK(back.epoch == wait.epoch);
  CHECK(back.first == wait.first);
  CHECK(back.kind == wait.kind);
}

TEST_CASE("the name of a call survives its packing, and says what it ran over") {
  const auto lamport = static_cast<std::uint32_t>(operation::lamport_mailbox);
  const span_name packed = call_span{collective_call::broadcast_zero_copy, lamport, std::uint64_t{1} << 40}.pack();
  CHECK(packed.kind() == span_kind::call);
  const std::string text = trace_json({one_ring(0, {span(1, 2, packed)})}, {{}}, "simulator");
  CHECK(contains(text,
                 "\"name\": \"broadcast_zero_copy\", \"args\": {\"over\": \"Lamport mailbox\", \"count\": "
                 "1099511627776}, \"cat\": \"call\""));
}

TEST_CASE("a ring that was overrun gives its newest spans, oldest first, and counts the others") {
  const trace_rings rings{0, 2, 2, 4, 0};
  std::vector<std::byte> bytes(rings.bytes());
  const auto put = [&](std::uint64_t at, const auto& value) { std::memcpy(&bytes[at], &value, sizeof value); };
  put(0, std::uint32_t{7});
  put(rings.count(3), std::uint32_t{6});
  for (std::uint32_t i = 0; i < 6; ++i) put(rings.record(3, i % 4), span(i, i + 1, "s"));
  put(rings.count(0), std::uint32_t{1});
  put(rings.record(0, 0), span(9, 10, "t"));

  const rank_trace trace = read_trace(5, rings, bytes);
  CHECK(trace.rank == 5);
  CHECK(trace.unplaced == 7);
  REQUIRE(trace.rings.size() == 2);
  CHECK(trace.rings[0].lost == 0);
  CHECK(trace.rings[1].block == 1);
  CHECK(trace.rings[1].warp == 1);
  CHECK(trace.rings[1].lost == 2);
  REQUIRE(trace.rings[1].spans.size() == 4);
  CHECK(trace.rings[1].spans.front().begin == 2);
  CHECK(trace.rings[1].spans.back().begin == 5);

  const std::string text = trace_json({trace}, {{}}, "simulator");
  CHECK(contains(text, "\"2 older spans lost: the ring holds 4\""));
  CHECK(contains(text, "\"7 spans had no room: ask for more blocks or warps\""));
  CHECK(contains(text, "\"lost_spans\": 2, \"spans_without_room\": 7"));
}

TEST_CASE("spans nest in the file as they did in time, whatever order they ended in") {
  const std::string text = trace_json({one_ring(0, {span(10, 20, "first"), span(12, 18, "in"), span(30, 40, "b1"),
                                                    span(40, 40, "b2"), span(25, 50, "outer"), span(50, 60, "next")})},
                                      {{}}, "simulator");
  // "in" ended before "first" in time, yet was recorded after it: it cannot be its child, and is moved behind it.
  CHECK(place(text, "\"first\"") < place(text, "\"in\""));
  CHECK(place(text, "\"outer\"") < place(text, "\"b1\""));
  CHECK(place(text, "\"b1\"") < place(text, "\"b2\""));
  CHECK(place(text, "\"b2\"") < place(text, "\"next\""));
  CHECK(contains(text, "{\"ph\": \"B\", \"pid\": 0, \"tid\": 0, \"ts\": 0.015, \"name\": \"outer\""));
  CHECK(contains(text, "{\"ph\": \"E\", \"pid\": 0, \"tid\": 0, \"ts\": 0.040}"));
}

TEST_CASE("clocks are aligned within the bound that is stated, through other ranks where needed") {
  std::srand(1);
  constexpr std::int64_t ahead[] = {0, 123456, -98765, 4000000000};
  // Three ranks meet at one barrier; the last meets only rank 2, at another.
  std::vector<rank_trace> traces;
  for (int rank = 0; rank < 4; ++rank) traces.push_back(one_ring(rank, {}));
  std::uint64_t now = 5000000000;
  const auto meet = [&](const std::vector<std::size_t>& ranks, std::uint32_t epoch) {
    std::vector<std::uint64_t> begins;
    std::uint64_t all_here = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      begins.push_back(now + static_cast<std::uint64_t>(std::rand() % 3000));
      all_here = std::max(all_here, begins.back());
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::uint64_t end = all_here + 500 + static_cast<std::uint64_t>(std::rand() % 700);
      const auto shift = static_cast<std::uint64_t>(ahead[ranks[i]]);
      traces[ranks[i]].rings[0].spans.push_back(sync_span(begins[i] + shift, end + shift, epoch));
    }
    now += 10000;
  };
  for (std::uint32_t round = 0; round < 100; ++round) {
    meet({0, 1, 2}, round);
    meet({2, 3}, 1000 + round);
  }
  const auto offsets = align_clocks(traces);
  CHECK(offsets[0].nanoseconds == 0);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank, offsets[rank].nanoseconds, offsets[rank].accuracy);
    CHECK(offsets[rank].accuracy >= 0);
    CHECK(std::abs(offsets[rank].nanoseconds - ahead[rank]) <= offsets[rank].accuracy);
    CHECK(offsets[rank].accuracy < 2000);
  }
}

TEST_CASE("a rank that met nobody is said not to be aligned") {
  const std::vector<rank_trace> traces{one_ring(0, {sync_span(10, 20, 1)}), one_ring(1, {sync_span(10, 20, 2)})};
  const auto offsets = align_clocks(traces);
  CHECK(offsets[1].accuracy == -1);
  const std::string text = trace_json(traces, offsets, "cuda");
  CHECK(contains(text, "rank 1 (clock not aligned)"));
  CHECK(contains(text, "\"rank\": 1, \"offset_ns\": 0, \"accuracy_ns\": null"));
}

TEST_CASE("the step of the clocks is found in the times") {
  CHECK(clock_resolution({one_ring(0, {span(1000032, 1000064, "a"), span(1000064, 1000160, "b")})}) == 32);
  CHECK(clock_resolution({}) == 1);
}
