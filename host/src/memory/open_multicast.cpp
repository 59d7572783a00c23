#include "memory/open_multicast.hpp"

#include "memory/handle_exchange.hpp"

#include <memory>

namespace devcomm::host::detail {
namespace {

std::unique_ptr<multicast_object> import_multicast(rank_context& context, int owner, const handle_bytes& handle,
                                                   std::uint64_t number, std::size_t bytes, const deadline& until) {
  if (context.handle == handle_kind::file_descriptor) {
    const unique_fd descriptor = context.process->links().take_memory(number, owner, until, window_piece::multicast);
    return context.devices.import_multicast_descriptor(descriptor.get(), bytes);
  }
  return context.devices.import_multicast_bytes(context.handle, handle.get(), bytes);
}

}  // namespace

void open_multicast(rank_context& context, const std::string& call, const multicast_team& team, bool wanted,
                    std::uint64_t number, std::size_t bytes, const deadline& until, window_multicast& object) {
  const auto members = static_cast<int>(team.ranks.size());
  const auto objects = context.agree.gather_group(call, team.name, [&] {
    if (!wanted || team.member != 0) return handle_bytes{};
    object.open([&] { return context.devices.create_multicast(members, bytes, context.handle); });
    return hand_over(context, object.object(), team.ranks, number, window_piece::multicast, until);
  });
  context.agree.together(call, [&] {
    if (!wanted) return;
    const int owner = team.ranks.front();
    object.open([&] {
      const std::vector<handle_bytes> all = objects.spread(context.size());
      return import_multicast(context, owner, all[static_cast<std::size_t>(owner)], number, bytes, until);
    });
    object.add_device(context.device);
  });
}

}  // namespace devcomm::host::detail
