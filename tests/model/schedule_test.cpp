#include "model/schedule.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace model;
using Catch::Approx;
using kind = operation::kind;

namespace {

using job = std::vector<std::vector<operation>>;  // a schedule for each rank
using envelope = std::tuple<int, int, int>;       // from, to, tag

job job_of(algorithm which, const machine& on, std::uint64_t bytes, int chunks) {
  job all;
  for (int rank = 0; rank < on.ranks(); ++rank) all.push_back(schedule_of(which, on, rank, bytes, chunks));
  return all;
}

std::string text_of(algorithm which, const machine& on, std::uint64_t bytes, int chunks) {
  return name_of(which) + " of " + std::to_string(bytes) + " bytes, " + std::to_string(chunks) + " chunks, " +
         std::to_string(on.hosts) + " x " + std::to_string(on.ranks_per_host);
}

/// Runs `body(job, machine, bytes)` for many machines, algorithms, sizes and chunks; it returns what is wrong.
template <class Body>
void for_each_job(Body body) {
  for (const auto& [hosts, ranks] : {std::pair{1, 1},
                                     {1, 2},
                                     {1, 3},
                                     {1, 4},
                                     {1, 5},
                                     {1, 8},
                                     {1, 16},
                                     {2, 1},
                                     {5, 1},
                                     {2, 2},
                                     {2, 4},
                                     {3, 2},
                                     {4, 4}}) {
    const machine on = h200(hosts, ranks);
    for (const algorithm which : algorithms_of(h200(2, 1))) {
      for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{40}}) {
        for (const int chunks : {1, 3}) {
          const std::string wrong = body(job_of(which, on, bytes, chunks), on, bytes);
          if (!wrong.empty()) FAIL(text_of(which, on, bytes, chunks) << ": " << wrong);
        }
      }
    }
  }
}

/// How often each rank's input is in a value.
using inputs = std::vector<int>;

/// Executes all ranks' operations, each time a random one of those that may run.
class execution {
 public:
  execution(const job& all, std::uint64_t bytes, unsigned seed) : all_(all), random_(seed) {
    const std::size_t ranks = all.size();
    done_.resize(ranks);
    memory_.assign(ranks, std::vector<inputs>(bytes, inputs(ranks)));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      done_[rank].resize(all[rank].size());
      for (inputs& value : memory_[rank]) value[rank] = 1;
      for (const operation& each : all[rank]) {
        if (each.what == kind::reduce) reduced_.insert({rank, each.after[0]});
      }
    }
  }

  /// What is wrong, or "".
  std::string run() {
    for (std::vector<std::pair<std::size_t, std::size_t>> ready = all_ready(); !ready.empty(); ready = all_ready()) {
      const auto [rank, index] = ready[random_() % ready.size()];
      take(rank, index);
      done_[rank][index] = true;
    }
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      const auto left = std::count(done_[rank].begin(), done_[rank].end(), false);
      if (left != 0) return std::to_string(left) + " operations of rank " + std::to_string(rank) + " wait for ever";
      for (std::size_t i = 0; i < memory_[rank].size(); ++i) {
        if (memory_[rank][i] != inputs(all_.size(), 1)) {
          return "byte " + std::to_string(i) + " of rank " + std::to_string(rank) + " is no sum of all inputs";
        }
      }
    }
    return {};
  }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> all_ready() const {
    std::vector<std::pair<std::size_t, std::size_t>> ready;
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      for (std::size_t i = 0; i < all_[rank].size(); ++i) {
        if (!done_[rank][i] && may_run(rank, i)) ready.emplace_back(rank, i);
      }
    }
    return ready;
  }

  bool may_run(std::size_t rank, std::size_t index) const {
    const operation& each = all_[rank][index];
    for (const operation_id before : each.after) {
      if (!done_[rank][before]) return false;
    }
    return each.what != kind::receive || sent_.count({each.peer, static_cast<int>(rank), each.tag}) != 0;
  }

  void take(std::size_t rank, std::size_t index) {
    const operation& each = all_[rank][index];
    const auto begin = static_cast<std::ptrdiff_t>(each.range.begin);
    const auto end = static_cast<std::ptrdiff_t>(each.range.end);
    std::vector<inputs>& memory = memory_[rank];
    switch (each.what) {
      case kind::send:
        sent_[{static_cast<int>(rank), each.peer, each.tag}] = {memory.begin() + begin, memory.begin() + end};
        break;
      case kind::receive: {
        const std::vector<inputs>& data = sent_.at({each.peer, static_cast<int>(rank), each.tag});
        if (reduced_.count({rank, static_cast<operation_id>(index)}) == 0) {
          std::copy(data.begin(), data.end(), memory.begin() + begin);
        }
        break;
      }
      case kind::reduce: {
        const std::vector<inputs>& data = sent_.at({each.peer, static_cast<int>(rank), each.tag});
        for (std::size_t i = 0; i < data.size(); ++i) {
          inputs& sum = memory[each.range.begin + i];
          for (std::size_t from = 0; from < sum.size(); ++from) sum[from] += data[i][from];
        }
      }
    }
  }

  const job& all_;
  std::mt19937 random_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::vector<inputs>> memory_;
  std::map<envelope, std::vector<inputs>> sent_;
  std::set<std::pair<std::size_t, operation_id>> reduced_;
};

/// When the last operation of all ranks ends: a rank sends one message at a time, in the order in which they can be
/// sent.
double time_of(const job& all, const link& over) {
  struct event {
    double at;
    std::size_t rank;
    std::size_t index;
    bool operator>(const event& other) const {
      return std::tie(at, rank, index) > std::tie(other.at, other.rank, other.index);
    }
  };
  const std::size_t ranks = all.size();
  std::vector<std::vector<std::size_t>> missing(ranks);  // of each operation, what it waits for
  std::vector<std::vector<std::vector<std::size_t>>> later(ranks);
  std::map<envelope, std::size_t> receives;
  std::priority_queue<event, std::vector<event>, std::greater<>> events;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    missing[rank].resize(all[rank].size());
    later[rank].resize(all[rank].size());
    for (std::size_t i = 0; i < all[rank].size(); ++i) {
      const operation& each = all[rank][i];
      for (const operation_id before : each.after) later[rank][before].push_back(i);
      missing[rank][i] = each.after.size() + (each.what == kind::receive ? 1 : 0);
      if (each.what == kind::receive) receives[{each.peer, static_cast<int>(rank), each.tag}] = i;
      if (missing[rank][i] == 0) events.push({0, rank, i});
    }
  }
  std::vector<double> free(ranks);
  double last = 0;
  while (!events.empty()) {
    const event now = events.top();
    events.pop();
    last = std::max(last, now.at);
    const operation& each = all[now.rank][now.index];
    double end = now.at;
    if (each.what == kind::send) {
      end = free[now.rank] = std::max(free[now.rank], now.at) + static_cast<double>(each.range.size()) / over.rate;
      const auto to = static_cast<std::size_t>(each.peer);
      const std::size_t receive = receives.at({static_cast<int>(now.rank), each.peer, each.tag});
      if (--missing[to][receive] == 0) events.push({end + over.latency, to, receive});
    }
    for (const std::size_t next : later[now.rank][now.index]) {
      if (--missing[now.rank][next] == 0) events.push({end, now.rank, next});
    }
  }
  return last;
}

}  // namespace

TEST_CASE("every message that is sent is received once, with the same bytes") {
  for_each_job([](const job& all, const machine&, std::uint64_t) -> std::string {
    std::map<envelope, byte_range> sends;
    std::map<envelope, byte_range> receives;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const int here = static_cast<int>(rank);
      for (const operation& each : all[rank]) {
        if (each.what == kind::reduce) continue;
        if (each.peer == here || each.peer < 0 || each.peer >= static_cast<int>(all.size())) return "a wrong peer";
        const bool sent = each.what == kind::send;
        const envelope name = sent ? envelope{here, each.peer, each.tag} : envelope{each.peer, here, each.tag};
        if (!(sent ? sends : receives).insert({name, each.range}).second) return "two messages of one name";
      }
    }
    if (sends.size() != receives.size()) return "as many sends as receives are missing";
    for (const auto& [name, range] : sends) {
      const auto found = receives.find(name);
      if (found == receives.end()) return "a message is not received";
      if (found->second.begin != range.begin || found->second.end != range.end) return "a message has other bytes";
    }
    return {};
  });
}

TEST_CASE("operations wait for earlier ones of their rank only") {
  for_each_job([](const job& all, const machine&, std::uint64_t) -> std::string {
    for (const std::vector<operation>& mine : all) {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (mine[i].range.size() == 0) return "a message without bytes";
        for (const operation_id before : mine[i].after) {
          if (before >= i) return "an operation waits for a later one";
        }
        if (mine[i].what != kind::reduce) continue;
        const operation& got = mine[mine[i].after.at(0)];
        if (got.what != kind::receive || got.peer != mine[i].peer || got.tag != mine[i].tag) return "a wrong reduction";
      }
    }
    return {};
  });
}

TEST_CASE("in whatever order operations run, all ranks get the sum of all inputs") {
  unsigned seed = 0;
  for_each_job([&](const job& all, const machine&, std::uint64_t bytes) -> std::string {
    if (all.size() > 8) return {};  // their messages are checked above
    return execution(all, bytes, ++seed).run();
  });
}

TEST_CASE("a schedule that lacks a message does not pass for an all-reduce") {
  job all = job_of(algorithm::ring, h200(1, 3), 9, 1);
  CHECK(execution(all, 9, 1).run().empty());
  all[1].pop_back();
  CHECK_FALSE(execution(all, 9, 1).run().empty());
}

TEST_CASE("schedules take the time that the model predicts") {
  const link over{3, 100};
  for (const int ranks : {2, 3, 4, 7, 8, 16}) {
    machine on = h200(1, ranks);
    on.launch = 0;
    on.flags = over;
    const std::uint64_t bytes = 1680 * 100;  // every number of ranks divides it
    for (const algorithm which : {algorithm::one_shot, algorithm::two_shot, algorithm::ring}) {
      INFO(name_of(which) << " of " << ranks << " ranks");
      CHECK(time_of(job_of(which, on, bytes, 1), over) ==
            Approx(predict(on, which, protocol::flags, static_cast<double>(bytes))));
    }
  }
}

TEST_CASE("schedules of trees take about the time that the model predicts") {
  const link over{3, 100};
  for (const int ranks : {2, 3, 5, 8, 16, 64}) {
    machine on = h200(1, ranks);
    on.launch = 0;
    on.flags = over;
    for (const std::uint64_t bytes : {std::uint64_t{64}, std::uint64_t{1} << 16, std::uint64_t{1} << 20}) {
      const double predicted = predict(on, algorithm::tree, protocol::flags, static_cast<double>(bytes));
      double best = 1e300;
      for (int chunks = 1; chunks <= 128; chunks *= 2) {
        best = std::min(best, time_of(job_of(algorithm::tree, on, bytes, chunks), over));
      }
      INFO(ranks << " ranks, " << bytes << " bytes: " << predicted << ", the schedule " << best);
      CHECK(best < predicted * 1.25);
      CHECK(best > predicted * 0.6);
    }
  }
}
