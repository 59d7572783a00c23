#include "memory/team_multicast.hpp"

#include <devcomm/host/error.hpp>

#include "memory/open_multicast.hpp"
#include "rank/forgetting.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// A rank's memory, as it is published to its team.
struct memory_note {
  std::uint64_t bytes = 0;        ///< of the physical memory
  std::uint64_t offset = 0;       ///< of the place in it
  std::uint64_t granularity = 1;  ///< of multicast objects
  std::array<char, 240> obstacle{};
};

memory_note describe(rank_context& context, void* memory, std::size_t bytes, std::size_t members,
                     sharing_port::bindable_memory& mine) {
  memory_note said;
  const auto refuse = [&said](const std::string& why) {
    std::copy_n(why.begin(), std::min(why.size(), said.obstacle.size() - 1), said.obstacle.begin());
  };
  if (memory == nullptr) {
    refuse("its memory cannot be bound to a multicast object");
    return said;
  }
  try {
    mine = context.devices.retain_bindable(context.device, memory, bytes, context.handle);
  } catch (const not_supported& error) {
    refuse(error.what());
    return said;
  }
  said.bytes = mine.bytes;
  said.offset = mine.offset;
  said.granularity = context.devices.multicast_granularity(static_cast<int>(members), context.handle);
  if (mine.memory == nullptr) {
    refuse("its memory is not one piece of physical memory that its owner mapped");
  } else if (mine.bytes % said.granularity != 0) {
    refuse("its memory has " + std::to_string(mine.bytes) + " bytes, no multiple of the " +
           std::to_string(said.granularity) + " that multicast objects go by");
  }
  return said;
}

/// Why these cannot be bound to one object; empty where they can.
std::string obstacle_of(const std::vector<memory_note>& notes, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const std::string who = "rank " + std::to_string(ranks[i]);
    if (notes[i].obstacle[0] != '\0') return who + ": " + notes[i].obstacle.data();
    if (notes[i].offset != notes[0].offset) {
      return who + "'s memory begins " + std::to_string(notes[i].offset) + " bytes into its allocation and rank " +
             std::to_string(ranks[0]) + "'s " + std::to_string(notes[0].offset) + ": begin at one place on every rank";
    }
  }
  return {};
}

}  // namespace

team_multicast::team_multicast(rank_context& context, void* memory, std::size_t bytes,
                               const std::vector<int>& members) {
  const std::string call = "multicast";
  const std::uint64_t number = ++context.windows;
  const deadline until(context.agree.limit());
  std::string name = "the ranks";
  for (const int rank : members) name += " " + std::to_string(rank);
  const auto self = std::find(members.begin(), members.end(), context.rank()) - members.begin();
  const multicast_team of{name_of_group(name), members, static_cast<int>(self)};

  sharing_port::bindable_memory mine;
  const std::vector<memory_note> notes =
      context.agree
          .gather_group(call, of.name,
                        [&] {
                          if (!context.properties.multicast.available) {
                            throw not_supported("there is no multicast: " + context.properties.multicast.reason);
                          }
                          return describe(context, memory, bytes, members.size(), mine);
                        })
          .parts;
  obstacle_ = obstacle_of(notes, members);
  const bool wanted = obstacle_.empty();
  std::size_t granularity = context.granularity;
  std::size_t whole = 0;
  for (const memory_note& each : notes) {
    granularity = std::lcm(granularity, static_cast<std::size_t>(each.granularity));
    whole = std::max(whole, static_cast<std::size_t>(each.bytes));
  }

  forgetting on_failure(context, context.handle == handle_kind::file_descriptor ? number : 0);
  bound_ = context.process->share<bound_memory>(number, members.front());
  open_multicast(context, call, of, wanted, number, whole, until, bound_->object);
  context.agree.together(call, [&] {
    if (!wanted) return;
    {
      const std::lock_guard lock(bound_->mutex);
      bound_->memory.push_back(mine.memory);
    }
    bound_->object.bind(context.device, *mine.memory, mine.bytes);
  });
  context.agree.together(call, [&] {
    if (!wanted) return;
    std::vector<int> devices;
    for (const int rank : members) {
      if (context.same_process(rank)) devices.push_back(context.device_infos[static_cast<std::size_t>(rank)].device);
    }
    address_ = bound_->object.map(context.devices, whole, granularity, devices) + mine.offset;
  });
  on_failure.keep();
}

}  // namespace devcomm::host::detail
