#include "engine/take_snapshot.hpp"

#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "engine/session.hpp"
#include "gpu/device_memory.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

constexpr size_t words_kept = 8;  // of those that a thread polls

const char* name_of(warp_operation operation) {
  switch (operation) {
    case warp_operation::sync: return "__syncwarp";
    case warp_operation::ballot: return "vote";
    case warp_operation::shuffle: return "shuffle";
    case warp_operation::match: return "__match";
    case warp_operation::gather: return "an access to whole lines";
  }
  return "warp operation";
}

wait_reason reason_of(const fiber& f) {
  switch (f.state) {
    case fiber_state::runnable: return wait_reason::none;
    case fiber_state::at_barrier:
      return f.barrier == barrier_of_grid ? wait_reason::grid_barrier : wait_reason::block_barrier;
    case fiber_state::at_warp: return wait_reason::warp_operation;
    case fiber_state::at_converge: return wait_reason::active_lanes;
    case fiber_state::polling:
      if (f.spins) return wait_reason::unseen_memory;
      return f.label != nullptr ? wait_reason::session : wait_reason::memory;
    case fiber_state::sleeping: return wait_reason::sleep;
    case fiber_state::finished: break;
  }
  return wait_reason::exited;
}

/// The epoch or value that the wait saw last, where `word` is the first of those that it polls: that itself, unless it
/// holds data beside a flag.
uint64_t last_seen(const devcomm::detail::wait_label& label, uint64_t word) {
  using devcomm::operation;
  switch (label.what) {
    case operation::ll_mailbox:
    case operation::lamport_mailbox:
    case operation::ll128_mailbox:
    case operation::message_send:
    case operation::message_receive: return label.seen;
    case operation::fifo_receive: return label.expected - 1;  // the steps before have been received
    default: return word;
  }
}

class taker {
 public:
  explicit taker(engine& e) : engine_(e) {}

  snapshot take() {
    for (const grid* g : engine_.grids) add_launch(*g);
    // Sessions name threads, so these come when all have their index.
    for (const grid* g : engine_.grids) {
      for (const block* b : g->running) {
        for (const fiber& f : b->fibers) add_session(f);
      }
    }
    return std::move(all_);
  }

 private:
  std::set<int> ranks_of(const block& b) const {
    const int rank = rank_of(b);
    return rank >= 0 ? std::set{rank} : ranks_of(b.device);
  }
  std::set<int> ranks_of(int device) const {
    const auto named = engine_.ranks_of_device.find(device);
    return named == engine_.ranks_of_device.end() ? std::set<int>() : named->second;
  }

  void add_launch(const grid& g) {
    launch_snapshot one;
    one.device = g.device;
    one.blocks = g.shape.blocks();
    one.not_started = g.shape.blocks() - g.next_block;
    one.arrived = g.arrived;
    one.live = g.live;
    one.ranks = g.running.empty() ? ranks_of(g.device) : ranks_of(*g.running.front());
    one.first_block = all_.blocks.size();
    one.running = g.running.size();
    for (const block* b : g.running) add_block(*b);
    all_.launches.push_back(std::move(one));
  }

  void add_block(const block& b) {
    block_snapshot one;
    one.launch = all_.launches.size();
    one.rank = b.rank;
    one.world_rank = rank_of(b);
    one.ranks = ranks_of(b);
    one.first_thread = all_.threads.size();
    one.threads = b.fibers.size();
    one.live = b.live;
    for (size_t i = 0; i < std::size(b.barriers); ++i) {
      one.barriers[i] = {b.barriers[i].arrived, b.barriers[i].threads};
    }
    for (const warp& w : b.warps) one.live_lanes.push_back(w.live);
    for (const fiber& f : b.fibers) add_thread(f);
    all_.blocks.push_back(std::move(one));
  }

  void add_thread(const fiber& f) {
    thread_snapshot one;
    one.block = all_.blocks.size();
    one.rank = f.rank;
    one.reason = reason_of(f);
    one.barrier = f.barrier;
    one.operation = name_of(f.operation);
    one.mask = f.mask;
    const std::vector<watch>& words = f.watches.entries;
    if (one.reason == wait_reason::session && !words.empty())
      one.words.push_back({"", last_seen(*f.label, words.front().value)});
    if (one.reason == wait_reason::memory) {
      for (size_t i = 0; i < std::min(words.size(), words_kept); ++i) {
        std::string barrier = engine_.copies.describe_mbarrier(words[i].address);
        if (barrier.empty()) barrier = describe_cluster_barrier(*f.home, words[i].address);
        one.words.push_back(
            {barrier.empty() ? describe_address(words[i].address) : barrier, words[i].value, !barrier.empty()});
      }
      one.more_words = words.size() - one.words.size();
    }
    index_[&f] = all_.threads.size();
    all_.threads.push_back(std::move(one));
  }

  void add_session(const fiber& f) {
    thread_snapshot& thread = all_.threads[index_[&f]];
    if (thread.reason != wait_reason::session) return;
    session_wait& wait = thread.session;
    wait.what = f.label->what;
    wait.index = f.label->index;
    wait.peer = f.label->peer;
    wait.peer_index = f.label->peer_index;
    wait.groups = f.label->groups;
    wait.condition = f.label->condition;
    wait.window = f.label->window;
    wait.expected = f.label->expected;
    const session* const own = session_of(f, *f.label);
    if (own == nullptr) return;
    wait.own = index_of(*own);
    for (const session* theirs : sessions_of_peer(engine_.sessions, *own, f.label->peer, f.label->peer_index)) {
      wait.awaited.push_back(index_of(*theirs));
    }
  }

  size_t index_of(const session& s) {
    const auto [found, added] = session_index_.try_emplace(&s, all_.sessions.size());
    if (!added) return found->second;
    std::vector<size_t>& threads = all_.sessions.emplace_back();
    for (const session::member& m : s.members) {
      if (m.thread != nullptr && !m.left) threads.push_back(index_.at(m.thread));
    }
    return found->second;
  }

  engine& engine_;
  snapshot all_;
  std::unordered_map<const fiber*, size_t> index_;
  std::unordered_map<const session*, size_t> session_index_;
};

}  // namespace

snapshot take_snapshot(engine& e) { return taker(e).take(); }

}  // namespace devcomm::simulator::detail
