#include "communicator/open_fabric_proxy.hpp"

#include <devcomm/host/error.hpp>

#include "communicator/choose_provider.hpp"
#include "rank/settings.hpp"
#include "transport/fabric_proxy.hpp"
#include "transport/libfabric.hpp"
#include "util/call_text.hpp"
#include "util/environment.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// What each rank publishes to the others.
struct introduction {
  fabric_engine::card card;
  std::uint32_t proxies;
  bool straight;  ///< payload goes from and to device memory
};

/// Whether the fabric moves the payload of windows in device memory by itself: some say that they could, and then take
/// no memory of the device.
capability straight_way(const rank_context& context, fabric& reached) {
  capability offered = reached.to_devices();
  if (!offered.available) return offered;
  constexpr std::size_t bytes = std::size_t{64} << 10;
  const auto memory = context.devices.allocate_device(context.device, bytes);
  try {
    static_cast<void>(reached.add_memory(static_cast<char*>(memory->data()), bytes, context.device));
  } catch (const registration_error& problem) {
    return {false, problem.what()};
  }
  return offered;
}

void refuse_shm(const rank_context& context, std::uint32_t proxies) {
  if (context.provider != "shm") return;
  if (!context.is_one_host()) {
    throw not_supported("libfabric's provider shm reaches ranks of one host only; unset DEVCOMM_GIN_PROVIDER");
  }
  // Seen with libfabric 1.17: sending to an endpoint of the same process that has been closed is a segmentation fault.
  if (context.local_ranks.size() > 1) {
    throw not_supported(
        "libfabric's provider shm does not serve several ranks in one process: it crashes when one of "
        "them ends; unset DEVCOMM_GIN_PROVIDER, or give each rank a process");
  }
  if (proxies > 1) {
    throw not_supported(
        "libfabric's provider shm does not serve several proxies in one process: it crashes when one of them ends; "
        "unset DEVCOMM_GIN_PROVIDER or DEVCOMM_GIN_PROXIES");
  }
}

std::unique_ptr<fabric> open_wished(const rank_context& context, const endpoint_wish& wish) {
  try {
    return open_libfabric(wish);
  } catch (const not_supported& refusal) {
    if (context.why_this_provider.empty()) throw;
    throw not_supported(std::string(refusal.what()) + "; it was taken as " + context.why_this_provider);
  }
}

/// The proxy of some of this rank's contexts; `way` describes the path of their payload.
std::unique_ptr<fabric_proxy> open_one(const rank_context& context, network_request asked, fabric_proxies::share part,
                                       failure_log* log, std::function<void(const std::string&)> fail,
                                       std::function<void(int rank)> departed, std::string& way, bool& goes_straight) {
  asked.contexts = part.count;
  // Ends before the waits of kernels do, and names the peer.
  const std::chrono::milliseconds limit = context.options.kernel_timeout / 2;
  endpoint_wish wish = wish_of(context);
  if (context.windows_on_device) wish.devices = context.straight_payload;
  auto reached = open_wished(context, wish);
  const capability straight = context.windows_on_device ? straight_way(context, *reached) : capability{};
  if (context.only_straight && !straight.available) {
    throw not_supported("DEVCOMM_GIN_PAYLOAD is direct, and payload cannot go straight from and to GPU memory: " +
                        straight.reason + "; unset it");
  }
  goes_straight = straight.available;
  way = reached->name() + (reached->card().empty() ? "" : " on " + reached->card()) + "; payload goes " +
        (!context.windows_on_device ? "straight: threads of the host reach it"
         : straight.available       ? "straight from and to GPU memory: " + straight.reason
                                    : "through pinned host memory: " + straight.reason);
  return std::make_unique<fabric_proxy>(
      context.devices,
      fabric_proxy::settings{context.rank(), context.device, asked, limit, std::move(fail), context.windows_on_device,
                             straight.available, wanted_cpus_of(context), part.first,
                             [log] { return std::atomic_ref(log->abort).load(std::memory_order_relaxed) != 0; },
                             std::move(departed)},
      context.window_ids, std::move(reached));
}

}  // namespace

std::vector<int> wanted_cpus_of(const rank_context& context) {
  const auto rank = static_cast<std::size_t>(context.rank());
  return wanted_cpus(process_variables(), context.device_infos[rank].pci);
}

opened_network open_fabric_proxy(rank_context& context, const std::string& call, const network_request& asked,
                                 failure_log* log, std::function<void(const std::string&)> fail,
                                 std::function<void(int rank)> departed) {
  choose_provider(context, call);
  std::uint32_t count = 1;
  std::vector<std::unique_ptr<fabric_proxy>> made;
  std::string way;
  bool straight = true;
  // A peer has ended once it has said so to each of its proxies' partners here.
  struct shutdown_notices {
    std::mutex mutex;
    std::map<int, std::uint32_t> heard;
  };
  const auto all_heard = std::make_shared<shutdown_notices>();
  const auto departs = [&count, &departed, &all_heard] {
    return [count, departed, all_heard](int rank) {
      const std::lock_guard lock(all_heard->mutex);
      if (++all_heard->heard[rank] == count) departed(rank);
    };
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto all = context.agree.gather(call, [&] {
      if (i == 0) count = std::min(wanted_proxies(process_variables()), asked.contexts);
      refuse_shm(context, count);
      introduction own{};
      made.push_back(open_one(context, asked, fabric_proxies::share_of(asked.contexts, i, count), log, fail, departs(),
                              way, own.straight));
      own.card = made.back()->own_card();
      own.proxies = count;
      return own;
    });
    std::vector<fabric_engine::card> cards;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].proxies != all[0].proxies) {
        throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(rank) +
                               " uses " + std::to_string(all[rank].proxies) + " proxies and rank 0 " +
                               std::to_string(all[0].proxies) + "; set DEVCOMM_GIN_PROXIES alike on all ranks");
      }
      straight = straight && all[rank].straight;
      cards.push_back(all[rank].card);
    }
    context.agree.together(call, [&] { made.back()->connect(cards); });
  }
  context.devices.expect_other_processes();
  if (!context.why_this_provider.empty()) way += "; " + context.why_this_provider;
  if (count > 1) way = std::to_string(count) + " proxies over " + way;
  return {std::make_unique<fabric_proxies>(asked.contexts, std::move(made)), way, straight};
}

}  // namespace devcomm::host::detail
