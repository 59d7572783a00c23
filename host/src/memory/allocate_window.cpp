#include <devcomm/host/error.hpp>

#include "memory/window_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// What a rank sends about its part of a window.
struct offer {
  std::uint64_t bytes = 0;
  std::uint32_t fabric_bytes = 0;
  std::array<std::byte, 128> fabric{};
};

void require_same_bytes(const rank_context& context, const std::string& call, const std::vector<offer>& offers) {
  for (std::size_t i = 1; i < offers.size(); ++i) {
    if (offers[i].bytes == offers[0].bytes) continue;
    throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
                           " asked for " + std::to_string(offers[i].bytes) + " bytes and rank 0 for " +
                           std::to_string(offers[0].bytes) + "; ask for the same size on every rank");
  }
}

/// The first ranks of the other processes that hold members of the LSA team.
std::vector<int> other_processes(const rank_context& context) {
  std::vector<int> firsts;
  for (int member = 0; member < context.lsa.size; ++member) {
    const int peer = context.lsa.world_rank(member);
    if (context.same_process(peer)) continue;
    const int first = ranks_of_process(context.peers, peer).front();
    if (std::find(firsts.begin(), firsts.end(), first) == firsts.end()) firsts.push_back(first);
  }
  return firsts;
}

const char* name_of(handle_kind kind) {
  switch (kind) {
    case handle_kind::none: return "same process";
    case handle_kind::file_descriptor: return "file descriptor";
    case handle_kind::fabric: return "fabric";
  }
  return "unknown";
}

}  // namespace

window_state allocate_window(rank_context& context, const std::string& call, std::size_t bytes,
                             const std::string& name) {
  const std::uint64_t number = ++context.windows;
  const team lsa = context.lsa;
  const deadline until(context.agree.limit());
  std::shared_ptr<window_mapping> space;
  std::size_t rounded = 0;

  const std::vector<offer> offers = context.agree.gather(call, [&] {
    context.aborts->require_peers();
    if (bytes == 0) throw invalid_argument("0 bytes; ask for at least 1");
    if (bytes > std::numeric_limits<std::size_t>::max() / 4 / static_cast<std::size_t>(lsa.size)) {
      throw invalid_argument(std::to_string(bytes) + " bytes on each of " + std::to_string(lsa.size) +
                             " ranks do not fit an address space; ask for less");
    }
    rounded = (bytes + context.granularity - 1) / context.granularity * context.granularity;
    offer mine;
    mine.bytes = bytes;
    std::unique_ptr<physical_memory> memory = context.devices.create_physical(context.device, rounded, context.handle);
    if (context.handle == handle_kind::file_descriptor) {
      context.process->links().forget_memory(number - 1);
      const unique_fd descriptor(memory->export_descriptor());
      for (const int process : other_processes(context)) {
        context.process->links().send_memory(process, number, context.rank(), descriptor.get(), until);
      }
    } else if (context.handle == handle_kind::fabric) {
      const std::vector<std::byte> exported = memory->export_fabric();
      if (exported.size() > mine.fabric.size()) {
        throw system_error("a fabric handle of " + std::to_string(exported.size()) +
                           " bytes is larger than the library expects");
      }
      mine.fabric_bytes = static_cast<std::uint32_t>(exported.size());
      std::copy(exported.begin(), exported.end(), mine.fabric.begin());
    }
    space = context.process->share<window_mapping>(number, lsa.first, lsa.size);
    space->place(lsa.rank, std::move(memory), context.device);
    return mine;
  });
  require_same_bytes(context, call, offers);

  // One unmapped granule after each slot: an access far past its end faults.
  const std::size_t stride = rounded + context.granularity;
  window_state state(context, number, bytes, name);
  context.agree.together(call, [&] {
    space->map(context.devices, stride, [&](int member) {
      const int peer = lsa.world_rank(member);
      if (context.handle == handle_kind::file_descriptor) {
        const unique_fd descriptor = context.process->links().take_memory(number, peer, until);
        return context.devices.import_descriptor(context.device, descriptor.get(), rounded);
      }
      const offer& theirs = offers[static_cast<std::size_t>(peer)];
      const auto handle =
          std::span(theirs.fabric).first(std::min<std::size_t>(theirs.fabric_bytes, theirs.fabric.size()));
      return context.devices.import_fabric(context.device, handle, rounded);
    });
    state.window.base = space->base();
    state.window.local = space->base() + static_cast<std::size_t>(lsa.rank) * stride;
    context.devices.zero(context.device, state.window.local, rounded);
  });
  state.window.stride = stride;
  state.handle_type = name_of(context.handle);
  state.space = std::move(space);
  std::vector<window_part> parts;
  parts.reserve(static_cast<std::size_t>(lsa.size));
  for (int member = 0; member < lsa.size; ++member) {
    parts.push_back({state.window.lsa_pointer(member), bytes, rounded, lsa.world_rank(member)});
  }
  state.label = context.devices.label(state.name, parts);
  return state;
}

}  // namespace devcomm::host::detail
