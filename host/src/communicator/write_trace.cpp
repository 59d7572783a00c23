#include "communicator/write_trace.hpp"
#include "communicator/device_communicator_state.hpp"
#include "communicator/trace_parts.hpp"
#include "diagnostics/trace_data.hpp"
#include "rank/rank_context.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

void write_file(const std::string& path, const std::string& text) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  errno = 0;
  std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "w"), close);
  bool written = file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (file) written = std::fclose(file.release()) == 0 && written;
  if (!written) throw system_error("the trace cannot be written to " + path + ": " + std::strerror(errno));
}

}  // namespace

void write_trace(rank_context& context, const std::string& call, const device_comm& comm, const trace_rings& room,
                 const std::string& path) {
  const auto bytes = static_cast<std::size_t>(room.bytes());
  const auto read = [&](std::span<std::byte> mine) {
    if (room.spans == 0) {
      throw invalid_argument(
          "this device communicator has no room for a trace; ask for it by requirements().with(tracing{...})");
    }
    context.devices.read(context.device, mine.data(), comm.resources.local + room.offset, bytes,
                         context.agree.limit_of_work());
  };
  std::vector<rank_trace> traces;
  bring_to_first_rank(context, call, bytes, read, [&](int rank, std::span<const std::byte> part) {
    traces.push_back(read_trace(rank, room, part));
  });
  context.agree.together(call, [&] {
    if (context.rank() != 0) return;
    const bool empty = std::all_of(traces.begin(), traces.end(),
                                   [](const rank_trace& each) { return each.rings.empty() && each.unplaced == 0; });
    if (empty) throw invalid_argument("no span was recorded; compile the kernels with -DDEVCOMM_TRACE=1");
    const bool one_clock = context.devices.traits().one_clock && context.local_ranks.size() == traces.size();
    const auto offsets = one_clock ? std::vector<clock_offset>(traces.size()) : align_clocks(traces);
    write_file(path, trace_json(traces, offsets, context.properties.backend));
  });
}

void clear_trace(rank_context& context, const std::string& call, const device_comm& comm, const trace_rings& room) {
  context.agree.together(call, [&] {
    if (room.spans != 0)
      context.devices.zero(context.device, comm.resources.local + room.offset, room.records(),
                           context.agree.limit_of_work());
  });
}

}  // namespace devcomm::host::detail
