#include "diagnostics/unreceived_steps.hpp"

#include <devcomm/host/error.hpp>

#include <devcomm/channel/fifos.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// Of a half of `fifo_counts::peers`, see `channel::fifo_peer_mark`; -1: there was none.
int peer_of(std::uint32_t mark) { return static_cast<int>(mark & 0xffff) - 1; }

/// Steps that have arrived behind `received`; `contracts` are those of the FIFO's slots.
std::uint32_t arrived_behind(std::uint32_t received, const channel::step_contract* contracts, std::uint32_t slots) {
  std::uint32_t steps = 0;
  const auto has_arrived = [&](std::uint32_t step) {
    return contracts[step & (slots - 1)].step == std::uint64_t{step} + 1;
  };
  while (steps < slots && has_arrived(received + steps)) ++steps;
  return steps;
}

/// The device is busy or has failed, or the program ends and the driver is gone: all of that is reported elsewhere.
struct unreadable : std::exception {};

std::optional<failure_record> find(backend& devices, int device, const device_comm& comm,
                                   const std::function<bool(int rank)>& has_departed, std::chrono::milliseconds limit) {
  const std::uint64_t all = comm.resources.bytes;
  const auto require = [](bool is_whole) {
    if (!is_whole) throw system_error("something has written over the resource window");
  };
  const auto read = [&](auto& to, std::uint64_t offset) {
    const std::uint64_t bytes = to.size() * sizeof to[0];
    require(offset <= all && bytes <= all - offset);
    try {
      devices.read(device, to.data(), comm.resources.local + offset, bytes, limit);
    } catch (const error&) {
      throw unreadable();
    }
  };
  const auto found = [&](operation what, std::uint32_t index, int peer, std::uint32_t steps) {
    failure_record record{};
    record.outcome = status::mismatch;
    record.what = what;
    record.index = record.peer_index = index;
    record.rank = comm.rank;
    record.peer = peer;
    record.block = failure_record::no_block;
    record.expected = steps;
    return record;
  };
  std::vector<std::uint64_t> at(1);
  read(at, offsetof(resource_header, fifos));
  for (std::uint64_t notes = 0; at[0] != 0; ++notes) {
    require(notes < all / sizeof(channel::fifos_note));
    std::vector<channel::fifos_note> noted(1);
    read(noted, at[0]);
    const channel::fifos_note& note = noted[0];
    require(note.count <= all && note.slots <= all / sizeof(channel::step_contract) &&
            std::uint64_t{note.count} * note.slots <= all / sizeof(channel::step_contract));
    std::vector<std::uint32_t> taken(note.count);
    std::vector<channel::fifo_counts> counts(note.count);
    std::vector<channel::step_contract> contracts(std::size_t{note.count} * note.slots);
    read(taken, note.heads);
    read(counts, note.counts);
    read(contracts, note.contracts);
    const bool optional = (note.flags & channel::fifos_note::timed_out) != 0;
    for (std::uint32_t i = 0; i < note.count && !optional; ++i) {
      const std::uint32_t left =
          arrived_behind(counts[i].received, &contracts[std::size_t{i} * note.slots], note.slots);
      if (left != 0) return found(operation::fifo_receive, i, peer_of(counts[i].peers >> 16), left);
      const int to = peer_of(counts[i].peers);
      if (counts[i].sent != taken[i] && to >= 0 && has_departed(to))
        return found(operation::fifo_send, i, to, counts[i].sent - taken[i]);
    }
    at[0] = note.next;
  }
  return std::nullopt;
}

}  // namespace

std::optional<failure_record> find_unreceived_steps(backend& devices, int device, const device_comm& comm,
                                                    const std::function<bool(int rank)>& has_departed,
                                                    std::chrono::milliseconds limit) {
  try {
    return find(devices, device, comm, has_departed, limit);
  } catch (const unreadable&) {
    return std::nullopt;
  }
}

}  // namespace devcomm::host::detail
