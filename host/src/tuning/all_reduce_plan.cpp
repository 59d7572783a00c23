#include <devcomm/host/all_reduce_plan.hpp>

#include <devcomm/host/error.hpp>

#include "all_reduce_table.hpp"
#include "util/environment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace devcomm::host {
namespace {

constexpr std::array algorithms = {all_reduce_algorithm::one_shot,
                                   all_reduce_algorithm::two_shot,
                                   all_reduce_algorithm::two_shot_zero_copy,
                                   all_reduce_algorithm::two_shot_chunked,
                                   all_reduce_algorithm::two_shot_chunked_to_window,
                                   all_reduce_algorithm::two_shot_multimem,
                                   all_reduce_algorithm::ring,
                                   all_reduce_algorithm::ring_to_window,
                                   all_reduce_algorithm::tree};
constexpr std::array protocols = {
#define DEVCOMM_X(protocol, name) all_reduce_protocol::protocol,
    DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
        all_reduce_protocol::simple};

template <class T, std::size_t N>
std::optional<T> named(const std::array<T, N>& all, const std::string& name) {
  for (const T value : all)
    if (name == to_string(value)) return value;
  return std::nullopt;
}

constexpr unsigned max_blocks = 65535;  // of a row; also rejects negative numbers, which read as large ones

/// Vectors that cross each rank's links; a little for one rank, which copies.
double traffic(all_reduce_algorithm algorithm, int ranks) {
  if (ranks == 1) return 0.5;
  const double peers = ranks - 1;
  // To the switch goes all that it reduces, and the rank's shard of results.
  if (algorithm == all_reduce_algorithm::two_shot_multimem) return (ranks + 1.0) / ranks;
  // Once up, and the same to the children down.
  if (algorithm == all_reduce_algorithm::tree) return 2;
  return algorithm == all_reduce_algorithm::one_shot ? peers : 2 * peers / ranks;
}

double ratio(double a, double b) { return a > b ? a / b : b / a; }

/// Rows of one number of ranks and one size.
struct table_part {
  int ranks;
  std::uint64_t bytes;
};

constexpr std::uint64_t small_bytes = 1024;  // smaller vectors take as long

/// The part of a table that is nearest to a request: of the number of ranks whose sizes reach nearest, the smallest
/// size that holds the bytes, or the largest.
table_part nearest_part(const std::vector<all_reduce_time>& rows, const all_reduce_request& request) {
  std::map<int, std::set<std::uint64_t>> sizes;  // by ranks
  for (const all_reduce_time& row : rows) sizes[row.ranks].insert(row.bytes);
  const auto apart = [&](const auto& measured) {
    const double by_ranks = ratio(measured.first, request.ranks);
    const std::uint64_t bytes = std::max(request.bytes, small_bytes);
    const std::uint64_t reached = std::clamp(bytes, *measured.second.begin(), *measured.second.rbegin());
    return std::pair(by_ranks * ratio(static_cast<double>(bytes), static_cast<double>(reached)), by_ranks);
  };
  const auto nearest =
      std::min_element(sizes.begin(), sizes.end(), [&](const auto& a, const auto& b) { return apart(a) < apart(b); });
  const auto next = nearest->second.lower_bound(request.bytes);
  return {nearest->first, next != nearest->second.end() ? *next : *nearest->second.rbegin()};
}

bool is_through_fifos(all_reduce_algorithm algorithm) {
  using enum all_reduce_algorithm;
  return algorithm == ring || algorithm == ring_to_window || algorithm == tree;
}

/// Whether there is such a way: FIFOs know no Lamport packets, and results that go straight into windows no packets.
bool is_possible(all_reduce_algorithm algorithm, all_reduce_protocol protocol) {
  if (algorithm == all_reduce_algorithm::ring_to_window) return protocol == all_reduce_protocol::simple;
  return !is_through_fifos(algorithm) || protocol != all_reduce_protocol::lamport;
}

/// The request that asks for just what `row` does, of its ranks and size.
all_reduce_request request_for(const all_reduce_time& row) {
  using enum all_reduce_algorithm;
  return {.bytes = row.bytes,
          .ranks = row.ranks,
          .lamport = row.protocol == all_reduce_protocol::lamport,
          .in_windows = row.algorithm == two_shot_zero_copy || row.algorithm == two_shot_chunked_to_window ||
                        row.algorithm == two_shot_multimem || row.algorithm == ring_to_window,
          .chunks = row.algorithm == two_shot_chunked || row.algorithm == two_shot_chunked_to_window,
          .ll128 = row.protocol == all_reduce_protocol::ll128,
          .multimem = row.algorithm == two_shot_multimem,
          .fifos = is_through_fifos(row.algorithm)};
}

/// Whether what is to be reduced can be, in this way.
bool can_run(const all_reduce_request& request, const all_reduce_time& row) {
  const all_reduce_request needs = request_for(row);
  return (request.lamport || !needs.lamport) && (request.in_windows || !needs.in_windows) &&
         (request.chunks || !needs.chunks) && (request.ll128 || !needs.ll128) &&
         (request.multimem || !needs.multimem) && (request.fifos || !needs.fifos);
}

/// What a request asks of an algorithm beside the sum.
std::string demands(const all_reduce_request& request) {
  std::string all;
  const auto add = [&all](const char* one) { all += (all.empty() ? "" : ", ") + std::string(one); };
  if (!request.in_windows) add("any memory");
  if (!request.lamport) add("elements of every type");
  if (!request.chunks) add("kernels without chunk buffers");
  return all;
}

/// The shortest time of a number of ranks: what a time has above it is traffic.
double shortest(const std::vector<all_reduce_time>& rows, int ranks) {
  double least = HUGE_VAL;
  for (const all_reduce_time& row : rows)
    if (row.ranks == ranks) least = std::min(least, row.microseconds);
  return least;
}

/// What the row's time becomes with other ranks or another size. `least`: the shortest time of its ranks.
double estimate(const all_reduce_time& row, double least, const all_reduce_request& request) {
  double factor = traffic(row.algorithm, request.ranks) / traffic(row.algorithm, row.ranks);
  if (request.bytes > row.bytes) factor *= static_cast<double>(request.bytes) / static_cast<double>(row.bytes);
  return least + (row.microseconds - least) * factor;
}

constexpr int max_ranks = 64;  // that pruned tables are estimated for

/// Whether `a` is chosen rather than `b`, or does as well, wherever `b` could be chosen.
bool serves_as_well(const all_reduce_time& a, const all_reduce_time& b, double least) {
  if (a.ranks != b.ranks || a.bytes != b.bytes || a.blocks > b.blocks) return false;
  all_reduce_request request = request_for(b);
  if (!can_run(request, a)) return false;
  for (request.ranks = 1; request.ranks <= max_ranks; ++request.ranks)
    for (const double shortest : {0.0, least})  // rows that are added later may bring any between
      if (estimate(a, shortest, request) > estimate(b, shortest, request)) return false;
  return true;
}

std::string sentence(const all_reduce_plan& plan, const all_reduce_request& request, const all_reduce_time& row,
                     const std::string& table) {
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%.2f", plan.microseconds);
  std::ostringstream text;
  text << to_string(plan.algorithm) << " " << to_string(plan.protocol) << ", " << plan.blocks << " x " << plan.threads
       << ", about " << time.data() << " us: the fastest in " << table << " for " << row.ranks << " ranks and "
       << row.bytes << " bytes";
  if (request.max_blocks != 0) text << " in at most " << request.max_blocks << " blocks";
  if (plan.blocks < row.blocks) text << ", cut down from " << row.blocks << " blocks";
  if (const std::string asked = demands(request); !asked.empty()) text << ", for " << asked;
  if (row.ranks != request.ranks)
    text << "; not measured for " << request.ranks << " ranks and such a size, so estimated from its traffic";
  return text.str();
}

}  // namespace

bool is_planned_all_reduce(const std::string& algorithm) { return named(algorithms, algorithm).has_value(); }

const char* to_string(all_reduce_protocol protocol) {
  return protocol == all_reduce_protocol::simple ? "simple" : to_string(static_cast<packet_protocol>(protocol));
}

std::string to_string(const all_reduce_time& row) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%d %llu %s %s %u %u %.2f", row.ranks,
                static_cast<unsigned long long>(row.bytes), to_string(row.algorithm), to_string(row.protocol),
                row.blocks, row.threads, row.microseconds);
  return text.data();
}

all_reduce_times all_reduce_times::parse(const std::string& text, const std::string& name) {
  all_reduce_times result;
  result.name_ = name;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    all_reduce_time row{};
    std::string algorithm;
    std::string protocol;
    std::string rest;
    words >> row.ranks >> row.bytes >> algorithm >> protocol >> row.blocks >> row.threads >> row.microseconds;
    const auto which = named(algorithms, algorithm);
    const auto how = named(protocols, protocol);
    const bool whole = !words.fail() && !(words >> rest) && which && how;
    if (!whole || !is_possible(*which, *how) || row.ranks < 1 || row.bytes == 0 || row.blocks == 0 ||
        row.blocks > max_blocks || row.threads == 0 || row.threads > 1024 || !(row.microseconds > 0)) {
      throw invalid_argument(
          name + ", line " + std::to_string(number) + ": \"" + line +
          "\" is no row of a plan; write: ranks bytes one_shot|two_shot|two_shot_zero_copy|two_shot_chunked|two_shot_chunked_to_window|"
          "two_shot_multimem|ring|ring_to_window|tree ll|lamport|ll128|simple blocks threads microseconds, or make the file again by devcomm-perf all_reduce --sweep --plan");
    }
    row.algorithm = *which;
    row.protocol = *how;
    result.rows_.push_back(row);
  }
  if (result.rows_.empty())
    throw invalid_argument(name + " has no rows; make it by devcomm-perf all_reduce --sweep --plan");
  return result;
}

all_reduce_times all_reduce_times::read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw system_error("the all-reduce plan " + path + " cannot be read; check DEVCOMM_ALL_REDUCE_PLAN or the path");
  return parse(text.str(), path);
}

all_reduce_times all_reduce_times::usual() {
  if (const auto path = detail::process_variables()("DEVCOMM_ALL_REDUCE_PLAN")) return read(*path);
  return parse(detail::all_reduce_table, "the library's table");
}

all_reduce_plan all_reduce_times::choose(const all_reduce_request& request) const {
  if (request.bytes == 0) throw invalid_argument("an all-reduce plan for 0 bytes: give the size of a rank's vector");
  if (request.ranks < 1) throw invalid_argument("an all-reduce plan for " + std::to_string(request.ranks) + " ranks");
  std::vector<all_reduce_time> rows;
  for (const all_reduce_time& row : rows_)
    if (can_run(request, row)) rows.push_back(row);
  if (rows.empty()) {
    const std::string asked = demands(request);
    throw invalid_argument(name_ + " has no algorithm " + (asked.empty() ? "without LL128" : "for " + asked) +
                           "; add rows by devcomm-perf all_reduce --sweep --algo all --plan");
  }
  const table_part part = nearest_part(rows, request);
  std::erase_if(rows, [&](const all_reduce_time& row) { return row.ranks != part.ranks || row.bytes != part.bytes; });

  // With a budget below everything measured, the smallest grid is cut down to it.
  unsigned smallest = rows.front().blocks;
  for (const all_reduce_time& row : rows) smallest = std::min(smallest, row.blocks);
  const unsigned budget = request.max_blocks == 0 ? ~0u : request.max_blocks;
  const double least = shortest(rows_, part.ranks);
  const all_reduce_time* best = nullptr;
  all_reduce_plan plan;
  for (const all_reduce_time& row : rows) {
    if (row.blocks > std::max(budget, smallest)) continue;
    const double cut = row.blocks > budget ? static_cast<double>(row.blocks) / budget : 1;
    const double time = estimate(row, least, request) * cut;
    if (best != nullptr && time >= plan.microseconds) continue;
    best = &row;
    plan.microseconds = time;
  }
  plan.algorithm = best->algorithm;
  plan.protocol = best->protocol;
  plan.blocks = std::min(best->blocks, budget);
  plan.threads = best->threads;
  plan.why = sentence(plan, request, *best, name_);
  return plan;
}

all_reduce_times all_reduce_times::pruned() const {
  all_reduce_times result;
  result.name_ = name_;
  for (const all_reduce_time& row : rows_) {
    const double least = shortest(rows_, row.ranks);
    const bool replaced = std::any_of(rows_.begin(), rows_.end(), [&](const all_reduce_time& other) {
      return &other != &row && serves_as_well(other, row, least) &&
             (&other < &row || !serves_as_well(row, other, least));
    });
    if (!replaced) result.rows_.push_back(row);
  }
  return result;
}

all_reduce_plan plan_all_reduce(const all_reduce_request& request) {
  static const all_reduce_times times = all_reduce_times::usual();
  return times.choose(request);
}

}  // namespace devcomm::host
