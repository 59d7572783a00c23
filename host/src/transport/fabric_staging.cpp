// Payload in memory that the fabric does not reach: fragments, their copies, and what peers ask for.
#include "transport/fabric_engine.hpp"
#include "transport/fabric_tokens.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;

}  // namespace

/// As much memory for peers' bounce buffers as for this rank's own, whatever their number; but each peer has four, and
/// none is smaller than a page of messages.
void fabric_engine::divide_bounce_buffers() {
  constexpr std::size_t min_buffers = 4;
  const backend_traits& shape = about_.staged.shape;
  memory_port& memory = *about_.staged.memory;
  bounce_buffers_ = std::make_unique<staging>(memory, about_.staged.device, shape);
  values_ = memory.allocate_host(about_.staged.device, links_.size() * max_unacknowledged * value_bytes());
  if (at_.fabric_reaches_device()) return;  // no peer stages
  const std::size_t peers = std::max<std::size_t>(links_.size() - 1, 1);
  const std::size_t share = shape.bounce_buffer_count * shape.bounce_buffer_bytes / peers;
  const std::size_t buffers = std::clamp(share / shape.bounce_buffer_bytes, min_buffers, shape.bounce_buffer_count);
  const std::size_t bytes =
      std::clamp<std::size_t>(share / buffers / 64 * 64, min_inbound_bytes, shape.bounce_buffer_bytes);
  inbound_count_ = static_cast<std::uint32_t>(buffers);
  inbound_bytes_ = static_cast<std::uint32_t>(bytes);
  inbound_total_ = links_.size() * buffers * bytes;
  inbound_ = memory.allocate_host(about_.staged.device, inbound_total_);
}

fabric_engine::window_copy fabric_engine::copy_window(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes,
                                                      char* pinned, bool to_window) {
  window_copy made;
  made.found = with_own(window, offset, bytes, [&](const window_table::entry& memory) {
    char* const at = memory.local + offset;
    if (!memory.on_device) {
      std::memcpy(to_window ? at : pinned, to_window ? pinned : at, bytes);
      return;
    }
    made.number = to_window ? copies_->begin_write(at, pinned, bytes) : copies_->begin_read(pinned, at, bytes);
    made.memory = window_table::hold(memory.holds);
  });
  return made;
}

bool fabric_engine::is_done(const window_copy& copy) const { return !copy.number || copies_->is_done(*copy.number); }

bool fabric_engine::is_moving(const operation& one) const {
  return std::any_of(fragments_.begin(), fragments_.end(), [&](const fragment& each) {
    return each.of == &one && each.at == fragment_stage::moving && !each.own;
  });
}

void fabric_engine::begin_copy(std::size_t number, fragment_stage stage) {
  fragment& what = fragments_[number];
  operation& one = *what.of;
  const gin::descriptor& asked = one.posted.what;
  // Of what a rank does to itself, both windows are here.
  const bool reads = stage == fragment_stage::reading;
  const bool of_peer = (one.posted.head.kind == operation_kind::get) == reads;
  const std::uint32_t window = of_peer ? upper(asked.windows) : lower(asked.windows);
  const std::uint64_t offset = (of_peer ? asked.remote : asked.local) + what.offset;
  what.at = stage;
  what.copy = copy_window(window, offset, what.bytes, bounce_buffers_->at(*what.own), !reads);
  if (what.copy.found.why == refusal::none) {
    copying_.push_back(number);
  } else {
    fail_at_window(one, of_peer ? "rank " + std::to_string(at_.rank()) : "this rank", !of_peer, what.copy.found);
    end(number);
  }
}

void fabric_engine::ask(std::size_t number, message_kind kind) {
  fragment& what = fragments_[number];
  operation& one = *what.of;
  fabric_message message;
  message.kind = kind;
  message.sequence = what.serial;
  message.window = upper(one.posted.what.windows);
  message.offset = one.posted.what.remote + what.offset;
  message.bytes = what.bytes;
  message.slot = *what.inbound;
  what.at = kind == message_kind::stage_in ? fragment_stage::asked_to_stage_in : fragment_stage::asked_to_stage_out;
  link_to(one).outgoing.push_back({message, &one});
}

void fabric_engine::advance(std::size_t number) {
  if (failed_) return end(number);
  fragment& what = fragments_[number];
  operation& one = *what.of;
  const bool gets = one.posted.head.kind == operation_kind::get;
  one.progressed = clock::now();
  if (is_own(link_to(one))) link_to(one).heard = one.progressed;  // nobody else says that it goes on
  switch (what.at) {
    case fragment_stage::reading:
      if (is_own(link_to(one))) return begin_copy(number, fragment_stage::writing);
      if (one.carries) {
        std::memcpy(one.carried.data() + what.offset, bounce_buffers_->at(*what.own), what.bytes);
        return end(number);
      }
      [[fallthrough]];
    case fragment_stage::asked_to_stage_out:
      what.at = fragment_stage::ready;
      link_to(one).ready.push_back(number);
      return;
    case fragment_stage::moving:
      if (what.change && !what.is_acknowledged) {
        what.at = fragment_stage::unacknowledged;
        return;
      }
      if (what.change) return end(number);
      if (!gets && one.peer_stages) return ask(number, message_kind::stage_in);
      if (gets && one.is_staged) return begin_copy(number, fragment_stage::writing);
      return end(number);
    case fragment_stage::ready:
    case fragment_stage::unacknowledged:
    case fragment_stage::asked_to_stage_in:
    case fragment_stage::writing: return end(number);
  }
}

void fabric_engine::end(std::size_t number) {
  const fragment what = std::exchange(fragments_[number], {});
  operation& one = *what.of;
  link& to = link_to(one);
  free_fragments_.push_back(number);
  bytes_in_flight_ -= what.bytes;
  --to.held.fragments;
  to.held.bytes -= what.bytes;
  to.held.bounce_buffers -= what.own ? 1 : 0;
  if (what.own) bounce_buffers_->give_back(*what.own);
  if (what.inbound) {
    to.inbound_users[*what.inbound] = none;
    to.free_inbound.push_back(*what.inbound);
  }
  --one.pending;
  if (failed_ || one.pending != 0 || one.issued != one.posted.what.bytes) return;
  one.region = nullptr;
  arrived(one);
}

bool fabric_engine::handle_copies() {
  copies_->poll();
  bool any = !copying_.empty() || !staging_work_.empty();
  for (std::size_t i = 0; i < copying_.size();) {
    const std::size_t number = copying_[i];
    if (!is_done(fragments_[number].copy)) {
      ++i;
      continue;
    }
    copying_.erase(copying_.begin() + static_cast<std::ptrdiff_t>(i));
    fragments_[number].copy = {};
    advance(number);
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    link& each = *active_[i];
    any = any || (!each.begun.empty() && !each.begun.front().awaits_write);
    finish_changes(each);
  }
  for (auto each = staging_work_.begin(); each != staging_work_.end();) {
    const auto now = each++;
    if (!is_done(now->copy)) continue;
    fabric_message done;
    done.kind = message_kind::staged;
    done.sequence = now->asked.sequence;
    done.slot = now->asked.slot;
    send_answer(activate(links_[now->asked.sender]), done);
    staging_work_.erase(now);
  }
  return any;
}

void fabric_engine::handle_staging(link& from, const fabric_message& message) {
  const auto is_taken = [&](const staging_work& each) {
    return each.asked.sender == message.sender && each.asked.slot == message.slot;
  };
  if (message.slot >= inbound_count_ || message.bytes == 0 || message.bytes > inbound_bytes_ ||
      std::any_of(staging_work_.begin(), staging_work_.end(), is_taken)) {
    return drop("rank " + std::to_string(message.sender) + " uses a bounce buffer that it may not use");
  }
  char* const pinned = static_cast<char*>(inbound_->data()) + inbound_offset(message.sender, message.slot);
  const bool peer_stages = message.kind == message_kind::stage_in;
  staging_work next{message, copy_window(message.window, message.offset, message.bytes, pinned, peer_stages)};
  if (next.copy.found.why == refusal::none) {
    staging_work_.push_back(std::move(next));
    return;
  }
  fabric_message no;
  no.kind = message_kind::staged;
  no.sequence = message.sequence;
  no.slot = message.slot;
  no.why = next.copy.found.why;
  no.bytes = next.copy.found.bytes;
  send_answer(from, no);
}

std::optional<std::size_t> fabric_engine::fragment_of(const link& to, const fabric_message& message) const {
  if (message.slot >= to.inbound_users.size()) return {};
  const std::size_t number = to.inbound_users[message.slot];
  if (number == none || fragments_[number].serial != message.sequence) return {};
  if (!fragments_[number].is_sent) return {};
  return number;
}

void fabric_engine::handle_staged(link& from, const fabric_message& message) {
  const std::optional<std::size_t> number = fragment_of(from, message);
  if (!number) return drop("rank " + std::to_string(message.sender) + " answers what it was not asked");
  operation& one = *fragments_[*number].of;
  if (message.why != refusal::none) {
    fail_at_window(one, "rank " + std::to_string(message.sender), false, {message.why, message.bytes, message.code});
  }
  fragments_[*number].is_sent = false;
  --one.out;
  advance(*number);
}

}  // namespace devcomm::host::detail
