#include "communicator/context_of.hpp"
#include "communicator/device_communicator_state.hpp"
#include "communicator/ended_rank.hpp"
#include "communicator/split.hpp"
#include "communicator/write_trace.hpp"
#include "memory/captured_buffers_state.hpp"
#include "memory/symmetric_memory_state.hpp"
#include "util/deadline.hpp"
#include "util/profiler_range.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <utility>

namespace devcomm::host {

class communicator::state : public detail::rank_context {
 public:
  using rank_context::rank_context;
};

namespace {

std::shared_ptr<bootstrap> require(std::shared_ptr<bootstrap> ranks) {
  if (ranks) return ranks;
  throw invalid_argument(
      "communicator: the bootstrap is null; give one, for example thread_bootstraps' or "
      "environment_bootstrap's");
}

}  // namespace

communicator::communicator(std::shared_ptr<bootstrap> ranks, communicator_options options) {
  const detail::range shown("communicator");
  state_.reset(new state("communicator", require(std::move(ranks)), options));
}
communicator::communicator() noexcept = default;
communicator::communicator(communicator&&) noexcept = default;
communicator& communicator::operator=(communicator&&) noexcept = default;
communicator::~communicator() = default;

void communicator::destroyer::operator()(state* s) const noexcept {
  if (s->made_in.here()) delete s;
}

int communicator::rank() const noexcept { return state_->rank(); }
int communicator::size() const noexcept { return state_->size(); }
int communicator::device() const noexcept { return state_->device; }
team communicator::world() const noexcept { return world_team(rank(), size()); }
team communicator::lsa() const noexcept { return state_->lsa; }
const std::vector<int>& communicator::lsa_ranks() const noexcept { return state_->lsa_ranks; }
const std::vector<int>& communicator::lsa_ring() const noexcept { return state_->lsa_ring; }
team communicator::rail() const {
  const team lsa = state_->lsa;
  if (const capability& rails = state_->properties.rail; !rails.available) {
    throw not_supported(detail::call_text("rail", rank(), size()) + ": there are no rails: " + rails.reason);
  }
  if (state_->placed == detail::placement::block) return outer_factor(world(), lsa.size);
  const int teams = size() / lsa.size;
  return {rank() % teams, teams, lsa.rank * teams, 1};
}
const properties& communicator::properties() const noexcept { return state_->properties; }

symmetric_memory communicator::allocate(std::size_t bytes, std::string_view name, devcomm::multimem::policy asked,
                                        code_place made) {
  const detail::range shown("allocate");
  return symmetric_memory(
      std::unique_ptr<symmetric_memory::state, symmetric_memory::destroyer>(new symmetric_memory::state(
          *state_, detail::allocate_window(*state_, "allocate", bytes, std::string(name), {.multimem = asked}), made)));
}

symmetric_memory communicator::allocate(std::size_t bytes, memory_place place, std::string_view name, code_place made) {
  const detail::range shown("allocate");
  return symmetric_memory(
      std::unique_ptr<symmetric_memory::state, symmetric_memory::destroyer>(new symmetric_memory::state(
          *state_, detail::allocate_window(*state_, "allocate", bytes, std::string(name), {.place = place}), made)));
}

symmetric_memory communicator::register_memory(void* local, std::size_t bytes, std::string_view name, code_place made) {
  return register_memory(local, bytes, std::string(name), detail::registered_layout::table, made);
}

symmetric_memory communicator::register_memory(void* local, std::size_t bytes, const std::string& name,
                                               detail::registered_layout layout, code_place made) {
  const detail::range shown("register_memory");
  return symmetric_memory(
      std::unique_ptr<symmetric_memory::state, symmetric_memory::destroyer>(new symmetric_memory::state(
          *state_, detail::register_window(*state_, "register_memory", local, bytes, name, layout), made)));
}

captured_buffers communicator::collect_buffers(std::size_t most, std::string_view name, code_place made) {
  const detail::range shown("collect_buffers");
  return captured_buffers(std::unique_ptr<captured_buffers::state, captured_buffers::destroyer>(
      new captured_buffers::state(*state_, "collect_buffers", most, std::string(name), made)));
}

void communicator::register_buffers(captured_buffers& added) {
  const detail::range shown("register_buffers");
  added.state_->register_new(*state_, "register_buffers");
}

requirements communicator::requirements() const {
  // The same on all ranks that call as often, so that ranks of one process may share handles.
  const std::uint64_t number = state_->identity * 0x9e3779b97f4a7c15u + ++state_->requirements * 0xd6e8feb86659fd93u;
  return devcomm::requirements(state_->lsa, static_cast<std::uint16_t>(1 + (number >> 32) % 0xffff));
}

device_communicator communicator::create_device_comm(const devcomm::requirements& needs, code_place made) {
  const detail::range shown("create_device_comm");
  return device_communicator(std::unique_ptr<device_communicator::state, device_communicator::destroyer>(
      new device_communicator::state(*state_, "create_device_comm", needs, made)));
}

std::unique_ptr<communicator> communicator::split(int color, int key) {
  const detail::range shown("split");
  const detail::child_bootstrap start = detail::plan_child(*state_, "split", color, key);
  std::unique_ptr<communicator> child;
  // A rank that fails early waits here while the others, inside, wait for it.
  state_->agree.with_limit(2 * state_->agree.limit()).together("split", [&] {
    if (!start) return;
    child.reset(new communicator);
    child->state_.reset(new state("split", start(), *state_));
  });
  return child;
}

void communicator::write_trace(const device_communicator& traced, const std::string& path) {
  const detail::range shown("write_trace");
  detail::write_trace(*state_, "write_trace", traced.get(), traced.state_->trace(), path);
}

void communicator::clear_trace(const device_communicator& traced) {
  const detail::range shown("clear_trace");
  detail::clear_trace(*state_, "clear_trace", traced.get(), traced.state_->trace());
}

void communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const detail::range shown("all_gather");
  const std::vector<std::byte> gathered =
      state_->agree.gather_bytes("all_gather", mine.size(), [&](std::span<std::byte> part) {
        const std::size_t needed = mine.size() * static_cast<std::size_t>(size());
        if (all.size() != needed)
          throw invalid_argument("room for " + std::to_string(all.size()) + " bytes, but " + std::to_string(size()) +
                                 " ranks give " + std::to_string(mine.size()) + " each: make it " +
                                 std::to_string(needed));
        std::copy(mine.begin(), mine.end(), part.begin());
      });
  std::copy(gathered.begin(), gathered.end(), all.begin());
}

void communicator::barrier() {
  const detail::range shown("barrier");
  state_->agree.together("barrier", [] {});
}

void communicator::abort() noexcept {
  if (state_->made_in.here()) state_->abort();
}
bool communicator::aborted() const noexcept { return state_->aborts->aborted(); }
int communicator::dead_rank() const noexcept { return state_->aborts->lost_rank(); }
void communicator::check() const { state_->aborts->check(); }

detail::rank_context& detail::context_of::get(communicator& of) { return *of.state_; }
symmetric_memory detail::context_of::register_with_stride(communicator& of, void* local, std::size_t bytes,
                                                          const std::string& name, code_place made) {
  return of.register_memory(local, bytes, name, registered_layout::one_stride, made);
}

void detail::ended_rank::finish(communicator& returned) {
  const communicator::state& c = *returned.state_;
  if (!c.made_in.here()) return;
  const std::chrono::milliseconds limit = c.options.kernel_timeout + c.options.limit;
  if (!c.devices.wait_until_idle(c.device, limit)) {
    throw timeout_error(detail::call_text("run_ranks", c.rank(), c.size()) + ": the function returned, and " +
                        detail::deadline(limit).limit_text() + " later kernels still run on device " +
                        std::to_string(c.device) +
                        "; synchronize with their streams, and see which of them does not end");
  }
  if (const std::string broken = c.devices.kernel_failure(c.device); !broken.empty()) {
    throw kernel_error(detail::call_text("run_ranks", c.rank(), c.size()) +
                       ": the function returned, and a kernel has failed: " + broken);
  }
  c.aborts->check_unseen();
}
void detail::ended_rank::leave(communicator& failed, const std::string& reason) noexcept {
  if (failed.state_->made_in.here()) failed.state_->leave(reason);
}
bool detail::ended_rank::follows_another(const communicator& failed) {
  return failed.state_->aborts->follows_another();
}

}  // namespace devcomm::host
