// Payload in memory that the fabric does not reach: pieces, their copies, and what peers ask for.
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

/// As much memory for peers' pieces as for this rank's own, whatever their number; but each peer has four, and none is
/// smaller than a page of messages.
void fabric_engine::divide_landing() {
  constexpr std::size_t min_pieces = 4;
  const backend_traits& shape = about_.staged.shape;
  memory_port& memory = *about_.staged.memory;
  own_pieces_ = std::make_unique<staging>(memory, about_.staged.device, shape);
  own_region_ = fabric_->add_buffers(
      std::as_writable_bytes(std::span(own_pieces_->at(0), shape.staged_pieces * shape.staged_bytes)));
  values_ = memory.allocate_host(about_.staged.device, links_.size() * max_unacknowledged * value_bytes());
  if (about_.staged.fabric_reaches) return;  // nothing lands
  const std::size_t peers = std::max<std::size_t>(links_.size() - 1, 1);
  const std::size_t share = shape.staged_pieces * shape.staged_bytes / peers;
  const std::size_t pieces = std::clamp(share / shape.staged_bytes, min_pieces, shape.staged_pieces);
  const std::size_t bytes = std::clamp<std::size_t>(share / pieces / 64 * 64, min_landing_bytes, shape.staged_bytes);
  landing_pieces_ = static_cast<std::uint32_t>(pieces);
  landing_bytes_ = static_cast<std::uint32_t>(bytes);
  const std::size_t landing = links_.size() * pieces * bytes;
  landing_ = memory.allocate_host(about_.staged.device, landing);
  landing_region_ = fabric_->add_memory(static_cast<char*>(landing_->data()), landing, {});
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

bool fabric_engine::is_moving(const flight& one) const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [&](const piece& each) { return each.of == &one && each.at == piece_stage::moving && !each.own; });
}

void fabric_engine::begin_copy(std::size_t number, piece_stage stage) {
  piece& what = pieces_[number];
  flight& one = *what.of;
  const gin::descriptor& asked = one.operation.what;
  // Of what a rank does to itself, both windows are here.
  const bool reads = stage == piece_stage::reading;
  const bool of_peer = (one.operation.head.kind == operation_kind::get) == reads;
  const std::uint32_t window = of_peer ? upper(asked.windows) : lower(asked.windows);
  const std::uint64_t offset = (of_peer ? asked.remote : asked.local) + what.offset;
  what.at = stage;
  what.copy = copy_window(window, offset, what.bytes, own_pieces_->at(*what.own), !reads);
  if (what.copy.found.why == refusal::none) {
    copying_.push_back(number);
  } else {
    fail_at_window(one, of_peer ? "rank " + std::to_string(about_.rank) : "this rank", !of_peer, what.copy.found);
    end(number);
  }
}

void fabric_engine::ask(std::size_t number, message_kind kind) {
  piece& what = pieces_[number];
  flight& one = *what.of;
  fabric_message message;
  message.kind = kind;
  message.sequence = what.serial;
  message.window = upper(one.operation.what.windows);
  message.offset = one.operation.what.remote + what.offset;
  message.bytes = what.bytes;
  message.slot = *what.landing;
  what.at = kind == message_kind::land ? piece_stage::asked_to_land : piece_stage::asked_to_lift;
  link_to(one).outgoing.push_back({message, &one});
}

void fabric_engine::advance(std::size_t number) {
  if (failed_) return end(number);
  piece& what = pieces_[number];
  flight& one = *what.of;
  const bool gets = one.operation.head.kind == operation_kind::get;
  one.progressed = clock::now();
  if (is_own(link_to(one))) link_to(one).heard = one.progressed;  // nobody else says that it goes on
  switch (what.at) {
    case piece_stage::reading:
      if (is_own(link_to(one))) return begin_copy(number, piece_stage::writing);
      if (one.carries) {
        std::memcpy(one.carried.data() + what.offset, own_pieces_->at(*what.own), what.bytes);
        return end(number);
      }
      [[fallthrough]];
    case piece_stage::asked_to_lift:
      what.at = piece_stage::ready;
      link_to(one).ready.push_back(number);
      return;
    case piece_stage::moving:
      if (what.change && !what.is_acknowledged) {
        what.at = piece_stage::unacknowledged;
        return;
      }
      if (what.change) return end(number);
      if (!gets && one.lands) return ask(number, message_kind::land);
      if (gets && one.is_staged) return begin_copy(number, piece_stage::writing);
      return end(number);
    case piece_stage::ready:
    case piece_stage::unacknowledged:
    case piece_stage::asked_to_land:
    case piece_stage::writing: return end(number);
  }
}

void fabric_engine::end(std::size_t number) {
  const piece what = std::exchange(pieces_[number], {});
  flight& one = *what.of;
  link& to = link_to(one);
  free_pieces_.push_back(number);
  bytes_in_flight_ -= what.bytes;
  --to.held.pieces;
  to.held.bytes -= what.bytes;
  to.held.own_pieces -= what.own ? 1 : 0;
  if (what.own) own_pieces_->give_back(*what.own);
  if (what.landing) {
    to.landing_users[*what.landing] = none;
    to.free_landing.push_back(*what.landing);
  }
  --one.pending;
  if (failed_ || one.pending != 0 || one.issued != one.operation.what.bytes) return;
  one.region = nullptr;
  arrived(one);
}

bool fabric_engine::handle_copies() {
  copies_->poll();
  bool any = !copying_.empty() || !landings_.empty();
  for (std::size_t i = 0; i < copying_.size();) {
    const std::size_t number = copying_[i];
    if (!is_done(pieces_[number].copy)) {
      ++i;
      continue;
    }
    copying_.erase(copying_.begin() + static_cast<std::ptrdiff_t>(i));
    pieces_[number].copy = {};
    advance(number);
  }
  for (link& each : links_) {
    any = any || (!each.begun.empty() && !each.begun.front().awaits_write);
    finish_changes(each);
  }
  for (auto each = landings_.begin(); each != landings_.end();) {
    const auto now = each++;
    if (!is_done(now->copy)) continue;
    fabric_message done;
    done.kind = message_kind::landed;
    done.sequence = now->asked.sequence;
    done.slot = now->asked.slot;
    send_answer(links_[now->asked.sender], done);
    landings_.erase(now);
  }
  return any;
}

void fabric_engine::handle_landing(link& from, const fabric_message& message) {
  const auto is_taken = [&](const landing_work& each) {
    return each.asked.sender == message.sender && each.asked.slot == message.slot;
  };
  if (message.slot >= landing_pieces_ || message.bytes == 0 || message.bytes > landing_bytes_ ||
      std::any_of(landings_.begin(), landings_.end(), is_taken)) {
    return drop("rank " + std::to_string(message.sender) + " uses a landing piece that it may not use");
  }
  char* const pinned = static_cast<char*>(landing_->data()) + landing_offset(message.sender, message.slot);
  const bool lands = message.kind == message_kind::land;
  landing_work next{message, copy_window(message.window, message.offset, message.bytes, pinned, lands)};
  if (next.copy.found.why == refusal::none) {
    landings_.push_back(std::move(next));
    return;
  }
  fabric_message no;
  no.kind = message_kind::landed;
  no.sequence = message.sequence;
  no.slot = message.slot;
  no.why = next.copy.found.why;
  no.bytes = next.copy.found.bytes;
  send_answer(from, no);
}

std::optional<std::size_t> fabric_engine::piece_of(const link& to, const fabric_message& message) const {
  if (message.slot >= to.landing_users.size()) return {};
  const std::size_t number = to.landing_users[message.slot];
  if (number == none || pieces_[number].serial != message.sequence) return {};
  if (!pieces_[number].is_sent) return {};
  return number;
}

void fabric_engine::handle_landed(link& from, const fabric_message& message) {
  const std::optional<std::size_t> number = piece_of(from, message);
  if (!number) return drop("rank " + std::to_string(message.sender) + " answers what it was not asked");
  flight& one = *pieces_[*number].of;
  if (message.why != refusal::none) {
    fail_at_window(one, "rank " + std::to_string(message.sender), false, {message.why, message.bytes, message.code});
  }
  pieces_[*number].is_sent = false;
  --one.out;
  advance(*number);
}

}  // namespace devcomm::host::detail
