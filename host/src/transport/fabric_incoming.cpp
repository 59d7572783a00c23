// What comes in over the fabric: completions of operations, and messages of peers.
#include <devcomm/host/error.hpp>

#include "transport/fabric_engine.hpp"
#include "transport/fabric_tokens.hpp"
#include "transport/operation_text.hpp"
#include "util/window_number.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace devcomm::host::detail {

using gin::signal_change;

void fabric_engine::handle_message(const fabric_message& message, std::span<const std::byte> carried) {
  connection& from = activate(connections_[message.sender]);
  from.met = true;
  from.has_spoken = true;
  from.heard = clock::now();
  if (!handle_acknowledgment(from, message)) return;
  switch (message.kind) {
    case message_kind::change: return handle_change(message, carried);
    case message_kind::acknowledge: return;
    case message_kind::refuse: return handle_refusal(from, message);
    case message_kind::ask_for_key: return answer(from, message.window);
    case message_kind::remote_key: return handle_remote_key(from, message);
    case message_kind::leave: return handle_shutdown_notice(from, message);
    case message_kind::leave_heard: from.leave_heard = from.leave_sent; return;
    case message_kind::stage_in:
    case message_kind::stage_out: return handle_staging(from, message);
    case message_kind::staged: return handle_staged(from, message);
  }
}

void fabric_engine::handle_change(const fabric_message& message, std::span<const std::byte> carried) {
  connection& from = connections_[message.sender];
  const auto drop_change = [&](const char* what) {
    drop("message " + std::to_string(message.sequence) + " of rank " + std::to_string(message.sender) + what);
  };
  if (from.received.came_before(message.sequence)) return drop_change(" came before");
  if (from.received.is_far_ahead(message.sequence)) return drop_change(" is far ahead of what it may send");
  if (from.refused) return;
  const bool peer_stages = message.write == payload_write::to_bounce_buffer;
  if (peer_stages && !copies_.has_inbound(message.slot, message.bytes)) {
    return drop_change(" uses a bounce buffer that it may not use");
  }
  if (message.sequence != from.received.expected())
    return from.received.keep({message, {carried.begin(), carried.end()}});
  bool goes_on = begin_next_change(from, message, carried);
  for (const received_change* next = nullptr; goes_on && (next = from.received.next_kept()) != nullptr;) {
    goes_on = begin_next_change(from, next->change, next->carried);
    if (goes_on) from.received.drop_kept(next->change.sequence);
  }
}

bool fabric_engine::begin_next_change(connection& from, const fabric_message& change,
                                      std::span<const std::byte> carried) {
  const own_memory found = begin_change(from, change, carried);
  if (found.why == refusal::none) {
    from.received.advance();
    finish_changes(from);
    return true;
  }
  refuse(from, change, found);
  return false;
}

void fabric_engine::refuse(connection& from, const fabric_message& change, const own_memory& found) {
  fabric_message no;
  no.kind = message_kind::refuse;
  no.sender = change.sender;
  no.sequence = change.sequence;
  no.why = found.why;
  no.bytes = found.bytes;
  from.refused = true;
  if (is_own(from)) {
    handle_refusal(from, no);
  } else {
    from.send_answer(no);
  }
}

void fabric_engine::refuse_writes_to(std::uint32_t window) {
  for (connection& each : connections_) {
    if (each.refused) continue;
    const auto waits = [&](const begun_change& what) {
      return what.awaits_write && what.change.write == payload_write::in_place && what.change.window == window;
    };
    const fifo<begun_change>& begun = each.received.begun();
    const auto first = std::find_if(begun.begin(), begun.end(), waits);
    if (first != begun.end()) refuse(activate(each), first->change, {refusal::no_window});
  }
}

own_memory fabric_engine::begin_change(connection& from, const fabric_message& change,
                                       std::span<const std::byte> carried) {
  if (change.context >= about_.queues.size()) return {refusal::no_signal};
  const gin::queue_layout& layout = about_.queues[change.context]->layout();
  if (change.signal_change != signal_change::none && change.signal >= layout.signals) return {refusal::no_signal};
  begun_change next{change, {{refusal::none}, {}, {}}};
  if (change.write != payload_write::none) {
    const own_memory found =
        with_own(at_.windows(), change.window, change.offset, change.bytes, [](const window_table::entry&) {});
    if (found.why != refusal::none) return found;
    next.awaits_write = !from.received.take_write(change.sequence);
    if (!next.awaits_write) {
      next.value = from_inbound(change);
      if (next.value.found.why != refusal::none) return next.value.found;
    }
    from.received.add(std::move(next));
    return {refusal::none};
  }
  const auto value = carried.empty() ? std::as_bytes(std::span(&change.value, 1)).first(change.value_bytes) : carried;
  if (!value.empty()) {
    std::byte* from_there = const_cast<std::byte*>(value.data());
    if (std::byte* const pinned = copies_.value_at(change.sender, change.sequence)) {
      std::memcpy(pinned, value.data(), value.size());
      from_there = pinned;
    }
    next.value = copies_.begin(change.window, change.offset, value.size(), reinterpret_cast<char*>(from_there), true);
    if (next.value.found.why != refusal::none) return next.value.found;
  }
  from.received.add(std::move(next));
  return {refusal::none};
}

window_copy fabric_engine::from_inbound(const fabric_message& change) {
  if (change.write != payload_write::to_bounce_buffer) return {{refusal::none}, {}, {}};
  char* const pinned = copies_.inbound_at(change.sender, change.slot);
  return copies_.begin(change.window, change.offset, change.bytes, pinned, true);
}

void fabric_engine::handle_arrival(std::uint32_t sender, std::uint32_t low) {
  const auto strange = [&](const char* why) {
    drop("a write that rank " + std::to_string(sender) + " may have made " + why);
  };
  connection& from = activate(connections_[sender]);
  const std::uint64_t sequence = from.received.number_of(low);
  if (from.received.is_far_ahead(sequence)) return strange("is far from what it may write");
  from.heard = clock::now();
  if (from.refused) return;
  if (sequence >= from.received.expected()) {
    if (!from.received.keep_write(sequence)) strange("came before");
    return;
  }
  begun_change& next = from.received[sequence];
  if (!next.awaits_write) return strange("came before");
  window_copy value = from_inbound(next.change);
  if (value.found.why != refusal::none) return refuse(from, next.change, value.found);
  next.awaits_write = false;
  next.value = std::move(value);
  finish_changes(from);
}

void fabric_engine::finish_changes(connection& from) {
  fifo<begun_change>& begun = from.received.begun();
  while (!begun.empty() && !begun.front().awaits_write && copies_.is_done(begun.front().value)) {
    const fabric_message change = begun.front().change;
    begun.pop_front();
    network_queue& queue = *about_.queues[change.context];
    const std::uint32_t word = queue.layout().signal(change.signal);
    if (change.signal_change == signal_change::add) queue.add(word, change.signal_value);
    if (change.signal_change == signal_change::set) queue.set(word, change.signal_value);
    if (is_own(from)) {
      finish_oldest(from);
      continue;
    }
    if (!from.owes) from.owes_since = clock::now();
    from.owes = !from.has_left;
  }
  if (!from.refused && !from.has_left) return;
  // What is behind a change that is not done is not done either, but windows may go when nothing moves there.
  for (begun_change& each : begun) {
    if (copies_.is_done(each.value)) each.value = {};
  }
}

void fabric_engine::finish_oldest(connection& to) {
  const sent_change done = to.sent.take_oldest();
  fabric_operation& one = *done.of;
  --one.out;
  one.progressed = to.acknowledged_at = clock::now();
  if (done.is_message) one.has_message = false;
  if (!done.fragment) return complete_if_done(one);
  fragment& brought = fragments_[*done.fragment];
  if (brought.of != &one) return;  // it has ended with the rank's operations
  brought.is_acknowledged = true;
  if (brought.at == fragment_stage::unacknowledged) end(*done.fragment);
}

bool fabric_engine::handle_acknowledgment(connection& from, const fabric_message& message) {
  if (message.changes_done > from.sent.next()) {
    drop("rank " + std::to_string(message.sender) + " acknowledges what it was not sent");
    return false;
  }
  // Messages may overtake each other.
  while (from.sent.oldest() < message.changes_done) {
    finish_oldest(from);
  }
  return true;
}

void fabric_engine::handle_refusal(connection& from, const fabric_message& message) {
  if (!from.sent.has(message.sequence)) {
    return drop("rank " + std::to_string(message.sender) + " refuses what it was not sent");
  }
  const fabric_operation& one = *from.sent[message.sequence].of;
  const std::string whose = "rank " + std::to_string(message.sender);
  if (message.why == refusal::no_signal) {
    return fail(
        one,
        whose +
            " has no such context or signal: create the device communicator of each rank with the same gin::contexts");
  }
  fail_at_window(one, whose, false, {message.why, message.bytes, message.code});
}

void fabric_engine::answer(connection& to, std::uint32_t window) {
  fabric_message where;
  where.kind = message_kind::remote_key;
  where.window = window;
  try {
    const own_memory found = with_own(at_.windows(), window, 0, 0, [&](const window_table::entry& memory) {
      const bool names = at_.names_writes_to(about_.number);
      if (at_.stages(memory)) {
        if (names) where.write = payload_write::to_bounce_buffer;
        const remote_address first = copies_.inbound_of(rank_of(to));
        where.key = first.key;
        where.base = first.address;
        where.buffers = copies_.inbound_count();
        where.buffer_bytes = copies_.inbound_bytes();
        return;
      }
      // For a device's memory the fabric reports when it is written, and not when a notified host may signal that.
      if (names && !memory.on_device) where.write = payload_write::in_place;
      const fabric_region& region = at_.region_of(window, memory);
      where.key = region.key();
      where.base = region.base();
    });
    where.why = found.why;
    where.bytes = found.bytes;
  } catch (const registration_error& problem) {
    where.why = refusal::not_registered;
    where.code = problem.code();
    at_.report("rank " + std::to_string(rank_of(to)) + " is refused window " + std::to_string(window_number(window)) +
               ": " + problem.what());
  }
  to.send_answer(where);
}

void fabric_engine::handle_remote_key(connection& from, const fabric_message& message) {
  const auto asked = from.windows.find(message.window);
  if (asked == from.windows.end() || !asked->second.is_asked || asked->second.is_known) {
    return drop("rank " + std::to_string(message.sender) + " sends the key of a window, and was not asked for it");
  }
  remote_window& place = asked->second;
  place.peer_stages = message.buffers != 0;
  place.write = message.write;
  if (place.write == (place.peer_stages ? payload_write::in_place : payload_write::to_bounce_buffer)) {
    return drop("rank " + std::to_string(message.sender) + " sends the key of a window that cannot be written");
  }
  if (place.peer_stages && !from.inbound.are_known()) {
    constexpr std::uint32_t max_buffers = 1 << 16;
    if (message.buffers > max_buffers || message.buffer_bytes == 0) {
      return drop("rank " + std::to_string(message.sender) + " sends bounce buffers of an impossible size");
    }
    from.inbound = {{message.key, message.base}, message.buffer_bytes};
    from.inbound.users.resize(message.buffers);
    for (std::uint32_t i = message.buffers; i > 0; --i) from.inbound.free.push_back(i - 1);
  }
  place.is_known = true;
  place.why = message.why;
  place.place = {message.key, message.base};
  place.bytes = message.bytes;
  place.code = message.code;
  for (fabric_operation* const each : std::exchange(place.waiting, {})) {
    if (!failed_) begin_to_move(*each, place);
  }
}

void fabric_engine::handle_shutdown_notice(connection& from, const fabric_message& message) {
  if (!std::exchange(from.has_left, true) && about_.departed) about_.departed(static_cast<int>(message.sender));
  from.owes = false;  // it waits for nothing any more but that this is heard
  from.again = {};
  const auto is_needless = [](const fabric_message& each) { return each.kind != message_kind::leave; };
  from.answers.erase(std::remove_if(from.answers.begin(), from.answers.end(), is_needless), from.answers.end());
  if (!from.leave_sent) {
    fabric_message heard;
    heard.kind = message_kind::leave_heard;
    from.answers.push_back(heard);
  }
  const auto is_open = [&](const fabric_operation& each) {
    return each.posted.head.peer == message.sender && !is_done_by_peer(each);
  };
  const auto open = std::find_if(operations_.begin(), operations_.end(), is_open);
  if (open != operations_.end()) fail_because_it_left(*open);
}

void fabric_engine::handle_sent(std::size_t slot, const std::string& error) {
  const sent_message sent = sends_[slot];
  sends_.give_back(slot);
  const bool acknowledges = sent.message.kind == message_kind::acknowledge;
  connection& to = activate(connections_[static_cast<std::size_t>(sent.peer)]);
  --to.held.sends;
  if (acknowledges) to.acknowledging = false;
  if (error.empty()) return;
  const bool leaves = sent.message.kind == message_kind::leave;
  if (leaves) {
    to.owes = false;          // the last that this rank has to say
  } else if (!to.has_left) {  // what it said of the peer's changes may be lost
    to.said_done = 0;
    to.owes = to.received.done() != 0;
    to.owes_since = {};
  }
  if (sent.of == nullptr) {
    // A peer that has left needs no answer, and one that is gone ends its own operations; another one waits for it.
    if (leaves) to.leave_heard = true;  // whoever may have
    if (to.has_left || leaves) return;
    to.again = clock::now() + std::chrono::milliseconds(10);
    if (!acknowledges) to.answers.push_back(sent.message);
    return;
  }
  // What the fabric does not know may have been done all the same.
  bool open = false;
  switch (sent.message.kind) {
    case message_kind::ask_for_key: open = !to.windows[sent.message.window].is_known; break;
    case message_kind::stage_in:
    case message_kind::stage_out: open = fragment_of(to, sent.message).has_value(); break;
    default: open = sent.message.sequence >= to.sent.oldest();
  }
  if (open) fail_in_fabric(*sent.of, error);
}

void fabric_engine::handle_moved(std::size_t slot, const std::string& error) {
  fabric_operation& one = *fragments_[slot].of;
  connection_to(one).heard = clock::now();
  // What the peer has acknowledged is there.
  if (!error.empty() && !fragments_[slot].is_acknowledged) fail_in_fabric(one, error);
  --one.out;
  advance(slot);
}

}  // namespace devcomm::host::detail
