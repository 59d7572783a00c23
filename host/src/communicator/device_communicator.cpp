#include "communicator/device_communicator_state.hpp"

#include <devcomm/host/error.hpp>
#include <devcomm/multimem/resources.hpp>

#include "communicator/check_requirements.hpp"
#include "diagnostics/unreceived_steps.hpp"
#include "transport/open_fabric_proxy.hpp"
#include "transport/process_network.hpp"
#include "transport/proxy.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace devcomm::host {

static_assert(sizeof(failure_log) == 16 + failure_log::capacity * sizeof(failure_record),
              "kernels of the program write it: change device_comm::layout_version with it");
static_assert(sizeof(devcomm::requirements) == 144,
              "the program makes it: change device_comm::layout_version with its layout");

namespace {

/// What kernels learn of the communicator.
device_comm device_comm_of(const detail::rank_context& context, const requirements& needs, const window& resources,
                           failure_log* failures) {
  device_comm made{};
  made.failures = failures;
  made.version = device_comm::layout_version;
  made.flags = context.options.check_launch ? device_comm::check_launch : 0;
  if (!context.properties.rail.available) {
    made.flags |= device_comm::no_rails;
  } else if (context.placed == detail::placement::round_robin) {
    made.flags |= device_comm::round_robin;
  }
  if (!context.nvlink.available) made.flags |= device_comm::no_lsa_atomics;
  made.rank = context.rank();
  made.size = context.size();
  made.lsa_first = context.lsa.first;
  made.lsa_size = context.lsa.size;
  made.resources = resources;
  const implicit_handle& barriers = needs.implicit(implicit_resource::lsa_barriers);
  made.lsa_barriers = {barriers.offset, barriers.count, barriers.members, needs.owner()};
  made.timeout = static_cast<std::uint64_t>(std::chrono::nanoseconds(context.options.kernel_timeout).count());
  return made;
}

}  // namespace

device_communicator::state::state(detail::rank_context& context, const std::string& call,
                                  const devcomm::requirements& needs, code_place made)
    : trace_(trace_rings::of(needs)),
      devices_(context.devices),
      device_(context.device),
      lsa_ranks_(context.lsa_ranks),
      number_(++context.device_comms),
      process_(context.process),
      aborts_(context.aborts) {
  const bool watch = context.options.watchdog;
  const auto requests = context.agree.gather(call, [&] {
    detail::check_requirements(context, needs);
    log_ = context.devices.allocate_host(context.device, failure_log::bytes_for(context.size()));
    std::memset(log_->data(), 0, failure_log::bytes_for(context.size()));
    comm_.failures = new (log_->data()) failure_log{};
    if (watch) {
      waits_ = std::make_unique<detail::watched_waits>(
          context.devices, context.devices, context.device,
          detail::watched_name{context.rank(), context.size(), context.identity, number_});
    }
    return detail::requested{needs.fingerprint(), needs.bytes(), watch ? 1u : 0u, context.lsa.size};
  });
  detail::compare_requirements(context, call, needs, requests);
  // The watchdog's part of device memory follows the requirements'.
  const std::uint64_t places = devcomm::detail::round_up_to_line(needs.bytes());
  resources_ = detail::allocate_window(
      context, call, watch ? places + sizeof(wait_slots) : needs.bytes(),
      "resources of device communicator " + std::to_string(number_),
      {.multimem = multimem::policy_of(needs), .alike = detail::same_size::in_teams_of_one_size});

  comm_ = device_comm_of(context, needs, resources_.window, comm_.failures);
  context.agree.together(call, [&] {
    resource_header header{};
    header.comm = comm_;
    header.trace = trace_;
    if (watch) {
      header.waits = waits_->table();
      header.slots = reinterpret_cast<wait_slots*>(comm_.resources.local + places);
    }
    context.devices.copy(context.device, comm_.resources.local, &header, sizeof header, context.agree.limit_of_work());
  });
  aborts_->attach(comm_.failures, number_);  // before the network's thread can fail
  try {
    open_network(context, call, needs);
  } catch (...) {
    proxy_.reset();
    aborts_->detach(comm_.failures);
    throw;
  }
  entry_ = std::make_unique<detail::live_objects::entry>(context.objects,
                                                         "device communicator " + std::to_string(number_), made);
}

void device_communicator::state::open_network(detail::rank_context& context, const std::string& call,
                                              const requirements& needs) {
  const network_request& asked = needs.network();
  const auto fail = [aborts = aborts_, log = comm_.failures](const std::string& text) { aborts->fail(log, text); };
  bool straight = false;
  if (asked.asked != 0 && context.network.needs_libfabric) {
    const auto departed = [aborts = aborts_, number = number_](int rank) { aborts->note_departure(number, rank); };
    detail::opened_network opened =
        detail::open_fabric_proxy(context, call, number_, asked, comm_.failures, fail, departed);
    proxy_ = std::move(opened.proxy);
    network_ = {true, opened.way};
    straight = opened.straight;
  }
  if (needs.network_bytes() != 0) allocate_network_memory(context, call, needs.network_bytes(), straight);
  if (asked.asked == 0) return;
  context.agree.together(call, [&] {
    if (!proxy_) {
      // Equal numbers name the same device communicator on all ranks. The team's first rank distinguishes windows from
      // them.
      const auto network = context.process->share<detail::process_network>(number_, -1);
      const std::span<char> resources(comm_.resources.local, comm_.resources.bytes);
      proxy_ = std::make_unique<detail::proxy>(context.devices, context.device, context.rank(), asked, network,
                                               context.window_ids, detail::wanted_cpus_of(context), resources, fail);
      network_ = context.properties.network;
    }
    const std::uint64_t stride = gin::queue_layout{asked.peers, asked.signals, asked.counters}.bytes();
    for (std::uint32_t i = 0; i < asked.contexts; ++i) {
      const gin::context_record record = proxy_->record(i);
      context.devices.copy(context.device, comm_.resources.local + asked.offset + i * stride, &record, sizeof record,
                           context.agree.limit_of_work());
    }
  });
  context.agree.together(call, [&] { proxy_->start(); });
}

void device_communicator::state::allocate_network_memory(detail::rank_context& context, const std::string& call,
                                                         std::uint64_t bytes, bool straight) {
  const auto lacks_pinned =
      context.agree.gather(call, [&] { return context.properties.pinned_host.available ? 0 : 1; });
  const bool is_pinned = !straight && std::find(lacks_pinned.begin(), lacks_pinned.end(), 1) == lacks_pinned.end();
  network_memory_ =
      detail::allocate_window(context, call, bytes, "network memory of device communicator " + std::to_string(number_),
                              {.place = is_pinned ? memory_place::pinned_host : memory_place::device,
                               .alike = detail::same_size::in_teams_of_one_size});
  context.agree.together(call, [&] {
    const window& made = network_memory_.window;
    context.devices.copy(context.device, comm_.resources.local + offsetof(resource_header, network), &made, sizeof made,
                         context.agree.limit_of_work());
  });
}

device_communicator::state::~state() {
  const bool in_order = !watch_.unwinding();
  if (in_order) {
    note_unreceived_steps();
  } else {
    abandon();
  }
  proxy_.reset();
  // Last: what this rank owes to others is done.
  if (const auto process = process_.lock(); process && in_order) process->depart(comm_.rank, number_);
  aborts_->detach(comm_.failures);
}

void device_communicator::state::note_unreceived_steps() noexcept {
  failure_log& log = *comm_.failures;
  try {
    const bool failed = std::atomic_ref(log.abort).load(std::memory_order_relaxed) != 0;
    if (failed || !detail::read_failures(log).empty()) return;  // these leave steps that nobody receives
    constexpr std::chrono::milliseconds limit(500);
    const auto departed = [&log](int rank) { return detail::has_departed(log, rank); };
    const auto found = detail::find_unreceived_steps(devices_, device_, comm_, lsa_ranks_, departed, limit);
    if (!found) return;
    log.records[0] = *found;
    std::atomic_ref(log.records[0].ready).store(1, std::memory_order_release);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "devcomm: rank %d of %d: device communicator %llu ends without a check of its FIFOs: %s\n",
                 comm_.rank, comm_.size, static_cast<unsigned long long>(number_), problem.what());
  }
}

void device_communicator::state::abandon() noexcept {
  constexpr std::chrono::milliseconds limit(500);
  aborts_->abandon(comm_.failures);
  try {
    const std::string what = "device communicator " + std::to_string(number_);
    if (const auto process = process_.lock()) {
      process->abandon(comm_.rank, number_,
                       "rank " + std::to_string(comm_.rank) + " abandoned " + what + " because of an exception");
    }
    if (devices_.wait_until_idle(device_, limit)) return;
    std::fprintf(stderr,
                 "devcomm: rank %d of %d: %s is destroyed by an exception, and kernels still run on device %d although "
                 "their waits have ended; its memory is not freed\n",
                 comm_.rank, comm_.size, what.c_str(), device_);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "devcomm: rank %d of %d: a device communicator that an exception destroys is not freed: %s\n",
                 comm_.rank, comm_.size, problem.what());
  }
  // Owned by nobody from here on.
  if (proxy_) proxy_->abandon();
  static_cast<void>(log_.release());
  static_cast<void>(waits_.release());
  static_cast<void>(new (std::nothrow) detail::window_state(std::move(resources_)));
  static_cast<void>(new (std::nothrow) detail::window_state(std::move(network_memory_)));
}

void device_communicator::destroyer::operator()(state* s) const noexcept {
  if (s->made_in().here()) delete s;
}

device_communicator::device_communicator(std::unique_ptr<state, destroyer> s) : state_(std::move(s)) {}
device_communicator::device_communicator(device_communicator&&) noexcept = default;
device_communicator& device_communicator::operator=(device_communicator&&) noexcept = default;
device_communicator::~device_communicator() = default;

const device_comm& device_communicator::get() const& noexcept { return state_->get(); }

const window& device_communicator::network_memory() const noexcept { return state_->network_memory(); }

const capability& device_communicator::network() const noexcept { return state_->network(); }

std::vector<failure_record> device_communicator::failures() const { return state_->failures(); }

void device_communicator::check() const { state_->check(); }

}  // namespace devcomm::host
