#include "transport/window_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace devcomm::host::detail {

/// As much memory for peers' bounce buffers as for this rank's own, whatever their number; but each peer has four, and
/// none is smaller than a page of messages.
window_copies::window_copies(settings given, const fabric_endpoint& at) : at_(at), engine_(std::move(given.engine)) {
  if (!engine_) return;
  constexpr std::size_t min_buffers = 4;
  const backend_traits& shape = given.shape;
  own_ = std::make_unique<staging>(*given.memory, given.device, shape);
  values_ = given.memory->allocate_host(given.device, at_.ranks() * max_unacknowledged * value_bytes());
  if (at_.fabric_reaches_device()) return;  // no peer stages
  const std::size_t peers = std::max<std::size_t>(at_.ranks() - 1, 1);
  const std::size_t share = shape.bounce_buffer_count * shape.bounce_buffer_bytes / peers;
  const std::size_t buffers = std::clamp(share / shape.bounce_buffer_bytes, min_buffers, shape.bounce_buffer_count);
  const std::size_t bytes =
      std::clamp<std::size_t>(share / buffers / 64 * 64, min_inbound_bytes, shape.bounce_buffer_bytes);
  inbound_count_ = static_cast<std::uint32_t>(buffers);
  inbound_bytes_ = static_cast<std::uint32_t>(bytes);
  inbound_total_ = at_.ranks() * buffers * bytes;
  inbound_ = given.memory->allocate_host(given.device, inbound_total_);
}

void window_copies::attach(fabric& reached) {
  auto own = own_ ? reached.add_buffers(own_->memory()) : nullptr;
  if (inbound_) inbound_region_ = reached.add_memory(static_cast<char*>(inbound_->data()), inbound_total_, {});
  own_region_ = std::move(own);
}

void window_copies::end() {
  inbound_region_.reset();
  engine_.reset();
}

window_copy window_copies::begin(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, char* pinned,
                                 bool to_window) {
  window_copy made;
  made.found = with_own(at_.windows(), window, offset, bytes, [&](const window_table::entry& memory) {
    char* const at = memory.local + offset;
    if (!memory.on_device) {
      std::memcpy(to_window ? at : pinned, to_window ? pinned : at, bytes);
      return;
    }
    made.number = to_window ? engine_->begin_write(at, pinned, bytes) : engine_->begin_read(pinned, at, bytes);
    made.memory = window_table::hold(memory.holds);
  });
  return made;
}

bool window_copies::is_done(const window_copy& copy) const { return !copy.number || engine_->is_done(*copy.number); }

std::byte* window_copies::value_at(std::size_t rank, std::uint64_t sequence) const {
  if (!values_) return nullptr;
  const std::size_t place = rank * max_unacknowledged + sequence % max_unacknowledged;
  return static_cast<std::byte*>(values_->data()) + place * value_bytes();
}

std::size_t window_copies::value_bytes() const { return std::max(sizeof(std::uint64_t), at_.carried()); }

}  // namespace devcomm::host::detail
