#include <devcomm/host/all_reduce_plan.hpp>

#include <devcomm/host/error.hpp>

#include "all_reduce_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

namespace devcomm::host {
namespace {

constexpr std::array algorithms = {all_reduce_algorithm::one_shot, all_reduce_algorithm::two_shot,
                                   all_reduce_algorithm::direct, all_reduce_algorithm::chunked,
                                   all_reduce_algorithm::chunked_to_window};
constexpr std::array protocols = {all_reduce_protocol::ll, all_reduce_protocol::lamport, all_reduce_protocol::ll128,
                                  all_reduce_protocol::simple};

template <class T, std::size_t N>
std::optional<T> named(const std::array<T, N>& all, const std::string& name) {
  for (const T value : all)
    if (name == to_string(value)) return value;
  return std::nullopt;
}

constexpr unsigned most_blocks = 65535;  // of a row; also tells a negative number, which reads as a large one

/// Vectors that cross each rank's links; a little for one rank, which copies.
double traffic(all_reduce_algorithm algorithm, int ranks) {
  if (ranks == 1) return 0.5;
  const double peers = ranks - 1;
  return algorithm == all_reduce_algorithm::one_shot ? peers : 2 * peers / ranks;
}

/// The measured number of ranks that is nearest, by ratio.
int nearest_ranks(const std::vector<all_reduce_time>& rows, int ranks) {
  int best = 0;
  double distance = 0;
  for (const all_reduce_time& row : rows) {
    const double apart = row.ranks > ranks ? double(row.ranks) / ranks : double(ranks) / row.ranks;
    if (best == 0 || apart < distance) {
      best = row.ranks;
      distance = apart;
    }
  }
  return best;
}

/// The smallest measured size that holds `bytes`, or the largest.
std::uint64_t next_size(const std::vector<all_reduce_time>& rows, int ranks, std::uint64_t bytes) {
  std::uint64_t next = 0;
  std::uint64_t largest = 0;
  for (const all_reduce_time& row : rows) {
    if (row.ranks != ranks) continue;
    largest = std::max(largest, row.bytes);
    if (row.bytes >= bytes && (next == 0 || row.bytes < next)) next = row.bytes;
  }
  return next != 0 ? next : largest;
}

/// Whether what is to be reduced can be, in this way.
bool can_run(const all_reduce_request& request, const all_reduce_time& row) {
  using enum all_reduce_algorithm;
  const bool window = row.algorithm == direct || row.algorithm == chunked_to_window;
  const bool chunks = row.algorithm == chunked || row.algorithm == chunked_to_window;
  return (request.lamport || row.protocol != all_reduce_protocol::lamport) && (request.in_windows || !window) &&
         (request.chunks || !chunks) && (request.ll128 || row.protocol != all_reduce_protocol::ll128);
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

/// What a time of other ranks or another size becomes: the part above the shortest time of its kind is traffic.
double scale(const std::vector<all_reduce_time>& rows, const all_reduce_time& row, const all_reduce_request& request) {
  double least = row.microseconds;
  for (const all_reduce_time& other : rows)
    if (other.ranks == row.ranks && other.algorithm == row.algorithm && other.protocol == row.protocol)
      least = std::min(least, other.microseconds);
  double factor = traffic(row.algorithm, request.ranks) / traffic(row.algorithm, row.ranks);
  if (request.bytes > row.bytes) factor *= static_cast<double>(request.bytes) / static_cast<double>(row.bytes);
  return least + (row.microseconds - least) * factor;
}

std::string sentence(const all_reduce_plan& plan, const all_reduce_request& request, const all_reduce_time& row,
                     const std::string& table) {
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%.2f", plan.microseconds);
  std::ostringstream text;
  text << to_string(plan.algorithm) << " " << to_string(plan.protocol) << ", " << plan.blocks << " x " << plan.threads
       << ", about " << time.data() << " us: the fastest in " << table << " for " << row.ranks << " ranks and "
       << row.bytes << " bytes";
  if (request.most_blocks != 0) text << " in at most " << request.most_blocks << " blocks";
  if (plan.blocks < row.blocks) text << ", cut down from " << row.blocks << " blocks";
  if (const std::string asked = demands(request); !asked.empty()) text << ", for " << asked;
  if (row.ranks != request.ranks)
    text << "; not measured for " << request.ranks << " ranks, so estimated from its traffic";
  return text.str();
}

}  // namespace

const char* to_string(all_reduce_algorithm algorithm) {
  switch (algorithm) {
    case all_reduce_algorithm::one_shot: return "one_shot";
    case all_reduce_algorithm::two_shot: return "two_shot";
    case all_reduce_algorithm::direct: return "direct";
    case all_reduce_algorithm::chunked: return "chunked";
    case all_reduce_algorithm::chunked_to_window: break;
  }
  return "chunked_to_window";
}

const char* to_string(all_reduce_protocol protocol) {
  switch (protocol) {
    case all_reduce_protocol::ll: return "ll";
    case all_reduce_protocol::lamport: return "lamport";
    case all_reduce_protocol::ll128: return "ll128";
    case all_reduce_protocol::simple: break;
  }
  return "simple";
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
    if (!whole || row.ranks < 1 || row.bytes == 0 || row.blocks == 0 || row.blocks > most_blocks || row.threads == 0 ||
        row.threads > 1024 || !(row.microseconds > 0)) {
      throw invalid_argument(
          name + ", line " + std::to_string(number) + ": \"" + line +
          "\" is no row of a plan; write: ranks bytes one_shot|two_shot|direct|chunked|chunked_to_window "
          "ll|lamport|ll128|simple blocks threads microseconds, or make the file again by devcomm-perf all_reduce --sweep --plan");
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
  if (const char* path = std::getenv("DEVCOMM_ALL_REDUCE_PLAN")) return read(path);
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
  const int ranks = nearest_ranks(rows, request.ranks);
  const std::uint64_t size = next_size(rows, ranks, request.bytes);
  std::erase_if(rows, [&](const all_reduce_time& row) { return row.ranks != ranks || row.bytes != size; });

  // With a budget below everything measured, the smallest grid is cut down to it.
  unsigned smallest = rows.front().blocks;
  for (const all_reduce_time& row : rows) smallest = std::min(smallest, row.blocks);
  const unsigned budget = request.most_blocks == 0 ? ~0u : request.most_blocks;
  const all_reduce_time* best = nullptr;
  all_reduce_plan plan;
  for (const all_reduce_time& row : rows) {
    if (row.blocks > std::max(budget, smallest)) continue;
    const double cut = row.blocks > budget ? static_cast<double>(row.blocks) / budget : 1;
    const double time = scale(rows_, row, request) * cut;
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

all_reduce_plan plan_all_reduce(const all_reduce_request& request) {
  static const all_reduce_times times = all_reduce_times::usual();
  return times.choose(request);
}

}  // namespace devcomm::host
