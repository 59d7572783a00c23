#include "diagnostics/unreceived_steps.hpp"

#include <devcomm/channel/fifos.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace devcomm::host::detail {

std::optional<failure_record> find_unreceived_steps(backend& devices, int device, const device_comm& comm,
                                                    std::chrono::milliseconds limit) {
  const auto read = [&](auto* to, std::size_t count, std::uint64_t offset) {
    devices.read(device, to, comm.resources.local + offset, count * sizeof *to, limit);
  };
  std::uint64_t at = 0;
  read(&at, 1, offsetof(resource_header, fifos));
  while (at != 0) {
    channel::fifos_note note{};
    read(&note, 1, at);
    std::vector<std::uint32_t> taken(note.count);
    std::vector<channel::fifo_counts> counts(note.count);
    read(taken.data(), taken.size(), note.heads);
    read(counts.data(), counts.size(), note.counts);
    for (std::uint32_t i = 0; i < note.count; ++i) {
      if (counts[i].sent == taken[i]) continue;
      failure_record record{};
      record.outcome = status::mismatch;
      record.what = operation::fifo_send;
      record.index = record.peer_index = i;
      record.rank = comm.rank;
      record.peer = static_cast<std::int32_t>(counts[i].peers & 0xffffu) - 1;  // as `channel::fifo_peer_mark`
      record.block = failure_record::no_block;
      record.expected = counts[i].sent;
      record.seen = taken[i];
      return record;
    }
    at = note.next;
  }
  return std::nullopt;
}

}  // namespace devcomm::host::detail
