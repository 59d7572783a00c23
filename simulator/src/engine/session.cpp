/// Checks how groups use their sessions.
///
/// Threads of a group find each other by the barrier or channel and by their ranks in the group: a thread joins the
/// newest session there that has no thread of its rank yet. No thread leaves a session before all of its group have
/// reached the end, so a session that begins overlaps only with sessions that have ended; two that are live at once are
/// a mistake.
#include "engine/session.hpp"

#include "base/sanitizer.hpp"
#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"

#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

namespace devcomm::simulator::detail {
namespace {

using devcomm::detail::session_call;
using devcomm::detail::session_id;

session_key key_of(const session_id& id, int rank) { return {id.window, id.offset, id.index, id.what, rank}; }

bool same_key(const session_id& a, const session_id& b) { return key_of(a, a.rank) == key_of(b, b.rank); }

const char* name_of(session_call call) {
  switch (call) {
    case session_call::arrive: return "arrive";
    case session_call::wait: return "wait";
    case session_call::sync: return "sync";
    case session_call::wait_for: return "wait_for";
    case session_call::agree: return "agree";
    case session_call::begin_round: return "begin_round";
    case session_call::transfer: return "a primitive of a channel";
    case session_call::end: return "the session's end";
  }
  return "an unknown call";
}

std::string threads(uint32_t count) { return std::to_string(count) + (count == 1 ? " thread" : " threads"); }

[[noreturn]] void fail_two_sessions(const session_id& id, const fiber& other) {
  const bool own = &other == this_fiber;
  fail_misuse(("two sessions of " + describe(id) + " are live at once, this one and one of " +
               (own ? "the same thread"
                    : "block " + std::to_string(other.home->rank) + ", thread " + std::to_string(other.rank)) +
               "; end a session before the next one on its index begins, and give groups that run side by side "
               "indices of their own")
                  .c_str());
}

/// The running thread's latest session of that barrier or channel.
session* own_session(const session_id& id) {
  auto& own = this_fiber->sessions;
  const auto found = std::find_if(own.rbegin(), own.rend(), [&](const session* s) { return same_key(s->id, id); });
  return found == own.rend() ? nullptr : *found;
}

void drop(session_table& table, const session& s) {
  const auto found = table.find(key_of(s.id, s.id.rank));
  std::erase_if(found->second, [&](const auto& each) { return each.get() == &s; });
  if (found->second.empty()) table.erase(found);
}

}  // namespace

std::string describe(const session_id& id) {
  return std::string(devcomm::to_string(id.what)) + " " + std::to_string(id.index) + " of rank " +
         std::to_string(id.rank);
}

std::string describe_sessions(const fiber& f, const std::string& beside) {
  std::string text;
  for (const session* s : f.sessions) {
    const std::string name = std::string(devcomm::to_string(s->id.what)) + " " + std::to_string(s->id.index);
    if (beside.find(name) == std::string::npos) text += ", in a session of " + name;
  }
  return text;
}

void begin_session(const session_id& id) {
  const sanitizer::unobserved hidden;
  auto& here = this_block->simulation.sessions[key_of(id, id.rank)];
  if (own_session(id) != nullptr) fail_two_sessions(id, *this_fiber);
  session* mine = nullptr;
  for (const auto& s : here) {
    const bool lacks_me = s->id.threads == id.threads && s->members[id.thread].thread == nullptr;
    if (lacks_me) mine = s.get();
    for (const session::member& m : s->members) {
      const bool live = m.thread != nullptr && !m.ended;
      if (live && !lacks_me) fail_two_sessions(id, *m.thread);
    }
  }
  if (mine == nullptr) {
    if (id.once_a_launch && !this_block->launch.used.insert({id.window, id.offset, id.index, id.rank}).second) {
      const char* const why = id.what == operation::gemm_session
                                  ? " in one launch: both would have its epoch; make one session for the launch, or "
                                    "give the second flags of its own"
                                  : " in one launch: nothing orders the first one's stores before its packets; make "
                                    "one session that does several rounds, or give the second a mailbox of its own";
      fail_misuse(("a second session of " + describe(id) + why).c_str());
    }
    here.push_back(std::make_unique<session>(id));
    mine = here.back().get();
  }
  mine->members[id.thread].thread = this_fiber;
  ++mine->come;
  this_fiber->sessions.push_back(mine);
  this_block->world_rank = id.rank;
}

void note_post(const uint64_t* word) { sanitizer::note_post(word); }

void call_session(const session_id& id, session_call call) {
  session* const s = own_session(id);
  if (s == nullptr) return;
  const sanitizer::unobserved hidden;
  session::member& me = s->members[id.thread];
  const uint64_t number = me.calls++;
  if (number == s->first_call + s->calls.size()) {
    if (s->calls.size() == session::calls_kept) {
      s->calls.erase(s->calls.begin());
      ++s->first_call;
    }
    s->calls.push_back({call, this_fiber});
  } else if (number >= s->first_call) {
    const session::call& first = s->calls[number - s->first_call];
    if (first.what != call) {
      fail_misuse(("the group of the session of " + describe(id) + " diverged: this thread is at " + name_of(call) +
                   ", and thread " + std::to_string(first.first->rank) + " of block " +
                   std::to_string(first.first->home->rank) + " is at " + name_of(first.what) +
                   "; all threads of a group make the same calls in the same order")
                      .c_str());
    }
  }
  if (call == session_call::end) me.ended = true;
}

namespace {

/// A thread of a session that is in another warp than this one, where the group has no more threads than a warp, or in
/// another block: then two groups have made sessions there, and threads of both were taken for one group.
const fiber* thread_of_other_group(const session& s) {
  for (const session::member& m : s.members) {
    if (m.thread == nullptr || m.left) continue;
    const fiber& other = *m.thread;
    if (other.home != this_block || (s.id.threads <= 32 && other.rank / 32 != this_fiber->rank / 32)) return &other;
  }
  return nullptr;
}

}  // namespace

void leave_session(const session_id& id) {
  session* const s = own_session(id);
  if (s == nullptr) return;
  const sanitizer::unobserved hidden;
  if (s->come != s->id.threads) {
    if (const fiber* const other = thread_of_other_group(*s)) fail_two_sessions(id, *other);
    fail_misuse(("the group of the session of " + describe(id) + " has " + threads(s->id.threads) + ", and only " +
                 std::to_string(s->come) +
                 " took part; let all threads of a group make the session, or choose a group of those that do")
                    .c_str());
  }
  auto& own = this_fiber->sessions;
  own.erase(std::find(own.begin(), own.end(), s));
  s->members[id.thread].left = true;
  if (++s->left == s->come) drop(this_block->simulation.sessions, *s);
}

const session* session_of(const fiber& f, const devcomm::detail::wait_label& label) {
  for (auto s = f.sessions.rbegin(); s != f.sessions.rend(); ++s) {
    const session_id& id = (*s)->id;
    if (id.what == label.what && id.index == label.index && id.offset == label.offset) return *s;
  }
  return nullptr;
}

std::vector<const session*> sessions_of_peer(const session_table& table, const session& s, int rank, uint32_t index) {
  std::vector<const session*> found;
  session_id theirs = s.id;
  theirs.index = index;
  constexpr lsa::mailbox_layout layout{};  // FIFOs and packets go from one index to another
  theirs.offset += layout.epoch(index) - layout.epoch(s.id.index);
  if (theirs.what == devcomm::operation::fifo_send) {
    theirs.what = devcomm::operation::fifo_receive;
  } else if (theirs.what == devcomm::operation::fifo_receive) {
    theirs.what = devcomm::operation::fifo_send;
  }
  const auto there = table.find(key_of(theirs, rank));
  if (there == table.end()) return found;
  for (const auto& each : there->second) found.push_back(each.get());
  return found;
}

void forget_sessions(fiber& f) {
  while (!f.sessions.empty()) {
    session* const s = f.sessions.back();
    f.sessions.pop_back();
    for (session::member& m : s->members) {
      if (m.thread != &f || m.left) continue;
      m.ended = m.left = true;
      ++s->left;
    }
    if (s->left == s->come) drop(f.home->simulation.sessions, *s);
  }
}

}  // namespace devcomm::simulator::detail
