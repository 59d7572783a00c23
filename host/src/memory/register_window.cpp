#include <devcomm/host/error.hpp>

#include "memory/window_state.hpp"
#include "util/hex.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// What a rank sends about the memory that it registers.
struct registration {
  std::uint64_t pointer = 0;  ///< meaningful to ranks of the same process
  std::uint64_t offset = 0;   ///< of the pointer in the allocation that `handle` opens
  std::uint32_t handle_bytes = 0;
  std::array<std::byte, 128> handle{};
};

/// An allocation of another process is opened once for each device here, as CUDA requires.
std::shared_ptr<opened_memory> open_once(sharing_port& devices, int device, std::span<const std::byte> handle) {
  // Never destroyed: windows may be static objects.
  static auto& mutex = *new std::mutex;
  static auto& open = *new std::map<std::string, std::weak_ptr<opened_memory>>;
  const std::lock_guard lock(mutex);
  std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<opened_memory>& entry = open[std::to_string(device) + ":" + to_hex(handle)];
  std::shared_ptr<opened_memory> here = entry.lock();
  if (!here) entry = here = devices.open_pointer(device, handle);
  return here;
}

}  // namespace

window_state register_window(rank_context& context, const std::string& call, void* local, std::size_t bytes,
                             const std::string& name) {
  const std::uint64_t number = ++context.windows;
  const team lsa = context.lsa;

  const auto [sizes, team] = context.agree.gather_notes_and_group(call, context.name_of_lsa(), [&] {
    if (local == nullptr) throw invalid_argument("the pointer is null; give memory from cudaMalloc");
    if (bytes == 0) throw invalid_argument("0 bytes; register at least 1");
    registration mine;
    mine.pointer = reinterpret_cast<std::uintptr_t>(local);
    context.devices.check_pointer(context.device, local, bytes, lsa.size > 1);
    if (context.handle == handle_kind::none) return std::pair(bytes, mine);
    if (const capability& ipc = context.properties.cuda_ipc; !ipc.available) {
      throw not_supported("CUDA IPC, which memory of other processes needs, is not available: " + ipc.reason +
                          "; or use communicator::allocate");
    }
    const sharing_port::exported_pointer exported = context.devices.export_pointer(context.device, local);
    if (exported.handle.size() > mine.handle.size()) {
      throw system_error("an IPC handle of " + std::to_string(exported.handle.size()) +
                         " bytes is larger than the library expects");
    }
    mine.offset = exported.offset;
    mine.handle_bytes = static_cast<std::uint32_t>(exported.handle.size());
    std::copy(exported.handle.begin(), exported.handle.end(), mine.handle.begin());
    return std::pair(bytes, mine);
  });
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] == sizes[0]) continue;
    throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
                           " registers " + std::to_string(sizes[i]) + " bytes and rank 0 " + std::to_string(sizes[0]) +
                           "; register the same size on every rank");
  }

  const std::vector<registration> all = team.spread(context.size());
  window_state state(context, number, bytes, name);
  std::vector<window_part> parts;
  context.agree.together(call, [&] {
    std::vector<char*> addresses;
    for (int member = 0; member < lsa.size; ++member) {
      const int peer = lsa.world_rank(member);
      const registration& theirs = all[static_cast<std::size_t>(peer)];
      if (context.same_process(peer)) {
        const int peer_device = context.device_infos[static_cast<std::size_t>(peer)].device;
        if (peer_device != context.device) context.devices.enable_peer_access(context.device, peer_device);
        addresses.push_back(reinterpret_cast<char*>(static_cast<std::uintptr_t>(theirs.pointer)));
        continue;
      }
      const auto handle =
          std::span(theirs.handle).first(std::min<std::size_t>(theirs.handle_bytes, theirs.handle.size()));
      state.opened.push_back(open_once(context.devices, context.device, handle));
      addresses.push_back(state.opened.back()->data() + theirs.offset);
    }
    for (int member = 0; member < lsa.size; ++member) {
      parts.push_back({addresses[static_cast<std::size_t>(member)], bytes, bytes, lsa.world_rank(member)});
    }
    const std::size_t table_bytes = addresses.size() * sizeof(char*);
    state.table = context.devices.allocate_device(context.device, table_bytes);
    context.devices.copy(context.device, state.table->data(), addresses.data(), table_bytes,
                         context.agree.limit_of_work());
    state.window.local = static_cast<char*>(local);
    // Before the ranks meet: the first that goes on may put to the others at once.
    state.listing = context.window_ids->list(state.window.id, {state.window.local, bytes, state.name});
  });
  state.window.table = reinterpret_cast<char* const*>(state.table->data());
  state.multimem.reason =
      "registered memory comes from cudaMalloc, which cannot be bound to a multicast object; use allocate";
  state.label = context.devices.label(state.name, parts);
  state.handle_type = context.handle == handle_kind::none ? "same process" : "CUDA IPC";
  return state;
}

}  // namespace devcomm::host::detail
