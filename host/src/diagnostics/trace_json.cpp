#include "diagnostics/trace_data.hpp"

#include <devcomm/diagnostics/failure.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>

namespace devcomm::host::detail {
namespace {

/// Text of a name that `span_name` has packed, fit for a JSON string.
std::string letters(const trace_record& span) {
  std::string text;
  for (int i = 0; i < 15; ++i) {
    const std::uint64_t word = i < 8 ? span.name_low : span.name_high;
    const char letter = static_cast<char>(word >> 8 * (i % 8) & 0xff);
    if (letter == '\0') break;
    const bool plain = letter >= ' ' && letter < 127 && letter != '"' && letter != '\\';
    text += plain ? letter : '?';
  }
  return text;
}

const char* category(span_kind kind) {
  switch (kind) {
    case span_kind::wait:
    case span_kind::sync: return "wait";
    case span_kind::copy: return "copy";
    case span_kind::reduction: return "reduction";
    case span_kind::call: return "call";
    case span_kind::user: break;
  }
  return "user";
}

/// "12.345" for 12345 ns.
std::string microseconds(std::int64_t nanoseconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                static_cast<long long>(nanoseconds % 1000));
  return text;
}

class writer {
 public:
  explicit writer(std::int64_t zero) : zero_(zero) {}

  /// `rest` follows process, thread and time.
  void event(const char* phase, int rank, std::uint64_t thread, std::int64_t time, const std::string& rest) {
    line("{\"ph\": \"" + std::string(phase) + "\", \"pid\": " + std::to_string(rank) +
         ", \"tid\": " + std::to_string(thread) + ", \"ts\": " + microseconds(time - zero_) + rest + "}");
  }
  void name(const char* what, int rank, std::uint64_t thread, const std::string& value) {
    line("{\"ph\": \"M\", \"pid\": " + std::to_string(rank) + ", \"tid\": " + std::to_string(thread) +
         ", \"name\": \"" + what + "\", \"args\": {" + value + "}}");
  }
  void lost(int rank, std::uint64_t thread, std::int64_t time, const std::string& text) {
    event("i", rank, thread, time, ", \"s\": \"t\", \"name\": \"" + text + "\"");
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void line(const std::string& event) { text_ += (text_.empty() ? "\n" : ",\n") + event; }

  std::int64_t zero_;
  std::string text_;
};

/// One ring as a forest of spans: a span that lies within another is its child.
class forest {
 public:
  forest(const trace_ring& ring, std::int64_t offset) {
    for (const trace_record& span : ring.spans) add(span, offset);
  }

  void write(writer& to, int rank, std::uint64_t thread) const {
    for (const std::size_t root : roots_) write(to, rank, thread, root);
  }
  /// *Requires* at least one span.
  [[nodiscard]] std::int64_t begin() const { return nodes_[roots_.front()].begin; }

 private:
  struct node {
    trace_record span;
    std::int64_t begin, end;
    std::vector<std::size_t> children;
  };

  void add(const trace_record& span, std::int64_t offset) {
    node added{span, static_cast<std::int64_t>(span.begin) - offset, static_cast<std::int64_t>(span.end) - offset, {}};
    auto first = roots_.end();
    while (first != roots_.begin() && nodes_[*(first - 1)].begin >= added.begin) --first;
    added.children.assign(first, roots_.end());
    roots_.erase(first, roots_.end());
    if (!roots_.empty()) {  // concurrent launches may overlap; a track cannot
      added.begin = std::max(added.begin, nodes_[roots_.back()].end);
      added.end = std::max(added.end, added.begin);
    }
    nodes_.push_back(std::move(added));
    roots_.push_back(nodes_.size() - 1);
  }

  void write(writer& to, int rank, std::uint64_t thread, std::size_t number) const {
    const node& one = nodes_[number];
    const auto kind = static_cast<span_kind>(one.span.name_high >> 56);
    std::string rest;
    if (kind == span_kind::wait || kind == span_kind::sync) {
      const awaited_span wait = awaited_span::unpack(one.span.name_low, one.span.name_high);
      rest = ", \"name\": \"" + std::string(to_string(static_cast<operation>(wait.what))) + " " +
             std::to_string(wait.index) + "\", \"args\": {\"" +
             (static_cast<operation>(wait.what) == operation::lsa_signal ? "value" : "epoch") +
             "\": " + std::to_string(wait.epoch) + "}";
    } else if (kind == span_kind::call) {
      const call_span call = call_span::unpack(one.span.name_low, one.span.name_high);
      rest = ", \"name\": \"" + std::string(to_string(call.which)) + "\", \"args\": {\"over\": \"" +
             to_string(static_cast<operation>(call.what)) + "\", \"count\": " + std::to_string(call.count) + "}";
    } else {
      rest = ", \"name\": \"" + letters(one.span) + "\"";
    }
    to.event("B", rank, thread, one.begin, rest + ", \"cat\": \"" + category(kind) + "\"");
    for (const std::size_t child : one.children) write(to, rank, thread, child);
    to.event("E", rank, thread, one.end, "");
  }

  std::vector<node> nodes_;
  std::vector<std::size_t> roots_;
};

std::string clock_text(const clock_offset& offset) {
  if (offset.accuracy < 0) return "clock not aligned";
  return "clock within " + microseconds(offset.accuracy) + " us";
}

}  // namespace

std::string trace_json(const std::vector<rank_trace>& traces, const std::vector<clock_offset>& offsets,
                       const std::string& backend) {
  std::vector<std::vector<forest>> forests;
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < traces.size(); ++i) {
    auto& own = forests.emplace_back();
    for (const trace_ring& ring : traces[i].rings) {
      own.emplace_back(ring, offsets[i].nanoseconds);
      zero = std::min(zero, own.back().begin());
    }
  }

  writer events(zero);
  std::string clocks;
  std::uint64_t all_lost = 0;
  std::uint64_t all_unplaced = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const rank_trace& trace = traces[i];
    std::string name = "rank " + std::to_string(trace.rank);
    if (offsets[i].accuracy != 0) name += " (" + clock_text(offsets[i]) + ")";
    events.name("process_name", trace.rank, 0, "\"name\": \"" + name + "\"");
    events.name("process_sort_index", trace.rank, 0, "\"sort_index\": " + std::to_string(trace.rank));
    for (std::size_t r = 0; r < trace.rings.size(); ++r) {
      const trace_ring& ring = trace.rings[r];
      const std::uint64_t thread = std::uint64_t{ring.block} * 32 + ring.warp;
      events.name("thread_name", trace.rank, thread,
                  "\"name\": \"block " + std::to_string(ring.block) +
                      (ring.warp > 0 ? ", warp " + std::to_string(ring.warp) : "") + "\"");
      if (ring.lost > 0) {
        events.lost(
            trace.rank, thread, forests[i][r].begin(),
            std::to_string(ring.lost) + " older spans lost: the ring holds " + std::to_string(ring.spans.size()));
      }
      forests[i][r].write(events, trace.rank, thread);
      all_lost += ring.lost;
    }
    if (trace.unplaced > 0) {
      events.lost(trace.rank, 0, zero == std::numeric_limits<std::int64_t>::max() ? 0 : zero,
                  std::to_string(trace.unplaced) + " spans had no room: ask for more blocks or warps");
    }
    all_unplaced += trace.unplaced;
    clocks += (i > 0 ? ", " : "") + ("{\"rank\": " + std::to_string(trace.rank)) +
              ", \"offset_ns\": " + std::to_string(offsets[i].nanoseconds) +
              ", \"accuracy_ns\": " + (offsets[i].accuracy < 0 ? "null" : std::to_string(offsets[i].accuracy)) + "}";
  }
  return "{\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"backend\": \"" + backend +
         "\", \"lost_spans\": " + std::to_string(all_lost) +
         ", \"spans_without_room\": " + std::to_string(all_unplaced) +
         ", \"clock_step_ns\": " + std::to_string(clock_resolution(traces)) + ", \"clocks\": [" + clocks +
         "]},\n\"traceEvents\": [" + events.text() + "\n]}\n";
}

}  // namespace devcomm::host::detail
