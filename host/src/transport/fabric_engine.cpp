#include "transport/fabric_engine.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_tokens.hpp"
#include "transport/operation_text.hpp"
#include "util/random.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;
using gin::signal_change;
using gin::strength;

std::uint32_t lower(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
std::uint32_t upper(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

bool has_message(const gin::descriptor_head& head) {
  return head.kind == operation_kind::put_value || head.change != signal_change::none;
}

}  // namespace

fabric_engine::fabric_engine(surroundings about, std::unique_ptr<fabric> reached)
    : about_(std::move(about)),
      fabric_(std::move(reached)),
      secret_(random_value<fabric_secret>()),
      pieces_(static_cast<std::size_t>(most_bytes / most_piece) * 8),
      sends_(send_buffers),
      receives_(receive_buffers) {
  for (std::size_t i = pieces_.size(); i > 0; --i) free_pieces_.push_back(i - 1);
  for (std::size_t i = sends_.size(); i > 0; --i) free_sends_.push_back(i - 1);
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    if (!fabric_->receive(bytes_of(receives_[i]), make_token(token_kind::received, i))) {
      throw system_error(fabric_->name() + " takes no " + std::to_string(receives_.size()) + " buffers for messages");
    }
  }
}

fabric_engine::~fabric_engine() {
  // While the buffers are there.
  regions_.clear();
  fabric_.reset();
}

void fabric_engine::connect(const std::vector<card>& cards) {
  std::vector<fabric_address> addresses;
  links_.resize(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i) {
    addresses.push_back(cards[i].address);
    links_[i].secret = cards[i].secret;
    links_[i].lanes.resize(about_.queues.size());
  }
  fabric_->connect(addresses);
}

bool fabric_engine::step() {
  if (!fabric_) return false;
  bool any = handle_completions();
  if (left_alone_) return false;
  if (!failed_ && take_posted()) any = true;
  if (!failed_ && issue()) any = true;
  if (send_messages()) any = true;
  if (!failed_) check_limits();
  return any;
}

bool fabric_engine::idle() const {
  if (!fabric_) return true;
  if (free_sends_.size() != sends_.size()) return false;
  const auto owes = [](const link& each) { return each.owes || !each.answers.empty(); };
  if (std::any_of(links_.begin(), links_.end(), owes)) return false;
  return failed_ || is_done();
}

bool fabric_engine::is_done() const {
  const auto posted = [](const auto& queue) { return queue->has_next(); };
  return flights_.empty() && std::none_of(about_.queues.begin(), about_.queues.end(), posted);
}

void fabric_engine::say_farewell() {
  for (link& each : links_) {
    if (!each.met || each.has_left) continue;
    fabric_message last;
    last.kind = message_kind::leave;
    last.sequence = each.expected;
    each.answers.push_back(last);
  }
}

bool fabric_engine::forget(std::uint32_t window) {
  const auto found = regions_.find(window);
  if (found == regions_.end()) return false;
  const auto uses = [&](const flight& each) {
    return each.region == found->second.get() && (each.pending != 0 || !failed_);
  };
  if (std::any_of(flights_.begin(), flights_.end(), uses)) return true;
  regions_.erase(found);
  return false;
}

void fabric_engine::take_away(std::uint32_t window) {
  const auto found = regions_.find(window);
  if (found == regions_.end()) return;
  bool moves = false;
  for (const flight& each : flights_) {
    if (each.region != found->second.get()) continue;
    fail(each, "this rank freed window " + std::to_string(window) + " meanwhile");
    moves = moves || each.pending != 0;
  }
  if (!moves) {
    regions_.erase(found);
    return;
  }
  // The fabric has the memory's address. Nothing but its end keeps it from there.
  regions_.clear();
  fabric_.reset();
}

// What kernels post.

bool fabric_engine::take_posted() {
  bool any = false;
  const auto count = static_cast<std::uint32_t>(about_.queues.size());
  first_queue_ = (first_queue_ + 1) % count;
  for (std::uint32_t i = 0; i < count && !failed_; ++i) {
    const std::uint32_t context = (first_queue_ + i) % count;
    network_queue& queue = *about_.queues[context];
    for (int taken = 0; taken < 16 && flights_.size() < most_in_flight && queue.has_next() && !failed_; ++taken) {
      flights_.push_back({context, queue.take(), {}, false, nullptr, nullptr, {}, 0, 0, clock::now()});
      flights_.back().self = std::prev(flights_.end());
      begin(flights_.back());
      any = true;
    }
  }
  return any;
}

void fabric_engine::begin(flight& one) {
  const gin::descriptor_head& head = one.operation.head;
  const std::string why = why_impossible(one.operation, about_.queues[one.context]->layout());
  if (!why.empty()) return fail(one, why);
  if (head.kind == operation_kind::put_value) one.operation.what.bytes = head.value_bytes;
  if (head.peer == static_cast<std::uint32_t>(about_.rank)) return do_here(one);
  link& to = link_to(one);
  if (to.has_left) return fail_because_it_left(one);
  to.lanes[one.context].push_back(&one);
  const bool moves = head.kind == operation_kind::put || head.kind == operation_kind::get;
  if (!moves) return arrived(one);
  const std::uint32_t window = upper(one.operation.what.windows);
  const auto [place, is_new] = to.places.try_emplace(window);
  if (place->second.is_known) return begin_to_move(one, place->second);
  place->second.waiting.push_back(&one);
  if (!is_new) return;
  fabric_message question;
  question.kind = message_kind::ask_for_place;
  question.window = window;
  to.outgoing.push_back({question, &one});
}

/// Everything earlier to this rank is done: so are the signals that may not overtake it.
void fabric_engine::do_here(flight& one) {
  const gin::descriptor& what = one.operation.what;
  const gin::descriptor_head& head = one.operation.head;
  network_queue& queue = *about_.queues[one.context];
  const bool moves = head.kind == operation_kind::put || head.kind == operation_kind::get;
  if (head.kind != operation_kind::signal) {
    char* remote = nullptr;
    own_memory found = with_own(upper(what.windows), what.remote, what.bytes, [&](const window_table::entry& theirs) {
      remote = theirs.local + what.remote;
      if (!moves) std::memcpy(remote, &what.value, what.bytes);
    });
    const std::string whose = "rank " + std::to_string(about_.rank);
    if (found.why != refusal::none) return fail_at_window(one, whose, false, found);
    if (moves) {
      found = with_own(lower(what.windows), what.local, what.bytes, [&](const window_table::entry& mine) {
        char* const local = mine.local + what.local;
        const bool puts = head.kind == operation_kind::put;
        std::memmove(puts ? remote : local, puts ? local : remote, what.bytes);
      });
    }
    if (found.why != refusal::none) return fail_at_window(one, "this rank", true, found);
  }
  const std::uint32_t word = queue.layout().signal(lower(what.actions));
  if (head.change == signal_change::add) queue.add(word, what.signal_value);
  if (head.change == signal_change::set) queue.set(word, what.signal_value);
  complete(one);
}

void fabric_engine::begin_to_move(flight& one, const known_place& at) {
  const gin::descriptor& what = one.operation.what;
  const std::string whose = "rank " + std::to_string(one.operation.head.peer);
  if (at.why != refusal::none) return fail_at_window(one, whose, false, {at.why});
  if (what.remote > at.bytes || what.bytes > at.bytes - what.remote) {
    return fail_at_window(one, whose, false, {refusal::past_end, at.bytes});
  }
  const own_memory found =
      with_own(lower(what.windows), what.local, what.bytes, [&](const window_table::entry& memory) {
        if (what.bytes == 0) return;
        one.region = &region_of(lower(what.windows), memory);
        one.local = memory.local + what.local;
      });
  if (found.why != refusal::none) return fail_at_window(one, "this rank", true, found);
  one.remote = {at.place.key, at.place.address + what.remote};
  one.progressed = clock::now();
  if (what.bytes == 0) return arrived(one);
  link_to(one).movers.push_back(&one);
}

void fabric_engine::fail_at_window(const flight& one, const std::string& whose, bool is_local,
                                   const own_memory& found) {
  const gin::descriptor& what = one.operation.what;
  const std::uint32_t window = is_local ? lower(what.windows) : upper(what.windows);
  if (found.why == refusal::no_window) return fail(one, text_of_missing_window(whose, window));
  fail(one, text_of_overrun(what.bytes, is_local ? what.local : what.remote,
                            "window " + std::to_string(window) + " of " + whose, found.bytes));
}

void fabric_engine::arrived(flight& one) {
  one.data_is_there = true;
  const std::uint32_t context = one.context;
  const std::uint32_t peer = one.operation.head.peer;
  if (!has_message(one.operation.head)) {
    std::deque<flight*>& lane = links_[peer].lanes[context];
    lane.erase(std::find(lane.begin(), lane.end(), &one));
    complete(one);
  }
  review(context, peer);
}

void fabric_engine::review(std::uint32_t context, std::uint32_t peer) {
  link& to = links_[peer];
  std::deque<flight*>& lane = to.lanes[context];
  bool all_before = true;  // the data is there, and strong signals are on their way
  for (std::size_t i = 0; i < lane.size();) {
    flight& one = *lane[i];
    const gin::descriptor& what = one.operation.what;
    const gin::descriptor_head& head = one.operation.head;
    const bool strong = head.change != signal_change::none && head.covers == strength::strong;
    if (head.kind == operation_kind::get) {
      ++i;
      continue;
    }
    if (!one.data_is_there || (strong && !all_before)) {
      all_before = false;
      ++i;
      continue;
    }
    fabric_message change;
    change.kind = message_kind::change;
    change.context = context;
    if (head.kind == operation_kind::put_value) {
      change.value_bytes = head.value_bytes;
      change.value = what.value;
      change.window = upper(what.windows);
      change.offset = what.remote;
    }
    change.signal_change = head.change;
    change.signal = lower(what.actions);
    change.signal_value = what.signal_value;
    to.outgoing.push_back({change, &one});
    lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void fabric_engine::complete(flight& one) {
  network_queue& queue = *about_.queues[one.context];
  if (one.operation.head.counts) queue.add(queue.layout().counter(upper(one.operation.what.actions)), 1);
  queue.complete(one.operation.number, one.operation.head.peer);
  flights_.erase(one.self);
}

const fabric_region& fabric_engine::region_of(std::uint32_t window, const window_table::entry& memory) {
  auto found = regions_.find(window);
  if (found == regions_.end()) found = regions_.emplace(window, fabric_->add_memory(memory.local, memory.bytes)).first;
  return *found->second;
}

// What goes out.

bool fabric_engine::issue() {
  bool any = false;
  const std::size_t count = links_.size();
  if (count != 0) first_link_ = (first_link_ + 1) % count;
  for (std::size_t i = 0; i < count && !failed_; ++i) {
    if (issue(links_[(first_link_ + i) % count])) any = true;
  }
  return any;
}

bool fabric_engine::issue(link& to) {
  bool any = false;
  while (!to.movers.empty() && !failed_) {
    flight& one = *to.movers.front();
    const std::uint64_t bytes = std::min(most_piece, one.operation.what.bytes - one.issued);
    if (free_pieces_.empty() || (bytes_in_flight_ != 0 && bytes_in_flight_ + bytes > most_bytes)) return any;
    const std::size_t slot = free_pieces_.back();
    const auto peer = static_cast<int>(one.operation.head.peer);
    const remote_place there{one.remote.key, one.remote.address + one.issued};
    const std::span<char> here(one.local + one.issued, bytes);
    const std::uint64_t name = make_token(token_kind::moved, slot);
    bool taken = false;
    try {
      taken = one.operation.head.kind == operation_kind::get ? fabric_->read(peer, here, *one.region, there, name)
                                                             : fabric_->write(peer, here, *one.region, there, name);
    } catch (const system_error& problem) {
      fail(one, problem.what());
    }
    if (!taken) return any;
    any = true;
    free_pieces_.pop_back();
    pieces_[slot] = {&one, bytes};
    bytes_in_flight_ += bytes;
    one.issued += bytes;
    ++one.pending;
    one.progressed = clock::now();
    if (one.issued == one.operation.what.bytes) to.movers.pop_front();
  }
  return any;
}

bool fabric_engine::send_messages() {
  bool any = false;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (send_messages(static_cast<int>(i), links_[i])) any = true;
  }
  return any;
}

bool fabric_engine::send_messages(int peer, link& to) {
  bool any = false;
  if (to.has_left) return any;
  if (to.again != clock::time_point{}) {
    if (clock::now() < to.again) return any;
    to.again = {};
  }
  if (to.owes && !to.acknowledging) {
    fabric_message done;
    done.kind = message_kind::acknowledge;
    done.sequence = to.expected;
    to.acknowledging = true;
    if (!send(peer, done, nullptr)) {
      to.acknowledging = false;
      return any;
    }
    to.owes = false;
    any = true;
  }
  while (!to.answers.empty()) {
    if (!send(peer, to.answers.front(), nullptr)) return any;
    to.answers.pop_front();
    any = true;
  }
  while (!failed_ && !to.outgoing.empty()) {
    posted_message& next = to.outgoing.front();
    const bool changes = next.message.kind == message_kind::change;
    if (changes && to.unacknowledged.size() == most_unacknowledged) return any;
    next.message.sequence = changes ? to.next : 0;
    if (!send(peer, next.message, next.of)) return any;
    if (changes) {
      ++to.next;
      to.unacknowledged.push_back(next.of);
      next.of->progressed = clock::now();
    }
    to.outgoing.pop_front();
    any = true;
  }
  return any;
}

bool fabric_engine::send(int peer, const fabric_message& message, flight* of) {
  if (free_sends_.empty()) return false;
  const std::size_t slot = free_sends_.back();
  links_[static_cast<std::size_t>(peer)].met = true;
  sent_message& sent = sends_[slot];
  sent = {message, peer, of};
  sent.message.secret = links_[static_cast<std::size_t>(peer)].secret;
  sent.message.sender = static_cast<std::uint32_t>(about_.rank);
  try {
    if (!fabric_->send(peer, bytes_of(sent.message), make_token(token_kind::sent, slot))) return false;
    free_sends_.pop_back();
  } catch (const system_error& problem) {
    if (of == nullptr) {  // it is owed to the peer all the same
      links_[static_cast<std::size_t>(peer)].again = clock::now() + std::chrono::milliseconds(10);
      return false;
    }
    fail(*of, problem.what());
  }
  return true;
}

void fabric_engine::check_limits() {
  constexpr std::chrono::milliseconds often(10);
  const clock::time_point now = clock::now();
  if (now - checked_ < often) return;
  const bool stood_still = checked_ != clock::time_point{} && now - checked_ > 10 * often;
  checked_ = now;
  if (stood_still) {  // this rank itself, a stopped process perhaps: peers' answers may wait in the fabric
    for (link& each : links_) each.heard = now;
    return;
  }
  for (const flight& each : flights_) {
    if (now - std::max(each.progressed, links_[each.operation.head.peer].heard) <= about_.limit) continue;
    return fail(each, "rank " + std::to_string(each.operation.head.peer) + " has not answered for " +
                          std::to_string(about_.limit.count()) +
                          " ms, half of the kernel timeout: see what that rank says, or allow more by DEVCOMM_TIMEOUT");
  }
}

void fabric_engine::fail(const flight& one, const std::string& why) {
  if (failed_) return;
  failed_ = true;
  about_.fail(text_of_operation(about_.rank, one.context, one.operation.head) + ": " + why);
}

}  // namespace devcomm::host::detail
