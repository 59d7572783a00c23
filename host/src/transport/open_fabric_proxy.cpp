#include "transport/open_fabric_proxy.hpp"

#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "transport/choose_provider.hpp"
#include "transport/exchange_cards.hpp"
#include "transport/fabric_thread.hpp"
#include "transport/libfabric.hpp"
#include "util/call_text.hpp"
#include "util/cpu_list.hpp"
#include "util/environment.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// What ranks say of their endpoints beside addresses and secrets: most of them the same, which the bootstrap sends
/// once.
struct endpoint_terms {
  std::uint32_t threads;
  std::uint32_t is_wish;   ///< `threads` is what `DEVCOMM_GIN_PROXIES` says
  std::uint32_t straight;  ///< whether payload goes from and to device memory
  std::uint32_t carried;   ///< as `fabric_endpoint::card::carried`
  std::uint32_t address_bytes;
};

/// The contexts of a device communicator, each served by one of the communicator's threads. The nth thread of a rank
/// reaches the nth of the others.
class fabric_proxy final : public network_proxy {
 public:
  explicit fabric_proxy(std::uint32_t contexts) : contexts_(contexts) {}
  ~fabric_proxy() override {
    for (const part& each : parts_) fabric_thread::finish(*each.service);
    for (const part& each : parts_) each.thread->end(each.service);
  }
  fabric_proxy(const fabric_proxy&) = delete;
  fabric_proxy& operator=(const fabric_proxy&) = delete;

  /// Contexts that number `index` of `count` threads serves.
  struct share {
    std::uint32_t first;
    std::uint32_t count;
  };
  [[nodiscard]] share share_of(std::uint32_t index, std::uint32_t count) const {
    const std::uint32_t first = contexts_ * index / count;
    return {first, contexts_ * (index + 1) / count - first};
  }
  void add(const std::shared_ptr<fabric_thread>& thread, fabric_thread::service_settings asked) {
    parts_.push_back({thread, thread->serve(std::move(asked))});
  }

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override {
    const auto count = static_cast<std::uint32_t>(parts_.size());
    std::uint32_t which = 0;
    while (index >= share_of(which + 1, count).first) ++which;
    const auto& queues = fabric_thread::queues_of(*parts_[which].service);
    return queues[index - share_of(which, count).first]->record();
  }
  void start() override {}  // `add` has done it
  void abandon() noexcept override {
    for (const part& each : std::exchange(parts_, {})) each.thread->abandon(each.service);
  }

 private:
  struct part {
    std::shared_ptr<fabric_thread> thread;
    std::shared_ptr<fabric_thread::service> service;
  };
  std::uint32_t contexts_;
  std::vector<part> parts_;
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

void refuse_shm(const rank_context& context, std::uint32_t threads) {
  if (context.network.provider != "shm") return;
  if (!context.is_one_host()) {
    throw not_supported("libfabric's provider shm reaches ranks of one host only; unset DEVCOMM_GIN_PROVIDER");
  }
  // Seen with libfabric 1.17: sending to an endpoint of the same process that has been closed is a segmentation fault.
  if (context.local_ranks.size() > 1) {
    throw not_supported(
        "libfabric's provider shm does not serve several ranks in one process: it crashes when one of "
        "them ends; unset DEVCOMM_GIN_PROVIDER, or give each rank a process");
  }
  if (threads > 1) {
    throw not_supported(
        "libfabric's provider shm does not serve several proxies in one process: it crashes when one of them ends; "
        "unset DEVCOMM_GIN_PROVIDER or DEVCOMM_GIN_PROXIES");
  }
}

std::unique_ptr<fabric> open_wished(const rank_context& context, const endpoint_wish& wish) {
  try {
    return open_libfabric(wish);
  } catch (const not_supported& refusal) {
    if (context.network.why_this_provider.empty()) throw;
    throw not_supported(std::string(refusal.what()) + "; it was taken as " + context.network.why_this_provider);
  }
}

/// An endpoint of this rank, which is not connected; `straight`: whether it moves payload from and to device memory.
network_state::opened open_thread(const rank_context& context) {
  const network_state& network = context.network;
  endpoint_wish wish = wish_of(context);
  if (network.windows_on_device) wish.devices = network.straight_payload;
  auto reached = open_wished(context, wish);
  const capability straight = network.windows_on_device ? straight_way(context, *reached) : capability{};
  if (network.only_straight && !straight.available) {
    throw not_supported("DEVCOMM_GIN_PAYLOAD is direct, and payload cannot go straight from and to GPU memory: " +
                        straight.reason + "; unset it");
  }
  const std::string way = reached->name() + (reached->card().empty() ? "" : " on " + reached->card()) +
                          "; payload goes " +
                          (!network.windows_on_device ? "straight: threads of the host reach it"
                           : straight.available       ? "straight from and to GPU memory: " + straight.reason
                                                      : "through pinned host memory: " + straight.reason);
  const fabric_thread::settings given{context.rank(), context.device, wanted_cpus_of(context),
                                      static_cast<std::uint32_t>(context.size()), straight.available};
  return {std::make_shared<fabric_thread>(context.devices, given, context.window_ids, std::move(reached)), way,
          straight.available};
}

/// As many as the environment wants, or else as the processors of this rank allow.
std::uint32_t threads_of(const rank_context& context, const std::optional<std::uint32_t>& wanted) {
  refuse_shm(context, wanted.value_or(1));
  if (wanted || context.network.provider == "shm") return wanted.value_or(1);
  const auto rank = static_cast<std::size_t>(context.rank());
  const auto is_here = [&](const rank_info& peer) { return peer.host == context.peers[rank].host; };
  const auto ranks = std::count_if(context.peers.begin(), context.peers.end(), is_here);
  const std::vector<int> named = wanted_cpus_of(context);
  return default_proxies(named.empty() ? usable_cpu_count() : named.size(), static_cast<std::size_t>(ranks));
}

/// The same on all ranks; throws where they want different numbers.
std::uint32_t agreed_threads(const std::string& start, const std::vector<endpoint_terms>& all) {
  std::uint32_t fewest = all[0].threads;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const endpoint_terms& theirs = all[rank];
    if (theirs.is_wish != all[0].is_wish || (theirs.is_wish != 0 && theirs.threads != all[0].threads)) {
      const auto said = [](const endpoint_terms& one) {
        return one.is_wish != 0 ? std::to_string(one.threads) : std::string("as many as its processors allow");
      };
      throw invalid_argument(start + ": rank " + std::to_string(rank) + " uses " + said(theirs) +
                             " proxies and rank 0 " + said(all[0]) + "; set DEVCOMM_GIN_PROXIES alike on all ranks");
    }
    fewest = std::min(fewest, theirs.threads);
  }
  return fewest;
}

/// *Collective*: one more endpoint, connected to those of the other ranks.
void add_thread(rank_context& context, const std::string& call) {
  network_state& network = context.network;
  network_state::opened made;
  const bool is_first = network.threads.empty();
  const std::vector<endpoint_terms> terms = context.agree.gather(call, [&] {
    const auto wanted = wanted_proxies(process_variables());
    const std::uint32_t threads = is_first ? threads_of(context, wanted) : network.wanted_threads;
    made = open_thread(context);
    const fabric_endpoint::card own = made.thread->own_card();
    return endpoint_terms{threads, is_first && wanted ? 1u : 0u, made.straight ? 1u : 0u,
                          static_cast<std::uint32_t>(own.carried), own.address.bytes};
  });
  network.wanted_threads = agreed_threads(call_text(call, context.rank(), context.size()), terms);
  std::vector<fabric_endpoint::card> cards(terms.size());
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    made.straight = made.straight && terms[rank].straight != 0;
    cards[rank].carried = terms[rank].carried;
    cards[rank].address.bytes = terms[rank].address_bytes;
  }
  constexpr int few = 256;  // to whom rank 0 sends 3 MB together
  constexpr int children = 16;
  if (context.size() <= few) {
    static_cast<void>(exchange_cards_of_few(context.agree, call, *made.thread, cards));
  } else {
    static_cast<void>(exchange_cards(context.agree, call, *made.thread, cards, {context.size(), children}));
  }
  network.threads.push_back(std::move(made));
}

}  // namespace

std::vector<int> wanted_cpus_of(const rank_context& context) {
  const auto rank = static_cast<std::size_t>(context.rank());
  return wanted_cpus(process_variables(), context.device_infos[rank].pci);
}

opened_network open_fabric_proxy(rank_context& context, const std::string& call, std::uint64_t number,
                                 const network_request& asked, failure_log* log,
                                 std::function<void(const std::string&)> fail, std::function<void(int rank)> departed) {
  choose_provider(context, call);
  network_state& network = context.network;
  if (network.threads.empty()) add_thread(context, call);
  const std::uint32_t count = std::min(network.wanted_threads, asked.contexts);
  while (network.threads.size() < count) add_thread(context, call);

  // A peer has ended once it has said so to each of its threads' partners here.
  struct shutdown_notices {
    std::mutex mutex;
    std::map<int, std::uint32_t> heard;
  };
  const auto all_heard = std::make_shared<shutdown_notices>();
  const auto departs = [count, departed = std::move(departed), all_heard](int rank) {
    const std::lock_guard lock(all_heard->mutex);
    if (++all_heard->heard[rank] == count) departed(rank);
  };
  const auto ended = [log] { return std::atomic_ref(log->abort).load(std::memory_order_relaxed) != 0; };
  // Ends before the waits of kernels do, and names the peer.
  const std::chrono::milliseconds limit = context.options.kernel_timeout / 2;
  auto proxy = std::make_unique<fabric_proxy>(asked.contexts);
  bool straight = true;
  context.agree.together(call, [&] {
    for (std::uint32_t i = 0; i < count; ++i) {
      const fabric_proxy::share part = proxy->share_of(i, count);
      network_request asked_here = asked;
      asked_here.contexts = part.count;
      straight = straight && network.threads[i].straight;
      proxy->add(network.threads[i].thread, {static_cast<std::uint32_t>(number), asked_here, part.first, limit, fail,
                                             network.windows_on_device, ended, departs});
    }
  });
  context.devices.expect_other_processes();
  std::string way = network.threads[0].way;
  if (!network.why_this_provider.empty()) way += "; " + network.why_this_provider;
  if (count > 1) way = std::to_string(count) + " proxies over " + way;
  return {std::move(proxy), way, straight};
}

}  // namespace devcomm::host::detail
