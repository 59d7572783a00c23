#include "communicator/open_fabric_proxy.hpp"

#include <devcomm/host/error.hpp>

#include "communicator/outside_address.hpp"
#include "transport/fabric_proxy.hpp"
#include "transport/libfabric.hpp"
#include "util/call_text.hpp"
#include "util/environment.hpp"
#include "util/interfaces.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// What each rank tells the others.
struct introduction {
  fabric_engine::card card;
  std::array<char, 64> provider;
};

/// Where peers reach this rank: an address of this host, or empty for providers that have none.
std::string local_node(const rank_context& context) {
  const bool by_address = context.provider.starts_with("tcp") || context.provider.starts_with("net");
  if (!by_address) return {};
  if (context.is_one_host()) return "127.0.0.1";
  return outside_address(process_variables(), context.agree.local_address(), interface_addresses());
}

}  // namespace

std::unique_ptr<network_proxy> open_fabric_proxy(rank_context& context, const std::string& call,
                                                 const network_request& asked, failure_log* log,
                                                 std::function<void(const std::string&)> fail) {
  std::unique_ptr<fabric_proxy> made;
  const auto all = context.agree.gather(call, [&] {
    if (context.provider == "shm" && !context.is_one_host()) {
      throw not_supported("libfabric's provider shm reaches ranks of one host only; unset DEVCOMM_GIN_PROVIDER");
    }
    // Seen with libfabric 1.17: sending to an endpoint of the same process that has been closed is a segmentation
    // fault.
    if (context.provider == "shm" && context.local_ranks.size() > 1) {
      throw not_supported(
          "libfabric's provider shm does not serve several ranks in one process: it crashes when one of "
          "them ends; unset DEVCOMM_GIN_PROVIDER, or give each rank a process");
    }
    introduction own{};
    if (context.provider.size() >= own.provider.size()) {
      throw not_supported("libfabric has no provider \"" + context.provider + "\"; unset DEVCOMM_GIN_PROVIDER");
    }
    // Ends before the waits of kernels do, and knows of which peer.
    const std::chrono::milliseconds limit = context.options.kernel_timeout / 2;
    made = std::make_unique<fabric_proxy>(
        context.devices,
        fabric_proxy::settings{context.rank(), context.device, asked, limit, std::move(fail), context.stages_payload,
                               [log] { return std::atomic_ref(log->abort).load(std::memory_order_relaxed) != 0; }},
        context.window_ids,
        open_libfabric(context.provider, local_node(context), static_cast<std::size_t>(context.size())));
    own.card = made->own_card();
    std::memcpy(own.provider.data(), context.provider.data(), context.provider.size());
    return own;
  });
  std::vector<fabric_engine::card> cards;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].provider != all[0].provider) {
      throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
                             " has libfabric's provider " + all[i].provider.data() + " and rank 0 has " +
                             all[0].provider.data() + "; set DEVCOMM_GIN_PROVIDER alike on all ranks");
    }
    cards.push_back(all[i].card);
  }
  context.agree.together(call, [&] {
    made->connect(cards);
    context.devices.expect_other_processes();
  });
  return made;
}

}  // namespace devcomm::host::detail
