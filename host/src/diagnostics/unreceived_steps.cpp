#include "diagnostics/unreceived_steps.hpp"

#include <devcomm/host/error.hpp>

#include <devcomm/channel/fifos.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

namespace devcomm::host::detail {
namespace {

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
                                   std::span<const int> lsa_ranks, const std::function<bool(int rank)>& has_departed,
                                   std::chrono::milliseconds limit) {
  const std::uint64_t all = comm.resources.bytes;
  const auto require = [](bool is_whole) {
    if (!is_whole) throw system_error("something has written over the resource window");
  };
  const auto read = [&](void* to, std::uint64_t bytes, std::uint64_t offset) {
    require(offset <= all && bytes <= all - offset);
    try {
      devices.read(device, to, comm.resources.local + offset, bytes, limit);
    } catch (const error&) {
      throw unreadable();
    }
  };
  const auto read_all = [&](auto& to, std::uint64_t offset) { read(to.data(), to.size() * sizeof to[0], offset); };
  /// Of a half of `fifo_counts::peers`; -1: there was none.
  const auto peer_of = [&](std::uint32_t mark) {
    for (int member = 0; member < comm.lsa_size; ++member) {
      const bool is_it = channel::fifo_peer_mark(comm.lsa().number(member)) == (mark & 0xffff);
      if (is_it) return lsa_ranks[static_cast<std::size_t>(member)];
    }
    return -1;
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
  std::uint64_t at = 0;
  read(&at, sizeof at, offsetof(resource_header, fifos));
  for (std::uint64_t notes = 0; at != 0; ++notes) {
    channel::fifos_note note{};
    require(notes < all / sizeof note);
    read(&note, sizeof note, at);
    at = note.next;
    if ((note.flags & channel::fifos_note::timed_out) != 0) continue;
    const std::uint64_t max_contracts = all / sizeof(channel::step_contract);
    require(note.slots <= max_contracts && std::uint64_t{note.count} * note.slots <= max_contracts);
    std::vector<std::uint32_t> taken(note.count);
    std::vector<channel::fifo_counts> counts(note.count);
    std::vector<channel::step_contract> contracts(std::size_t{note.count} * note.slots);
    read_all(taken, note.heads);
    read_all(counts, note.counts);
    read_all(contracts, note.contracts);
    for (std::uint32_t i = 0; i < note.count; ++i) {
      const std::uint32_t left =
          arrived_behind(counts[i].received, &contracts[std::size_t{i} * note.slots], note.slots);
      if (left != 0) return found(operation::fifo_receive, i, peer_of(counts[i].peers >> 16), left);
      if (counts[i].sent == taken[i]) continue;
      const int to = peer_of(counts[i].peers);
      if (to >= 0 && has_departed(to)) return found(operation::fifo_send, i, to, counts[i].sent - taken[i]);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<failure_record> find_unreceived_steps(backend& devices, int device, const device_comm& comm,
                                                    std::span<const int> lsa_ranks,
                                                    const std::function<bool(int rank)>& has_departed,
                                                    std::chrono::milliseconds limit) {
  try {
    return find(devices, device, comm, lsa_ranks, has_departed, limit);
  } catch (const unreadable&) {
    return std::nullopt;
  }
}

}  // namespace devcomm::host::detail
