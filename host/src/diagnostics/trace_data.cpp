#include "diagnostics/trace_data.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace devcomm::host::detail {
namespace {

constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max() / 4;

/// Names one barrier of a team at one epoch: both words of an `awaited_span`.
using rendezvous = std::pair<std::uint64_t, std::uint64_t>;
using rendezvous_map = std::map<rendezvous, trace_record>;

rendezvous_map rendezvous_of(const rank_trace& trace) {
  rendezvous_map found;
  for (const trace_ring& ring : trace.rings) {
    for (const trace_record& span : ring.spans) {
      if (static_cast<span_kind>(span.name_high >> 56) != span_kind::sync) continue;
      found.insert_or_assign({span.name_low, span.name_high}, span);
    }
  }
  return found;
}

struct bounds {
  std::int64_t least = -unknown;
  std::int64_t most = unknown;

  [[nodiscard]] bool known() const { return least > -unknown && most < unknown; }
  [[nodiscard]] std::int64_t width() const { return most - least; }
};

std::int64_t difference(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b); }

/// Bounds of the clock of `b` minus that of `a`: neither leaves the barrier before the other has arrived.
bounds bound_offset(const rendezvous_map& a, const rendezvous_map& b, std::int64_t resolution) {
  bounds found;
  for (const auto& [name, mine] : a) {
    const auto theirs = b.find(name);
    if (theirs == b.end()) continue;
    found.least = std::max(found.least, difference(theirs->second.begin, mine.end) - resolution);
    found.most = std::min(found.most, difference(theirs->second.end, mine.begin) + resolution);
  }
  return found;
}

template <class T>
T read_at(std::span<const std::byte> bytes, std::uint64_t place) {
  T value{};
  std::memcpy(&value, bytes.subspan(place, sizeof(T)).data(), sizeof(T));
  return value;
}

}  // namespace

rank_trace read_trace(int rank, const trace_rings& room, std::span<const std::byte> bytes) {
  rank_trace trace;
  trace.rank = rank;
  trace.unplaced = read_at<std::uint32_t>(bytes, 0);
  for (std::uint32_t number = 0; number < room.rings(); ++number) {
    const auto written = read_at<std::uint32_t>(bytes, room.count(number));
    if (written == 0) continue;
    trace_ring ring;
    ring.block = number / room.warps;
    ring.warp = number % room.warps;
    ring.lost = written > room.spans ? written - room.spans : 0;
    for (std::uint32_t i = ring.lost; i != written; ++i) {
      ring.spans.push_back(read_at<trace_record>(bytes, room.record(number, i % room.spans)));
    }
    trace.rings.push_back(std::move(ring));
  }
  return trace;
}

std::uint64_t clock_resolution(const std::vector<rank_trace>& traces) {
  std::uint64_t step = 0;
  for (const rank_trace& trace : traces) {
    for (const trace_ring& ring : trace.rings) {
      for (const trace_record& span : ring.spans) {
        step = std::gcd(step, span.end - span.begin);
        step = std::gcd(step, span.begin - ring.spans.front().begin);
      }
    }
  }
  return std::max<std::uint64_t>(step, 1);
}

std::vector<clock_offset> align_clocks(const std::vector<rank_trace>& traces) {
  const auto resolution = static_cast<std::int64_t>(clock_resolution(traces));
  std::vector<rendezvous_map> met;
  met.reserve(traces.size());
  for (const rank_trace& trace : traces) met.push_back(rendezvous_of(trace));
  std::vector<clock_offset> offsets(traces.size(), {0, -1});
  if (!offsets.empty()) offsets[0].accuracy = 0;

  // Smallest uncertainty first, as in Dijkstra's shortest paths.
  std::vector<bool> done(traces.size(), false);
  for (;;) {
    std::size_t next = traces.size();
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (done[i] || offsets[i].accuracy < 0) continue;
      if (next == traces.size() || offsets[i].accuracy < offsets[next].accuracy) next = i;
    }
    if (next == traces.size()) return offsets;
    done[next] = true;
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (done[i]) continue;
      const bounds found = bound_offset(met[next], met[i], resolution);
      if (!found.known()) continue;
      // Drifting clocks may give bounds that contradict each other slightly: then the width is negative.
      const std::int64_t accuracy = offsets[next].accuracy + (std::abs(found.width()) + 1) / 2;
      if (offsets[i].accuracy >= 0 && offsets[i].accuracy <= accuracy) continue;
      offsets[i] = {offsets[next].nanoseconds + found.least + found.width() / 2, accuracy};
    }
  }
}

}  // namespace devcomm::host::detail
