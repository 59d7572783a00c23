#include "transport/fabric_engine.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_tokens.hpp"
#include "transport/operation_text.hpp"
#include "util/window_number.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;
using gin::signal_change;

}  // namespace

fabric_engine::fabric_engine(surroundings about, fabric_endpoint& at)
    : about_(std::move(about)),
      at_(at),
      fragment_bytes_(std::min(max_fragment_bytes, at_.largest_transfer())),
      connections_(at_.ranks()),
      fragments_(static_cast<std::size_t>(max_bytes / max_fragment_bytes) * 8),
      sends_(send_buffers, at_.buffer_bytes()),
      copies_(std::move(about_.staged), at_) {}

fabric_engine::~fabric_engine() {
  if (!has_fabric_) return;
  end();
  at_.detach(index_);
}

void fabric_engine::attach() {
  fabric& reached = *at_.port();
  sends_.attach(reached);
  try {
    copies_.attach(reached);
  } catch (...) {
    sends_.detach();  // before the thread goes on
    throw;
  }
  index_ = at_.attach(*this, about_.number);
  has_fabric_ = true;
}

void fabric_engine::end() {
  failed_ = true;
  at_.end(about_.number);
  copies_.end();
  // None is under way any more that would keep a window.
  staging_work_.clear();
  for (connection& each : connections_) each.received.begun().clear();
  for (fragment& each : fragments_) each.copy = {};
}

bool fabric_engine::is_with_fabric() const {
  const auto moves = [](const fragment& each) { return each.of != nullptr && each.at == fragment_stage::moving; };
  return has_fabric_ && (!sends_.all_free() || std::any_of(fragments_.begin(), fragments_.end(), moves));
}

void fabric_engine::lose_fabric(const std::string& why) {
  if (!failed_ && !why.empty()) about_.fail(why);
  end();
  copies_.detach();
  sends_.detach();
  has_fabric_ = false;
}

bool fabric_engine::step() {
  if (!has_fabric_) return false;
  bool any = copies_.has_engine() && handle_copies();
  if (!failed_ && take_posted()) any = true;
  if (!failed_ && issue()) any = true;
  if (copies_.has_engine()) copies_.watch();
  if (send_messages()) any = true;
  if (!failed_) check_limits();
  drop_inactive();
  return any;
}

bool fabric_engine::idle() const {
  if (!has_fabric_) return true;
  if (!sends_.all_free()) return false;
  if (!staging_work_.empty()) return false;
  const auto owes = [](const connection& each) {
    // A write that is awaited may never come, and nobody is owed that it is waited for.
    const fifo<begun_change>& begun = each.received.begun();
    const bool moves = !begun.empty() && !each.refused && !begun.front().awaits_write;
    return each.owes || !each.answers.empty() || moves;
  };
  if (std::any_of(connections_.begin(), connections_.end(), owes)) return false;
  return failed_ || is_done();
}

bool fabric_engine::has_posted() const {
  return std::any_of(about_.queues.begin(), about_.queues.end(), [](const auto& queue) { return queue->has_next(); });
}

bool fabric_engine::is_done() const { return operations_.empty() && !has_posted(); }

bool fabric_engine::is_done_by_peers() const {
  const auto is_over = [this](const fabric_operation& each) {
    return connections_[each.posted.head.peer].has_left && is_done_by_peer(each);
  };
  return std::all_of(operations_.begin(), operations_.end(), is_over) && !has_posted();
}

void fabric_engine::send_shutdown_notice() {
  for (connection& each : connections_) {
    if (!each.met || each.has_left) continue;
    fabric_message last;
    last.kind = message_kind::leave;
    activate(each).answers.push_back(last);
    each.leave_sent = true;
  }
}

bool fabric_engine::has_parted() const {
  if (!has_fabric_) return true;
  const auto knows = [](const connection& each) { return !each.leave_sent || each.has_left || each.leave_heard; };
  return std::all_of(connections_.begin(), connections_.end(), knows);
}

bool fabric_engine::uses(const fabric_region& memory) const {
  const auto use = [&](const fabric_operation& each) {
    return each.region == &memory && (is_moving(each) || !failed_);
  };
  return std::any_of(operations_.begin(), operations_.end(), use);
}

bool fabric_engine::take_away(const fabric_region& memory, const std::string& why) {
  bool moves = false;
  for (const fabric_operation& each : operations_) {
    if (each.region != &memory) continue;
    fail(each, why);
    moves = moves || is_moving(each);
  }
  return moves;
}

// What kernels post.

bool fabric_engine::take_posted() {
  bool any = false;
  const auto count = static_cast<std::uint32_t>(about_.queues.size());
  first_queue_ = (first_queue_ + 1) % count;
  for (std::uint32_t i = 0; i < count && !failed_; ++i) {
    const std::uint32_t context = (first_queue_ + i) % count;
    network_queue& queue = *about_.queues[context];
    for (int taken = 0; taken < 16 && queue.has_next() && !failed_; ++taken) {
      const std::uint32_t peer = queue.next_peer();
      if (peer < connections_.size()) {  // else it fails
        if (!may_take(connections_[peer].held.operations, max_in_flight - operations_.size())) break;
        ++connections_[peer].held.operations;
      }
      operations_.emplace_back();
      operations_.back().context = context;
      operations_.back().posted = queue.take();
      operations_.back().self = std::prev(operations_.end());
      operations_.back().progressed = clock::now();
      begin(operations_.back());
      any = true;
    }
  }
  return any;
}

void fabric_engine::begin(fabric_operation& one) {
  const gin::descriptor_head& head = one.posted.head;
  const std::string why = why_impossible(one.posted, about_.queues[one.context]->layout());
  if (!why.empty()) return fail(one, why);
  if (head.kind == operation_kind::put_value) one.posted.what.bytes = head.value_bytes;
  connection& to = connection_to(one);
  if (is_own(to) && !copies_.has_engine()) return do_here(one);
  if (to.has_left) return fail_because_it_left(one);
  if (to.send_queues.empty()) to.send_queues.resize(about_.queues.size());
  to.send_queues[one.context].push_back(&one);
  one.is_queued = true;
  if (!one.moves()) return arrived(one);
  if (begin_to_carry(one)) return;
  const std::uint32_t window = upper(one.posted.what.windows);
  if (is_own(to)) {
    remote_window here;
    const own_memory found =
        with_own(at_.windows(), window, 0, 0, [&](const window_table::entry& memory) { here.bytes = memory.bytes; });
    here.why = found.why;
    return begin_to_move(one, here);
  }
  const auto [place, is_new] = to.windows.try_emplace(window);
  if (place->second.is_known) return begin_to_move(one, place->second);
  place->second.waiting.push_back(&one);
  if (!is_new) return;
  fabric_message question;
  question.kind = message_kind::ask_for_key;
  question.window = window;
  to.outgoing.push_back({question, &one});
}

bool fabric_engine::begin_to_carry(fabric_operation& one) {
  const gin::descriptor& what = one.posted.what;
  connection& to = connection_to(one);
  if (one.posted.head.kind != operation_kind::put || is_own(to)) return false;
  if (what.bytes == 0 || what.bytes > at_.card_of(one.posted.head.peer).carried) return false;
  const own_memory found =
      with_own(at_.windows(), lower(what.windows), what.local, what.bytes, [&](const window_table::entry& memory) {
        one.is_staged = at_.stages(memory);
        one.carries = one.is_staged || !memory.on_device;
        if (!one.carries) return;
        one.carried.resize(what.bytes);
        if (!one.is_staged) std::memcpy(one.carried.data(), memory.local + what.local, what.bytes);
      });
  if (found.why != refusal::none) {
    fail_at_window(one, "this rank", true, found);
    return true;
  }
  if (!one.carries) return false;
  if (one.is_staged) {
    to.movers.push_back(&one);
  } else {
    arrived(one);
  }
  return true;
}

/// Where the host reaches all windows. Everything earlier to this rank is done: so are the signals that may not
/// overtake it.
void fabric_engine::do_here(fabric_operation& one) {
  const gin::descriptor& what = one.posted.what;
  const gin::descriptor_head& head = one.posted.head;
  network_queue& queue = *about_.queues[one.context];
  const bool moves = one.moves();
  if (head.kind != operation_kind::signal && head.kind != operation_kind::fence) {
    char* remote = nullptr;
    own_memory found =
        with_own(at_.windows(), upper(what.windows), what.remote, what.bytes, [&](const window_table::entry& theirs) {
          remote = theirs.local + what.remote;
          if (!moves) std::memcpy(remote, &what.value, what.bytes);
        });
    const std::string whose = "rank " + std::to_string(at_.rank());
    if (found.why != refusal::none) return fail_at_window(one, whose, false, found);
    if (moves) {
      found =
          with_own(at_.windows(), lower(what.windows), what.local, what.bytes, [&](const window_table::entry& mine) {
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

void fabric_engine::begin_to_move(fabric_operation& one, const remote_window& at) {
  const gin::descriptor& what = one.posted.what;
  const std::string whose = "rank " + std::to_string(one.posted.head.peer);
  if (at.why != refusal::none) return fail_at_window(one, whose, false, {at.why, 0, at.code});
  if (what.remote > at.bytes || what.bytes > at.bytes - what.remote) {
    return fail_at_window(one, whose, false, {refusal::past_end, at.bytes});
  }
  own_memory found;
  try {
    found =
        with_own(at_.windows(), lower(what.windows), what.local, what.bytes, [&](const window_table::entry& memory) {
          if (what.bytes == 0) return;
          one.is_staged = at_.stages(memory) || is_own(connection_to(one));
          if (one.is_staged) return;
          one.region = &at_.region_of(lower(what.windows), memory);
          one.local = memory.local + what.local;
        });
  } catch (const registration_error& problem) {
    return fail(one, problem.what());
  }
  if (found.why != refusal::none) return fail_at_window(one, "this rank", true, found);
  one.peer_stages = at.peer_stages;
  if (one.posted.head.kind == operation_kind::put) one.write = at.write;
  one.remote = {at.place.key, at.place.address + what.remote};
  one.progressed = clock::now();
  one.out = 0;
  if (what.bytes == 0) return arrived(one);
  connection_to(one).movers.push_back(&one);
}

void fabric_engine::fail_at_window(const fabric_operation& one, const std::string& whose, bool is_local,
                                   const own_memory& found) {
  const gin::descriptor& what = one.posted.what;
  const std::uint32_t window = is_local ? lower(what.windows) : upper(what.windows);
  if (found.why == refusal::no_window) return fail(one, text_of_missing_window(whose, window));
  if (found.why == refusal::not_registered) {
    return fail(one, whose + " cannot register window " + std::to_string(window_number(window)) + " with " +
                         at_.name() + ": " + at_.port()->text_of(found.code) +
                         "; see what it says on its standard error");
  }
  fail(one, text_of_overrun(what.bytes, is_local ? what.local : what.remote,
                            "window " + std::to_string(window_number(window)) + " of " + whose, found.bytes));
}

void fabric_engine::arrived(fabric_operation& one) {
  if (one.data_is_ordered) {
    complete_if_done(one);
  } else {
    put_in_order(one);
  }
}

void fabric_engine::put_in_order(fabric_operation& one) {
  const std::uint32_t context = one.context;
  const std::uint32_t peer = one.posted.head.peer;
  one.data_is_ordered = true;
  if (!one.wants_message()) {
    leave_send_queue(one);
    complete_if_done(one);
  }
  review(context, peer);
}

void fabric_engine::leave_send_queue(fabric_operation& one) {
  fifo<fabric_operation*>& send_queue = connection_to(one).send_queues[one.context];
  send_queue.erase(std::find(send_queue.begin(), send_queue.end(), &one));
  one.is_queued = false;
  one.has_message = one.wants_message();
}

void fabric_engine::review(std::uint32_t context, std::uint32_t peer) {
  connection& to = activate(connections_[peer]);
  const fifo<fabric_operation*>& send_queue = to.send_queues[context];
  for (std::size_t i = 0; i < send_queue.size();) {
    fabric_operation& one = *send_queue[i];
    const auto message = one.data_is_ordered ? message_to_leave_with(one, false) : std::nullopt;
    if (message) {
      to.outgoing.push_back({*message, &one});
      leave_send_queue(one);
    } else {
      ++i;
    }
  }
}

std::optional<fabric_message> fabric_engine::message_to_leave_with(const fabric_operation& one, bool overtakes) const {
  const gin::descriptor& what = one.posted.what;
  const gin::descriptor_head& head = one.posted.head;
  const auto gets = [](const fabric_operation* each) { return each->gets(); };
  if (one.gets() || !one.wants_message()) return {};
  if (one.is_strong()) {
    // What was posted before it has data that is not in order, or a strong signal that waits, as long as it is in the
    // send queue; what has left may have its message in `outgoing`.
    const fifo<fabric_operation*>& send_queue = connection_to(one).send_queues[one.context];
    if (overtakes || *std::find_if_not(send_queue.begin(), send_queue.end(), gets) != &one) return {};
  }
  fabric_message change;
  change.kind = message_kind::change;
  change.context = one.context;
  if (head.kind == operation_kind::put_value || one.carries) {
    change.window = upper(what.windows);
    change.offset = what.remote;
  }
  if (head.kind == operation_kind::put_value) {
    change.value_bytes = head.value_bytes;
    change.value = what.value;
  }
  if (one.carries) change.bytes = what.bytes;
  change.signal_change = head.change;
  change.signal = lower(what.actions);
  change.signal_value = what.signal_value;
  return change;
}

void fabric_engine::complete_if_done(fabric_operation& one) {
  const bool is_moved = !one.moves() || (one.carries && !one.is_staged) || one.issued == one.posted.what.bytes;
  if (!one.is_queued && !one.has_message && one.pending == 0 && is_moved) complete(one);
}

void fabric_engine::complete(fabric_operation& one) {
  network_queue& queue = *about_.queues[one.context];
  if (one.posted.head.counts) queue.add(queue.layout().counter(upper(one.posted.what.actions)), 1);
  queue.complete(one.posted.number, one.posted.head.peer);
  --connection_to(one).held.operations;
  operations_.erase(one.self);
}

// What goes out.

bool fabric_engine::issue() {
  bool any = give_ready();
  // Peers take turns, by fragments. While there is no room for the fragment whose turn it is, no other begins: else
  // smaller ones would take the room whenever a little is free. Who waits for the fabric or for a peer's bounce buffers
  // is passed over, as nobody else has what it waits for; so is a peer that has its share.
  for (std::size_t passed = 0; passed < active_.size() && !failed_;) {
    first_connection_ %= active_.size();
    connection& to = *active_[first_connection_];
    const bool waits =
        !to.ready.empty() || (!to.movers.empty() && to.movers.front()->peer_stages && to.inbound.free.empty());
    const bool begins = !waits && !to.movers.empty() && has_share(to);
    if (begins) {
      if (!has_room(to)) return any;
      begin_fragment(to);
      if (!to.ready.empty()) static_cast<void>(give_to_fabric(to));
    }
    any = any || begins;
    passed = begins ? 0 : passed + 1;
    ++first_connection_;
  }
  return any;
}

bool fabric_engine::give_ready() {
  bool any = false;
  for (std::size_t passed = 0; passed < active_.size() && !failed_;) {
    first_ready_ %= active_.size();
    connection& to = *active_[first_ready_];
    const bool taken = !to.ready.empty() && give_to_fabric(to);
    any = any || taken;
    passed = taken ? 0 : passed + 1;
    ++first_ready_;
  }
  return any;
}

std::uint64_t fabric_engine::bytes_of_next_fragment(const connection& to) const {
  const fabric_operation& one = *to.movers.front();
  std::uint64_t bytes = std::min(fragment_bytes_, one.posted.what.bytes - one.issued);
  if (one.is_staged) bytes = std::min<std::uint64_t>(bytes, copies_.own().buffer_bytes());
  if (one.peer_stages) bytes = std::min<std::uint64_t>(bytes, to.inbound.bytes);
  return bytes;
}

bool fabric_engine::has_share(const connection& to) const {
  // A peer that has none waits for its turn, see `has_room`.
  const auto share = [](std::uint64_t held, std::uint64_t left, std::uint64_t more) {
    return held == 0 || may_take(held, left, more);
  };
  const std::uint64_t bytes_left = max_bytes - std::min(fragments_.bytes(), max_bytes);
  return share(to.held.fragments, fragments_.free(), 1) &&
         share(to.held.bytes, bytes_left, bytes_of_next_fragment(to)) &&
         (!to.movers.front()->is_staged || share(to.held.bounce_buffers, copies_.own().free(), 1));
}

bool fabric_engine::has_room(const connection& to) const {
  if (fragments_.free() == 0 || (to.movers.front()->is_staged && !copies_.own().has_free())) return false;
  return fragments_.bytes() == 0 || fragments_.bytes() + bytes_of_next_fragment(to) <= max_bytes;
}

void fabric_engine::begin_fragment(connection& to) {
  fabric_operation& one = *to.movers.front();
  const std::size_t number = fragments_.add(one, bytes_of_next_fragment(to));
  fragment& next = fragments_[number];
  if (one.is_staged) next.own = copies_.own().take();
  if (one.peer_stages) next.inbound = to.inbound.take(number);
  ++to.held.fragments;
  to.held.bytes += next.bytes;
  to.held.bounce_buffers += next.own ? 1 : 0;
  one.progressed = clock::now();
  if (one.issued == one.posted.what.bytes) to.movers.pop_front();

  if (one.is_staged && (!one.gets() || is_own(to))) {
    begin_copy(number, fragment_stage::reading);
  } else if (one.gets() && one.peer_stages) {
    ask(number, message_kind::stage_out);
  } else {
    to.ready.push_back(number);
  }
}

bool fabric_engine::give_to_fabric(connection& to) {
  const std::size_t number = to.ready.front();
  fragment& next = fragments_[number];
  fabric_operation& one = *next.of;
  const auto peer = static_cast<int>(one.posted.head.peer);
  const remote_address there =
      next.inbound ? to.inbound.at(*next.inbound) : remote_address{one.remote.key, one.remote.address + next.offset};
  const std::span<char> here(next.own ? copies_.own().at(*next.own) : one.local + next.offset, next.bytes);
  const fabric_region& region = next.own ? copies_.own_region() : *one.region;
  const std::uint64_t token = make_token(token_kind::moved, index_, number);
  std::optional<std::uint32_t> name;
  if (one.write != payload_write::none) {
    if (!announce(to, number)) return false;
    name = write_name{static_cast<std::uint32_t>(at_.rank()), about_.number, static_cast<std::uint32_t>(*next.change)}
               .pack(at_.card_of(one.posted.head.peer).secret);
  }
  try {
    const bool taken = one.gets() ? at_.port()->read(peer, here, region, there, token)
                                  : at_.port()->write(peer, here, region, there, token, name);
    if (!taken) return false;
  } catch (const system_error& problem) {
    fail_in_fabric(one, problem.what());
    return false;
  }
  to.ready.pop_front();
  next.at = fragment_stage::moving;
  one.progressed = clock::now();
  ++one.out;
  return true;
}

bool fabric_engine::announce(connection& to, std::size_t number) {
  fragment& next = fragments_[number];
  if (next.change) return true;
  if (to.sent.is_full()) return false;
  fabric_operation& one = *next.of;
  const bool is_last = one.announced + next.bytes == one.posted.what.bytes;
  const auto message = is_last ? message_to_leave_with(one, !to.outgoing.empty()) : std::nullopt;
  fabric_message change = message.value_or(fabric_message{});
  change.kind = message_kind::change;
  change.context = one.context;
  change.sequence = to.sent.next();
  change.write = one.write;
  change.window = upper(one.posted.what.windows);
  change.offset = one.posted.what.remote + next.offset;
  change.bytes = next.bytes;
  change.slot = next.inbound.value_or(0);
  if (!send(static_cast<int>(one.posted.head.peer), change, &one) || failed_) return false;
  next.change = to.sent.next();
  to.sent.add({&one, message.has_value(), number});
  one.announced += next.bytes;
  one.progressed = clock::now();
  ++one.out;
  if (message) leave_send_queue(one);
  if (is_last) put_in_order(one);
  return true;
}

bool fabric_engine::is_done_by_peer(const fabric_operation& one) const {
  if (one.is_queued || one.has_message || one.announced == 0) return false;
  const auto awaited = [&](const fragment& each) { return each.of == &one && !each.is_acknowledged; };
  return one.announced == one.posted.what.bytes && std::none_of(fragments_.begin(), fragments_.end(), awaited);
}

bool fabric_engine::send_messages() {
  bool any = false;
  for (std::size_t i = 0; i < active_.size(); ++i) {  // what is sent to itself may activate others
    if (send_messages(static_cast<int>(rank_of(*active_[i])), *active_[i])) any = true;
  }
  return any;
}

void fabric_engine::drop_inactive() {
  std::erase_if(active_, [](connection* each) {
    each->is_active = each->has_work();
    return !each->is_active;
  });
}

bool fabric_engine::send_messages(int peer, connection& to) {
  bool any = false;
  if (is_own(to)) {
    for (; !failed_ && !to.outgoing.empty(); to.outgoing.pop_front(), any = true) {
      fabric_message& change = to.outgoing.front().message;
      if (to.sent.is_full()) return any;
      change.sequence = to.sent.next();
      change.sender = static_cast<std::uint32_t>(peer);
      ++to.outgoing.front().of->out;
      to.sent.add({to.outgoing.front().of});
      static_cast<void>(begin_next_change(to, change, {}));
    }
    return any;
  }
  if (to.again != clock::time_point{}) {
    if (clock::now() < to.again) return any;
    to.again = {};
  }
  while (!to.answers.empty()) {
    if (!send(peer, to.answers.front(), nullptr)) return any;
    to.answers.pop_front();
    any = true;
  }
  while (!failed_ && !to.has_left && !to.outgoing.empty()) {
    posted_message& next = to.outgoing.front();
    const bool changes = next.message.kind == message_kind::change;
    if (changes && to.sent.is_full()) break;  // the peer may wait for an acknowledgment
    if (changes) next.message.sequence = to.sent.next();
    if (!send(peer, next.message, next.of)) return any;
    next.of->progressed = clock::now();
    ++next.of->out;
    if (changes) {
      to.sent.add({next.of});
    } else if (next.message.kind == message_kind::ask_for_key) {
      to.windows[next.message.window].is_asked = true;
    } else {
      fragments_[*to.inbound.users[next.message.slot]].is_sent = true;
    }
    to.outgoing.pop_front();
    any = true;
  }
  if (!to.owes || to.acknowledging) return any;
  if (to.is_acknowledgment_due()) {
    fabric_message done;
    done.kind = message_kind::acknowledge;
    to.acknowledging = send(peer, done, nullptr);
    return any || to.acknowledging;  // no work while the fabric takes none
  }
  return true;  // there is something to do, soon
}

bool fabric_engine::send(int peer, const fabric_message& message, fabric_operation* of) {
  connection& to = connections_[static_cast<std::size_t>(peer)];
  const std::size_t kept = of != nullptr ? answer_buffers : 0;
  const std::size_t left = sends_.free() - std::min(sends_.free(), kept);
  if (!may_take(to.held.sends, left)) return false;
  const std::size_t slot = sends_.next();
  to.met = true;
  sent_message& sent = sends_[slot];
  sent = {message, peer, of};
  sent.message.secret = at_.card_of(static_cast<std::size_t>(peer)).secret;
  sent.message.device_comm = about_.number;
  sent.message.changes_done = to.received.done();
  sent.message.sender = static_cast<std::uint32_t>(at_.rank());
  const std::size_t carried = message.kind == message_kind::change ? of->carried.size() : 0;
  const std::span<std::byte> buffer = sends_.bytes(slot).first(sizeof sent.message + carried);
  std::memcpy(buffer.data(), &sent.message, sizeof sent.message);
  if (carried != 0) std::memcpy(buffer.data() + sizeof sent.message, of->carried.data(), carried);
  try {
    if (!at_.port()->send(peer, buffer, sends_.region(), make_token(token_kind::sent, index_, slot))) return false;
    sends_.take();
    ++to.held.sends;
    to.said_done = sent.message.changes_done;
    to.owes = false;
  } catch (const system_error& problem) {
    if (message.kind == message_kind::leave_heard) return true;  // which the peer does not wait for much longer
    if (of == nullptr) {                                         // it is owed to the peer all the same
      to.again = clock::now() + std::chrono::milliseconds(10);
      return false;
    }
    fail_in_fabric(*of, problem.what());
  }
  return true;
}

void fabric_engine::check_limits() {
  constexpr std::chrono::milliseconds often(10);
  const clock::time_point now = clock::now();
  const clock::duration since = now - checked_;
  if (since < often) return;
  const bool first = checked_ == clock::time_point{};
  checked_ = now;
  // Of a time in which this rank itself stood still, a stopped process perhaps, a quarter of the limit counts at most,
  // and peers' answers that wait in the fabric are looked for once more. A fabric whose calls take long, or a busy
  // machine, lets it stand still again and again, and must not keep the limits away.
  const bool again = std::exchange(stood_still_, !first && since > 10 * often);
  if (const clock::duration most = about_.limit / 4; !first && since > most) {
    for (connection& each : connections_) each.heard += since - most;
    for (fabric_operation& each : operations_) each.progressed += since - most;
  }
  if (stood_still_ && !again) return;
  const std::chrono::milliseconds alone = about_.limit + about_.limit / 2;
  for (const fabric_operation& each : operations_) {
    const connection& to = connection_to(each);
    const bool silent = now - std::max(each.progressed, to.heard) > about_.limit;
    const bool is_in_line = each.has_message || each.announced != 0;
    const clock::time_point progressed = is_in_line ? std::max(each.progressed, to.acknowledged_at) : each.progressed;
    const bool lost = each.out != 0 && now - progressed > alone;
    if (!silent && !lost) continue;
    const auto copies = [&](std::size_t number) { return fragments_[number].of == &each; };
    const std::string advice = " of the kernel timeout: see what that rank says, or allow more by DEVCOMM_TIMEOUT";
    const std::string peer = "rank " + std::to_string(each.posted.head.peer);
    if (to.has_left && is_done_by_peer(each)) {
      return fail(each, at_.name() + " has not said for " + std::to_string(about_.limit.count()) +
                            " ms that its source may be written again, though " + peer +
                            " has the data and has left: set DEVCOMM_GIN_PROVIDER to another provider");
    }
    if (is_own(to) || (each.out == 0 && std::any_of(copying_.begin(), copying_.end(), copies))) {
      return fail(each, "copies of this rank's device made no progress for " + std::to_string(about_.limit.count()) +
                            " ms, half of the kernel timeout: see what else runs on that device, or allow more by "
                            "DEVCOMM_TIMEOUT");
    }
    if (silent && !to.has_spoken) {
      return fail(each, peer + " has never answered, for " + std::to_string(about_.limit.count()) +
                            " ms, half of the kernel timeout: it may have destroyed its device communicator (let all "
                            "ranks pass a barrier on the host before that); see what it says, or allow more by "
                            "DEVCOMM_TIMEOUT");
    }
    if (silent) {
      return fail(each, peer + " has not answered for " + std::to_string(about_.limit.count()) + " ms, half" + advice);
    }
    return fail(each, peer + " has answered others, but not this one for " + std::to_string(alone.count()) +
                          " ms, three quarters" + advice);
  }
}

void fabric_engine::fail_in_fabric(const fabric_operation& one, const std::string& error) {
  const std::string peer = "rank " + std::to_string(one.posted.head.peer);
  fail(one, error + "; see what " + peer + " says, and whether the network between it and this host is up");
}

void fabric_engine::fail(const fabric_operation& one, const std::string& why) {
  if (failed_) return;
  failed_ = true;
  about_.fail(text_of_operation(at_.rank(), about_.first_context + one.context, one.posted.head) + ": " + why);
}

}  // namespace devcomm::host::detail
