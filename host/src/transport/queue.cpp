#include "transport/queue.hpp"

#include <cstring>

namespace devcomm::host::detail {

network_queue::network_queue(memory_port& memory, network_port& words, int device, const network_request& asked)
    : port_(words),
      layout_{asked.peers, asked.signals, asked.counters},
      depth_(asked.depth),
      memory_(memory.allocate_host(device, bytes())),
      ring_(static_cast<gin::descriptor*>(memory_->data())),
      words_(reinterpret_cast<std::uint64_t*>(ring_ + depth_)),
      of_peer_(asked.peers) {}

gin::context_record network_queue::record() const {
  gin::context_record made{};
  made.ring = ring_;
  made.words = words_;
  return made;
}

bool network_queue::has_next() const {
  const gin::descriptor* const next = ring_ + (all_.next & (depth_ - 1));
  const std::uint64_t lap = gin::descriptor::lap(all_.next, depth_) ? 1 : 0;
  const auto is_there = [&](const std::uint64_t& word) { return (port_.load(&word) & 1) == lap; };
  return is_there(next->head) && is_there(next->local) && is_there(next->remote) && is_there(next->windows) &&
         is_there(next->bytes) && is_there(next->value) && is_there(next->signal_value) && is_there(next->actions);
}

std::uint32_t network_queue::next_peer() const {
  return gin::descriptor_head::unpack(port_.load(&ring_[all_.next & (depth_ - 1)].head)).peer;
}

posted_operation network_queue::take() {
  posted_operation taken{};
  taken.number = all_.next;
  taken.what = port_.take(ring_ + (taken.number & (depth_ - 1))).unpacked();
  taken.head = gin::descriptor_head::unpack(taken.what.head);
  all_.numbers.insert(taken.number);
  all_.next = taken.number + 1;
  if (taken.head.peer < of_peer_.size()) {
    outstanding& theirs = of_peer_[taken.head.peer];
    theirs.numbers.insert(taken.number);
    theirs.next = taken.number + 1;
  }
  set(layout_.consumed(), all_.next);
  return taken;
}

void network_queue::complete(std::uint64_t number, std::uint32_t peer) {
  outstanding& theirs = of_peer_[peer];
  theirs.numbers.erase(number);
  set(layout_.done_with(peer), theirs.done());
  all_.numbers.erase(number);
  set(layout_.done(), all_.done());
}

restore_state network_queue::keep() {
  const char* const now = reinterpret_cast<const char*>(ring_);
  return [this, kept = std::vector<char>(now, now + bytes()), all = all_, of_peer = of_peer_] {
    std::memcpy(ring_, kept.data(), kept.size());
    all_ = all;
    of_peer_ = of_peer;
  };
}

}  // namespace devcomm::host::detail
