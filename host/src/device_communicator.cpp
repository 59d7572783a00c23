#include "device_communicator_state.hpp"

#include <devcomm/host/error.hpp>

#include <chrono>
#include <new>
#include <utility>

namespace devcomm::host {

using detail::call_text;

device_communicator::state::state(detail::rank_context& context, const std::string& call,
                                  const devcomm::requirements& needs, code_place made)
    : watched_(context.watched) {
  const std::uint64_t number = ++context.device_comms;
  struct request {
    std::uint64_t fingerprint;
    std::uint64_t bytes;
  };
  const auto requests = context.agree.gather(call, [&] {
    if (needs.lsa() != context.lsa) {
      throw invalid_argument(
          "the requirements were made for another LSA team; start from "
          "requirements() of this communicator");
    }
    log_ = context.devices.allocate_host(context.device, sizeof(failure_log));
    comm_.failures = new (log_->data()) failure_log{};
    return request{needs.fingerprint(), needs.bytes()};
  });
  for (std::size_t i = 1; i < requests.size(); ++i) {
    if (requests[i].fingerprint == requests[0].fingerprint && requests[i].bytes == requests[0].bytes) continue;
    throw invalid_argument(call_text(call, context.rank(), context.size()) + ": the requirements of rank " +
                           std::to_string(i) + " (" + std::to_string(requests[i].bytes) +
                           " bytes) differ from those of rank 0 (" + std::to_string(requests[0].bytes) +
                           " bytes); ask for the same resources in the same order on every rank");
  }
  resources_ = detail::allocate_window(context, call, needs.bytes(),
                                       "resources of device communicator " + std::to_string(number));

  comm_.version = device_comm::layout_version;
  comm_.flags = context.options.check_launch ? device_comm::check_launch : 0;
  comm_.rank = context.rank();
  comm_.size = context.size();
  comm_.lsa_first = context.lsa.first;
  comm_.lsa_size = context.lsa.size;
  comm_.resources = resources_.window;
  comm_.lsa_barriers = needs.lsa_barriers();
  comm_.timeout = static_cast<std::uint64_t>(std::chrono::nanoseconds(context.options.kernel_timeout).count());
  context.agree.together(call, [&] {
    auto* header = reinterpret_cast<resource_header*>(comm_.resources.local);
    context.devices.copy(context.device, &header->comm, &comm_, sizeof comm_);
  });
  watched_->attach(comm_.failures);
  listed_ =
      std::make_unique<detail::ledger::entry>(context.made, "device communicator " + std::to_string(number), made);
}

device_communicator::state::~state() { watched_->detach(comm_.failures); }

device_communicator::device_communicator(std::unique_ptr<state> s) : state_(std::move(s)) {}
device_communicator::device_communicator(device_communicator&&) noexcept = default;
device_communicator& device_communicator::operator=(device_communicator&&) noexcept = default;
device_communicator::~device_communicator() = default;

const device_comm& device_communicator::get() const noexcept { return state_->get(); }

std::vector<failure_record> device_communicator::failures() const { return detail::read_failures(state_->log()); }

void device_communicator::check() const {
  const device_comm& comm = state_->get();
  detail::throw_failures(call_text("check", comm.rank, comm.size), detail::sentences(state_->log()));
}

}  // namespace devcomm::host
