// Payload in memory that the fabric does not reach: fragments, their copies, and what peers ask for.
#include "transport/fabric_engine.hpp"
#include "transport/fabric_tokens.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace devcomm::host::detail {
bool fabric_engine::is_moving(const fabric_operation& one) const {
  return std::any_of(fragments_.begin(), fragments_.end(), [&](const fragment& each) {
    return each.of == &one && each.at == fragment_stage::moving && !each.own;
  });
}

void fabric_engine::begin_copy(std::size_t number, fragment_stage stage) {
  fragment& what = fragments_[number];
  fabric_operation& one = *what.of;
  const gin::descriptor& asked = one.posted.what;
  // Of what a rank does to itself, both windows are here.
  const bool reads = stage == fragment_stage::reading;
  const bool of_peer = one.gets() == reads;
  const std::uint32_t window = of_peer ? upper(asked.windows) : lower(asked.windows);
  const std::uint64_t offset = (of_peer ? asked.remote : asked.local) + what.offset;
  what.at = stage;
  what.copy = copies_.begin(window, offset, what.bytes, copies_.own().at(*what.own), !reads);
  if (what.copy.found.why == refusal::none) {
    copying_.push_back(number);
  } else {
    fail_at_window(one, of_peer ? "rank " + std::to_string(at_.rank()) : "this rank", !of_peer, what.copy.found);
    end(number);
  }
}

void fabric_engine::ask(std::size_t number, message_kind kind) {
  fragment& what = fragments_[number];
  fabric_operation& one = *what.of;
  fabric_message message;
  message.kind = kind;
  message.sequence = what.serial;
  message.window = upper(one.posted.what.windows);
  message.offset = one.posted.what.remote + what.offset;
  message.bytes = what.bytes;
  message.slot = *what.inbound;
  what.at = kind == message_kind::stage_in ? fragment_stage::asked_to_stage_in : fragment_stage::asked_to_stage_out;
  connection_to(one).outgoing.push_back({message, &one});
}

void fabric_engine::advance(std::size_t number) {
  if (failed_) return end(number);
  fragment& what = fragments_[number];
  fabric_operation& one = *what.of;
  one.progressed = clock::now();
  if (is_own(connection_to(one))) connection_to(one).heard = one.progressed;  // nobody else says that it goes on
  switch (what.at) {
    case fragment_stage::reading:
      if (is_own(connection_to(one))) return begin_copy(number, fragment_stage::writing);
      if (one.carries) {
        std::memcpy(one.carried.data() + what.offset, copies_.own().at(*what.own), what.bytes);
        return end(number);
      }
      [[fallthrough]];
    case fragment_stage::asked_to_stage_out:
      what.at = fragment_stage::ready;
      connection_to(one).ready.push_back(number);
      return;
    case fragment_stage::moving:
      if (what.change && !what.is_acknowledged) {
        what.at = fragment_stage::unacknowledged;
        return;
      }
      if (what.change) return end(number);
      if (!one.gets() && one.peer_stages) return ask(number, message_kind::stage_in);
      if (one.gets() && one.is_staged) return begin_copy(number, fragment_stage::writing);
      return end(number);
    case fragment_stage::ready:
    case fragment_stage::unacknowledged:
    case fragment_stage::asked_to_stage_in:
    case fragment_stage::writing: return end(number);
  }
}

void fabric_engine::end(std::size_t number) {
  const fragment what = fragments_.remove(number);
  fabric_operation& one = *what.of;
  connection& to = connection_to(one);
  --to.held.fragments;
  to.held.bytes -= what.bytes;
  to.held.bounce_buffers -= what.own ? 1 : 0;
  if (what.own) copies_.own().give_back(*what.own);
  if (what.inbound) to.inbound.give_back(*what.inbound);
  if (failed_ || one.pending != 0 || one.issued != one.posted.what.bytes) return;
  one.region = nullptr;
  arrived(one);
}

bool fabric_engine::handle_copies() {
  copies_.poll();
  bool any = !copying_.empty() || !staging_work_.empty();
  for (std::size_t i = 0; i < copying_.size();) {
    const std::size_t number = copying_[i];
    if (!copies_.is_done(fragments_[number].copy)) {
      ++i;
      continue;
    }
    copying_.erase(copying_.begin() + static_cast<std::ptrdiff_t>(i));
    fragments_[number].copy = {};
    advance(number);
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    connection& each = *active_[i];
    const fifo<begun_change>& begun = each.received.begun();
    any = any || (!begun.empty() && !begun.front().awaits_write);
    finish_changes(each);
  }
  for (auto each = staging_work_.begin(); each != staging_work_.end();) {
    const auto now = each++;
    if (!copies_.is_done(now->copy)) continue;
    fabric_message done;
    done.kind = message_kind::staged;
    done.sequence = now->asked.sequence;
    done.slot = now->asked.slot;
    activate(connections_[now->asked.sender]).send_answer(done);
    staging_work_.erase(now);
  }
  return any;
}

void fabric_engine::handle_staging(connection& from, const fabric_message& message) {
  const auto is_taken = [&](const staging_work& each) {
    return each.asked.sender == message.sender && each.asked.slot == message.slot;
  };
  if (message.bytes == 0 || !copies_.has_inbound(message.slot, message.bytes) ||
      std::any_of(staging_work_.begin(), staging_work_.end(), is_taken)) {
    return drop("rank " + std::to_string(message.sender) + " uses a bounce buffer that it may not use");
  }
  char* const pinned = copies_.inbound_at(message.sender, message.slot);
  const bool peer_stages = message.kind == message_kind::stage_in;
  staging_work next{message, copies_.begin(message.window, message.offset, message.bytes, pinned, peer_stages)};
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
  from.send_answer(no);
}

std::optional<std::size_t> fabric_engine::fragment_of(const connection& to, const fabric_message& message) const {
  if (message.slot >= to.inbound.users.size() || !to.inbound.users[message.slot]) return {};
  const std::size_t number = *to.inbound.users[message.slot];
  if (fragments_[number].serial != message.sequence) return {};
  if (!fragments_[number].is_sent) return {};
  return number;
}

void fabric_engine::handle_staged(connection& from, const fabric_message& message) {
  const std::optional<std::size_t> number = fragment_of(from, message);
  if (!number) return drop("rank " + std::to_string(message.sender) + " answers what it was not asked");
  fabric_operation& one = *fragments_[*number].of;
  if (message.why != refusal::none) {
    fail_at_window(one, "rank " + std::to_string(message.sender), false, {message.why, message.bytes, message.code});
  }
  fragments_[*number].is_sent = false;
  --one.out;
  advance(*number);
}

}  // namespace devcomm::host::detail
