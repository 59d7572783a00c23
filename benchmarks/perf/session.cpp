#include "perf/session.hpp"

#include "perf/left_out.hpp"

#include <devcomm/host/all_reduce_plan.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace perf {
namespace {

const operation& operation_named(const std::string& name) {
  std::string known;
  for (const auto& candidate : operations()) {
    if (candidate->name() == name) return *candidate;
    known += " " + candidate->name();
  }
  throw usage_error("unknown operation " + name + "; the operations are:" + known + ", and limits");
}

/// Grids up to which a plan keeps the fastest shape, so that it can serve those who have blocks to spare for nothing
/// else.
constexpr unsigned block_budgets[] = {4, 8, 16, 32, 64, 1024};

/// Launches and replays of a look at a shape while sweeping; fewer where the user asks for fewer.
constexpr int sweep_launches(std::uint64_t bytes) { return bytes <= (1u << 20) ? 50 : 10; }
constexpr int sweep_replays = 3;

}  // namespace

session::session(devcomm::host::communicator& comm, const options& settings)
    : comm_(comm),
      settings_(settings),
      operation_(&operation_named(settings.operation)),
      window_(comm.allocate(2 * region(), settings.memory)),
      context_{&comm, &window_, region()},
      measurement_(comm, context_, settings_) {
  if (!operation_->can_be_in_place()) {
    if (!settings_.out_of_place)
      throw usage_error("--place in: " + operation_->name() + " is measured out of place only");
    settings_.in_place = false;
  }
  if (!operation_->crosses_hosts() && comm_.lsa().size != comm_.size())
    throw usage_error(operation_->name() + " is by load and store, and " + std::to_string(comm_.size()) +
                      " ranks form LSA teams of " + std::to_string(comm_.lsa().size) +
                      "; give ranks that reach each other, or an operation of the network: gin_...");
  own_ = operation_->make_algorithms(context_);
  if (!settings_.compare.empty()) peers_ = operation_->make_nccl_algorithms(context_);
  if (comm_.size() == 1 && !settings_.late.empty())
    throw usage_error("--late: one rank has nobody to be late for; give -n 2 or more");
  choose_algorithms();
  if (is_first()) report_.emplace(settings_);
}

void session::choose_algorithms() {
  for (const std::string& name : settings_.algorithms) {
    if (name == "auto") {
      follows_plan_ = true;
      continue;
    }
    bool known = false;
    std::string names;
    for (const auto& candidate : own_) {
      const std::string whole = candidate->whole_name();
      names += " " + whole;
      const bool is_named = name == candidate->name() || name == whole;
      if (name != "all" && !is_named) continue;
      choose_algorithm(*candidate, is_named);
      known = true;
    }
    if (!known) throw usage_error("--algo " + name + ": the algorithms are: auto all" + names);
  }
  if (settings_.sweep && chosen_.empty()) throw usage_error("--sweep needs --algo with names, or all");
}

void session::choose_algorithm(algorithm& how, bool is_named) {
  const auto same =
      std::find_if(chosen_.begin(), chosen_.end(), [&](const chosen_algorithm& other) { return other.how == &how; });
  if (same == chosen_.end()) {
    chosen_.push_back({&how, is_named});
  } else {
    same->is_named = same->is_named || is_named;
  }
}

std::uint64_t session::region() const {
  const work largest = call_of(settings_.end);
  if (largest.bytes == 0)
    throw usage_error("-e " + bytes_text(settings_.end) + ": that is less than an element for each rank");
  return (operation_->region(largest) + 255) / 256 * 256;
}

work session::call_of(std::uint64_t bytes) const {
  work call;
  call.rank = comm_.rank();
  call.ranks = comm_.size();
  call.type = settings_.type;
  call.hidden = settings_.hidden;
  call.depth = settings_.depth;
  call.bytes = bytes;
  const std::uint64_t granularity = operation_->granularity(call);
  call.bytes = bytes / granularity * granularity;
  call.dependent = settings_.dependent;
  return call;
}

std::vector<std::uint64_t> session::sizes() const {
  std::vector<std::uint64_t> all;
  for (std::uint64_t bytes = settings_.begin; bytes <= settings_.end; bytes *= settings_.factor) {
    if (call_of(bytes).bytes != 0) all.push_back(bytes);
    if (bytes > settings_.end / settings_.factor) break;
  }
  return all;
}

std::vector<std::string> session::look_ahead(const std::vector<std::uint64_t>& sizes) const {
  left_out named;
  left_out others;
  bool any = false;
  for (const std::uint64_t bytes : sizes) {
    const work call = call_of(bytes);
    const auto look = [&](left_out& without, const std::string& name, const std::string& reason) {
      without.add(name, call.bytes, reason);
      any = any || reason.empty();
    };
    if (follows_plan_) {
      const algorithm& how = *plan(call).how;
      const std::string reason = why_not(how, call);
      look(named, "auto", reason.empty() ? "" : how.whole_name() + ": " + reason);
    }
    for (const chosen_algorithm& chosen : chosen_)
      look(chosen.is_named ? named : others, chosen.how->whole_name(), why_not(*chosen.how, call));
    for (const auto& peer : peers_) look(named, peer->whole_name(), why_not(*peer, call));
  }
  if (any) return named.lines();
  std::string message = "nothing is left to measure from " + bytes_text(settings_.begin) + " to " +
                        bytes_text(settings_.end) + "; give other sizes, algorithms or another type";
  for (const left_out* without : {&named, &others})
    for (const std::string& line : without->lines()) message += "\n  " + line;
  throw usage_error(message);
}

bool session::run() {
  const std::vector<std::uint64_t> all = sizes();
  const std::vector<std::string> without = look_ahead(all);
  if (is_first()) {
    const std::string name = comm_.properties().device_name;
    report_->print_header(std::to_string(comm_.size()) + " ranks on " + name, without);
  }
  for (const std::uint64_t bytes : all) run_size(bytes);
  if (!is_first()) return true;
  if (!settings_.plan.empty()) write_plan();
  return !report_->any_wrong();
}

std::string session::why_not(const algorithm& how, const work& call) const {
  if (!settings_.out_of_place && !how.can_be_in_place())
    return "peers read its input until it is done; give --place out or both";
  return how.why_not(call);
}

void session::run_size(std::uint64_t bytes) {
  const work call = call_of(bytes);
  if (follows_plan_) run_plan(bytes);
  for (const chosen_algorithm& chosen : chosen_) {
    algorithm* const how = chosen.how;
    if (!why_not(*how, call).empty()) continue;
    if (settings_.sweep) {
      for (const lateness& late : settings_.latenesses())
        for (const launch_shape shape : sweep(*how, call, late)) run_algorithm(*how, bytes, shape, late);
    } else if (settings_.blocks != 0) {
      run_algorithm(*how, bytes, {settings_.blocks, settings_.threads});
    } else {
      const std::vector<launch_shape> all = how->shapes(call);
      launch_shape last = all.front();
      for (const launch_shape& shape : all)
        if (shape.threads <= 128 && (settings_.max_blocks == 0 || shape.blocks <= settings_.max_blocks)) last = shape;
      run_algorithm(*how, bytes, last);
    }
  }
  for (const auto& peer : peers_)
    if (why_not(*peer, call).empty()) run_algorithm(*peer, bytes, {});
}

session::planned session::plan(const work& call) const {
  const unsigned blocks = settings_.max_blocks != 0 ? std::min(settings_.max_blocks, max_blocks) : max_blocks;
  choice plan = operation_->choose(call, blocks);
  for (const auto& candidate : own_)
    if (candidate->name() == plan.algorithm && candidate->protocol() == plan.protocol) {
      work planned_call = call;
      planned_call.shape = plan.shape;
      plan.shape = candidate->fitted(planned_call);
      return {candidate.get(), std::move(plan)};
    }
  throw std::runtime_error("the plan's " + plan.algorithm + "_" + plan.protocol + " is no algorithm of " +
                           operation_->name() + "; make the plan again by this devcomm-perf");
}

void session::run_plan(std::uint64_t bytes) {
  const work call = call_of(bytes);
  const planned next = plan(call);
  if (!why_not(*next.how, call).empty()) return;
  if (is_first()) report_->progress(next.as.why);
  run_algorithm(*next.how, bytes, next.as.shape);
}

void session::run_algorithm(algorithm& how, std::uint64_t bytes, launch_shape shape) {
  for (const lateness& late : settings_.latenesses()) run_algorithm(how, bytes, shape, late);
}

void session::run_algorithm(algorithm& how, std::uint64_t bytes, launch_shape shape, const lateness& late) {
  if (is_first())
    report_->progress(bytes_text(bytes) + " " + how.name() + " " + how.protocol() + " " + std::to_string(shape.blocks) +
                      "x" + std::to_string(shape.threads));
  work call = call_of(bytes);
  call.shape = shape;
  std::optional<row> out;
  std::optional<row> in;
  if (settings_.out_of_place) out = measurement_.measure(*operation_, how, call, late);
  call.in_place = true;
  if (settings_.in_place && how.can_be_in_place()) in = measurement_.measure(*operation_, how, call, late);
  if (is_first()) report_->add(out ? &*out : nullptr, in ? &*in : nullptr);
}

std::vector<launch_shape> session::sweep(algorithm& how, work call, const lateness& late) {
  call.in_place = !settings_.out_of_place;
  const int launches =
      settings_.launches != 0 ? std::min(settings_.launches, sweep_launches(call.bytes)) : sweep_launches(call.bytes);
  const int replays = std::min(settings_.replays, sweep_replays);
  std::map<unsigned, row> fastest;  // by budget
  for (const launch_shape& shape : how.shapes(call)) {
    if (settings_.max_blocks != 0 && shape.blocks > settings_.max_blocks) continue;
    call.shape = shape;
    const row seen = measurement_.measure(*operation_, how, call, late, launches, replays);
    for (const unsigned budget : block_budgets) {
      if (shape.blocks > budget) continue;
      const auto found = fastest.find(budget);
      if (found == fastest.end() || seen.net() < found->second.net()) fastest.insert_or_assign(budget, seen);
    }
  }
  // Ranks have the same times, so they go on with the same shapes.
  std::vector<launch_shape> shapes;
  for (const auto& each : fastest) {
    const unsigned budget = each.first;
    const row& seen = each.second;
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const launch_shape& shape) {
      return shape.blocks == seen.shape.blocks && shape.threads == seen.shape.threads;
    });
    if (!known && (!settings_.plan.empty() || budget == block_budgets[std::size(block_budgets) - 1]))
      shapes.push_back(seen.shape);
  }
  return shapes;
}

void session::write_plan() const {
  std::ostringstream measured;
  for (const row& line : report_->rows())
    if (line.implementation == "devcomm" && line.in_place != settings_.out_of_place &&
        devcomm::host::is_planned_all_reduce(line.algorithm))
      measured << line.ranks << " " << line.bytes << " " << line.algorithm << " " << line.protocol << " "
               << line.shape.blocks << " " << line.shape.threads << " " << line.net() << "\n";
  const auto plan = devcomm::host::all_reduce_times::parse(measured.str(), "the sweep").pruned();
  std::ofstream file(settings_.plan, std::ios::app);
  file << "# " << comm_.properties().device_name << ", " << comm_.size() << " ranks, " << to_string(settings_.type)
       << (settings_.dependent ? ", programmatic dependent launch" : "")
       << lateness_text(settings_.latenesses().front())
       << "\n# ranks bytes algorithm protocol blocks threads microseconds\n";
  for (const auto& time : plan.rows()) file << to_string(time) << "\n";
  file.close();
  if (!file) throw std::runtime_error("cannot write " + settings_.plan + ": " + std::strerror(errno));
}

}  // namespace perf
