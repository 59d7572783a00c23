#include "memory/registration.hpp"

#include <devcomm/host/error.hpp>

#include "util/hex.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace devcomm::host::detail {
namespace {

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

registration describe_memory(rank_context& context, void* local, std::size_t bytes,
                             sharing_port::mapped_memory* mapped) {
  if (local == nullptr) throw invalid_argument("the pointer is null; give memory from cudaMalloc");
  if (bytes == 0) throw invalid_argument("0 bytes; register at least 1");
  registration mine;
  mine.pointer = reinterpret_cast<std::uintptr_t>(local);
  context.devices.check_pointer(context.device, local, bytes, context.lsa.size > 1);
  if (context.lsa.size > 1) {
    auto found = context.devices.retain_mapped(context.device, local, bytes, context.handle);
    if (!found.pieces.empty() && mapped == nullptr) {
      throw not_supported(
          "the memory comes from the virtual memory interface, as PyTorch's expandable segments do (leave "
          "expandable_segments off); give it to register_memory, or allocate with cudaMalloc");
    }
    mine.pieces = static_cast<std::uint32_t>(found.pieces.size());
    mine.offset = found.offset;
    if (mapped != nullptr) *mapped = std::move(found);
  }
  if (context.handle == handle_kind::none || mine.pieces != 0) return mine;
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
  return mine;
}

char* open_memory(rank_context& context, int peer, const registration& theirs,
                  std::vector<std::shared_ptr<opened_memory>>& opened) {
  if (context.same_process(peer)) {
    const int peer_device = context.device_infos[static_cast<std::size_t>(peer)].device;
    if (peer_device != context.device) context.devices.enable_peer_access(context.device, peer_device);
    return reinterpret_cast<char*>(static_cast<std::uintptr_t>(theirs.pointer));
  }
  const auto handle = std::span(theirs.handle).first(std::min<std::size_t>(theirs.handle_bytes, theirs.handle.size()));
  opened.push_back(open_once(context.devices, context.device, handle));
  return opened.back()->data() + theirs.offset;
}

const char* handle_type_of_registered(const rank_context& context) {
  return context.handle == handle_kind::none ? "same process" : "CUDA IPC";
}

}  // namespace devcomm::host::detail
