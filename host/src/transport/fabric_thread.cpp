#include "transport/fabric_thread.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_engine.hpp"
#include "util/cpu_list.hpp"
#include "util/deadline.hpp"
#include "util/idle_pauses.hpp"
#include "util/process_stamp.hpp"
#include "util/quiet_thread.hpp"
#include "util/window_number.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace devcomm::host::detail {
namespace {

using clock = std::chrono::steady_clock;

/// What ranks owe to each other takes microseconds. Of a peer that is gone nobody may know here.
constexpr std::chrono::seconds shutdown_limit(1);
/// For the notice itself, of a rank whose waits have ended for longer than `shutdown_limit`.
constexpr std::chrono::milliseconds last_word_limit(100);

void print(int rank, const std::string& text) { std::fprintf(stderr, "devcomm: rank %d: %s\n", rank, text.c_str()); }

}  // namespace

class fabric_thread::service {
 public:
  enum class order : std::uint8_t { run, finish, stop };

  service(backend& devices, int device, service_settings asked, fabric_endpoint& at) : asked_(std::move(asked)) {
    for (std::uint32_t i = 0; i < asked_.asked.contexts; ++i) {
      queues_.push_back(std::make_unique<network_queue>(devices, words_, device, asked_.asked));
    }
    engine_.emplace(fabric_engine::surroundings{asked_.number,
                                                queues_,
                                                [this](const std::string& text) { fail(text); },
                                                asked_.limit,
                                                asked_.first_context,
                                                {&devices, device, devices.traits(),
                                                 asked_.on_device ? devices.open_copies_from_host(device) : nullptr},
                                                [this](int rank) {
                                                  if (asked_.departed) asked_.departed(rank);
                                                }},
                    at);
  }

  [[nodiscard]] const std::vector<std::unique_ptr<network_queue>>& queues() const { return queues_; }
  [[nodiscard]] std::chrono::milliseconds limit() const { return asked_.limit; }
  [[nodiscard]] bool waits_have_ended() const { return is_over_ || engine_->is_left_alone() || asked_.ended(); }
  void tell(order what) { order_ = what; }
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// The thread does not come back: from here on it belongs to it alone.
  void leave_alone() noexcept { engine_->leave_alone(); }
  void fail(const std::string& text) const {
    if (!is_over_ && !engine_->is_left_alone()) asked_.fail(text);
  }

  // While the thread's mutex is locked.

  void attach() { engine_->attach(); }
  /// Does what there is to do now; whether there was anything.
  [[nodiscard]] bool step();
  /// Whether the fabric still has something of it.
  [[nodiscard]] bool end_engine() {
    engine_->end();
    return engine_->is_with_fabric();
  }
  [[nodiscard]] bool is_with_fabric() const { return engine_->is_with_fabric(); }
  void drop_engine() { engine_.reset(); }
  void set_over() { is_over_ = true; }

 private:
  const service_settings asked_;
  network_port words_;  // by ordinary atomic accesses
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::optional<fabric_engine> engine_;
  std::atomic<order> order_ = order::run;
  std::atomic<bool> is_over_ = false;  // nothing will come any more
  // Of the thread.
  clock::time_point ended_since_{};  // when the rank's waits had ended
  clock::time_point leaving_{};      // since when nobody waits
  bool sent_shutdown_notice_ = false;
};

bool fabric_thread::service::step() {
  if (is_over_) return false;
  const bool any = !engine_->is_left_alone() && engine_->step();
  if (engine_->is_left_alone()) {  // the rank's memory and its log are gone
    is_over_ = true;
    return any;
  }
  const bool ended = asked_.ended();
  // Where a rank has several device communicators, the time runs for all of them at once.
  if (ended && ended_since_ == clock::time_point{}) ended_since_ = clock::now();
  const order wanted = order_.load(std::memory_order_relaxed);
  if (wanted == order::run) return any;
  if (wanted == order::stop) {
    is_over_ = true;
    return any;
  }
  const clock::time_point now = clock::now();
  // Of a rank with nothing under way only peers are owed something, who may be gone.
  const bool nobody_waits = engine_->failed() || ended || engine_->is_done_by_peers();
  if (!sent_shutdown_notice_ && (!nobody_waits || leaving_ == clock::time_point{}))
    leaving_ = ended ? ended_since_ : now;
  const bool too_late = nobody_waits && now - leaving_ > shutdown_limit;
  if (!sent_shutdown_notice_ && (too_late || engine_->idle())) {
    engine_->send_shutdown_notice();
    sent_shutdown_notice_ = true;
    leaving_ = ended ? now - shutdown_limit + last_word_limit : now;
    return true;
  }
  // From here on only to peers who may be gone, as they surely are when this rank's waits have ended.
  const bool parted = engine_->idle() && (engine_->has_parted() || ended);
  if (sent_shutdown_notice_ && (parted || now - leaving_ > shutdown_limit)) is_over_ = true;
  return any;
}

/// What the thread works on.
class fabric_thread::core final : public window_table::watcher {
 public:
  core(backend& devices, settings given, std::shared_ptr<window_table> windows, std::unique_ptr<fabric> reached)
      : devices_(devices),
        given_(std::move(given)),
        windows_(std::move(windows)),
        endpoint_({given_.rank, windows_, [rank = given_.rank](const std::string& text) { print(rank, text); },
                   fabric_endpoint::carried_among(given_.ranks), given_.device, given_.fabric_reaches},
                  std::move(reached)) {}
  /// Before the memory that the fabric may still use.
  ~core() override { endpoint_.close({}); }
  core(const core&) = delete;
  core& operator=(const core&) = delete;

  [[nodiscard]] backend& devices() { return devices_; }
  [[nodiscard]] const settings& given() const { return given_; }
  [[nodiscard]] fabric_endpoint& endpoint() { return endpoint_; }
  [[nodiscard]] window_table& windows() { return *windows_; }
  void stop() { stops_ = true; }
  [[nodiscard]] bool has_ended() const { return ended_; }
  [[nodiscard]] bool is_left_alone() const { return is_left_alone_; }

  void run() noexcept {
    devices_.as_other_processes([this] { serve(); });
    ended_ = true;
  }
  /// It does not come back from the fabric.
  void leave_alone() noexcept {
    if (is_left_alone_.exchange(true)) return;
    print(given_.rank, "the network's thread does not come back from " + endpoint_.name() +
                           "; it and what it uses are left to themselves until the process ends");
  }

  void attach(const std::shared_ptr<service>& one);
  /// As `visit`; throws where the thread does not let the endpoint go within `limit`, or has closed it.
  template <class Use>
  void use_endpoint(std::chrono::milliseconds limit, const Use& use);
  /// Where the thread does not let it go, it is left alone.
  void remove(const std::shared_ptr<service>& one);
  void added(std::uint32_t window) noexcept override;
  void removed(std::uint32_t window) noexcept override;

 private:
  void serve() noexcept;
  [[nodiscard]] bool step();
  /// Calls `use` while the thread lets the endpoint go; false where `gives_up(waited)` says that it does not.
  template <class GivesUp, class Use>
  bool visit(const GivesUp& gives_up, const Use& use);
  /// Kernels' waits have ended in all services.
  [[nodiscard]] bool nobody_waits();

  backend& devices_;
  const settings given_;
  std::shared_ptr<window_table> windows_;
  std::mutex mutex_;  // guards the endpoint and the lists once the thread runs
  // Locked inside of the other, to change `serving_` or whether one of it is left alone: so who does not get the other,
  // as the thread is in the fabric, can read it too, and its owner does not go meanwhile.
  std::mutex serving_mutex_;
  fabric_endpoint endpoint_;
  std::vector<std::shared_ptr<service>> serving_;
  std::vector<std::shared_ptr<service>> leaving_;  // whose operations the fabric still has
  std::atomic<int> visitors_ = 0;                  // who want the endpoint, which the thread lets go for them
  std::atomic<bool> stops_ = false;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> is_left_alone_ = false;
  process_stamp made_in_;
};

void fabric_thread::core::serve() noexcept {
  constexpr unsigned long nanoseconds = 1000;
  ::prctl(PR_SET_NAME, "devcomm-network");
  ::prctl(PR_SET_TIMERSLACK, nanoseconds);
  stay_on(given_.cpus);
  try {
    idle_pauses pauses;
    while (!stops_) {
      pauses.after(step());
      while (visitors_.load(std::memory_order_relaxed) != 0) ::sched_yield();
    }
  } catch (const std::exception& problem) {
    // Nobody serves peers any more, who would wait for their limits.
    const std::lock_guard lock(mutex_);
    endpoint_.close("rank " + std::to_string(given_.rank) + ": the network's proxy failed: " + problem.what());
    for (const auto& each : serving_) each->set_over();
  }
}

bool fabric_thread::core::step() {
  const std::lock_guard lock(mutex_);
  bool any = endpoint_.poll();
  for (const auto& each : serving_) any = each->step() || any;
  std::erase_if(leaving_, [](const auto& each) { return !each->is_with_fabric(); });
  return any;
}

template <class GivesUp, class Use>
bool fabric_thread::core::visit(const GivesUp& gives_up, const Use& use) {
  const clock::time_point since = clock::now();
  struct visitor {
    explicit visitor(std::atomic<int>& all) : all_(all) { ++all_; }
    ~visitor() { --all_; }
    std::atomic<int>& all_;
  } const here(visitors_);
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      use();
      return true;
    }
    if (gives_up(clock::now() - since)) return false;
  }
}

bool fabric_thread::core::nobody_waits() {
  const std::lock_guard lock(serving_mutex_);
  return std::all_of(serving_.begin(), serving_.end(), [](const auto& each) { return each->waits_have_ended(); });
}

template <class Use>
void fabric_thread::core::use_endpoint(std::chrono::milliseconds limit, const Use& use) {
  bool is_closed = false;
  const bool visited = visit([&](clock::duration waited) { return waited > limit; },
                             [&] {
                               is_closed = endpoint_.port() == nullptr;
                               if (!is_closed) use();
                             });
  if (is_closed) {
    throw system_error(
        "the network of this communicator has been closed by an earlier failure; make a new communicator");
  }
  if (!visited) {
    throw system_error(endpoint_.name() + " has not come back from a call for " + std::to_string(limit.count()) +
                       " ms; set DEVCOMM_GIN_PROVIDER to another provider");
  }
}

void fabric_thread::core::attach(const std::shared_ptr<service>& one) {
  use_endpoint(one->limit(), [&] {
    one->attach();
    const std::lock_guard lock(serving_mutex_);
    serving_.push_back(one);
  });
}

void fabric_thread::core::remove(const std::shared_ptr<service>& one) {
  constexpr std::chrono::milliseconds patience(100);  // who calls it has waited before
  const bool visited = visit([&](clock::duration waited) { return one->waits_have_ended() && waited > patience; },
                             [&] {
                               const std::lock_guard lock(serving_mutex_);
                               std::erase(serving_, one);
                               if (one->end_engine()) {
                                 leaving_.push_back(one);
                               } else {
                                 one->drop_engine();
                               }
                             });
  if (visited) return;
  {
    const std::lock_guard lock(serving_mutex_);
    one->leave_alone();
  }
  leave_alone();
}

void fabric_thread::core::added(std::uint32_t window) noexcept {
  if (!made_in_.here()) return;
  constexpr std::chrono::milliseconds patience(100);
  // A thread that is away for longer registers the window when it is used.
  static_cast<void>(visit([&](clock::duration waited) { return waited > patience; },
                          [&] {
                            try {
                              endpoint_.prepare(window);
                            } catch (const std::exception& problem) {
                              print(given_.rank, "window " + std::to_string(window_number(window)) +
                                                     " is not registered yet: " + problem.what());
                            }
                          }));
}

void fabric_thread::core::removed(std::uint32_t window) noexcept {
  if (!made_in_.here()) return;  // a forked child has no thread, and its mutex may be locked for ever
  constexpr std::chrono::seconds patience(2);
  const deadline limit(patience);
  // A provider that registers much memory is away for long.
  std::chrono::milliseconds longest = patience;
  {
    const std::lock_guard lock(serving_mutex_);
    for (const auto& each : serving_) longest = std::max(longest, each->limit());
  }
  for (bool in_use = true; in_use; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    const bool visited = visit([&](clock::duration waited) { return waited > (nobody_waits() ? patience : longest); },
                               [&] {
                                 in_use = endpoint_.forget(window);
                                 if (in_use && limit.passed()) {
                                   endpoint_.take_away(window);
                                   in_use = false;
                                 }
                               });
    if (visited) continue;
    in_use = false;
    const std::lock_guard lock(serving_mutex_);
    for (const auto& each : serving_) {
      each->fail(
          "rank " + std::to_string(given_.rank) + ": window " + std::to_string(window_number(window)) +
          " is freed, and " + endpoint_.name() + " has not come back from a call for " +
          std::to_string(longest.count()) +
          " ms: its device communicator is abandoned; destroy it, or set DEVCOMM_GIN_PROVIDER to another provider");
      each->leave_alone();
    }
  }
}

fabric_thread::fabric_thread(backend& devices, settings given, std::shared_ptr<window_table> windows,
                             std::unique_ptr<fabric> reached)
    : core_(std::make_shared<core>(devices, std::move(given), std::move(windows), std::move(reached))) {}

fabric_thread::~fabric_thread() {
  core_->windows().remove_watcher(*core_);
  if (!thread_.joinable()) return;
  core_->stop();
  // A provider that shares memory with a process that was killed may wait for its locks for ever (shm of
  // libfabric 1.17).
  const clock::time_point since = clock::now();
  while (!core_->has_ended() && !core_->is_left_alone() && clock::now() - since < 3 * shutdown_limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (core_->has_ended()) {
    thread_.join();
  } else {
    core_->leave_alone();
    thread_.detach();
  }
}

fabric_endpoint::card fabric_thread::own_card() const { return core_->endpoint().own_card(); }

remote_address fabric_thread::offer_table(std::size_t bytes) { return core_->endpoint().offer_table(bytes); }

void fabric_thread::fill_table(std::vector<std::byte> bytes) { core_->endpoint().table().fill(std::move(bytes)); }

void fabric_thread::connect(const std::vector<fabric_endpoint::card>& cards, std::chrono::milliseconds limit) {
  if (thread_.joinable()) {
    core_->use_endpoint(limit, [&] { core_->endpoint().connect(cards); });
    return;
  }
  core_->endpoint().connect(cards);
  core_->windows().add_watcher(*core_);
  thread_ = quiet_thread([own = core_] { own->run(); });
}

std::vector<std::byte> fabric_thread::read_table(int peer, remote_address from, std::chrono::milliseconds limit) {
  core_->use_endpoint(limit, [&] { core_->endpoint().table().begin_read(peer, from); });
  const deadline until(limit);
  for (std::optional<std::vector<std::byte>> found; !until.passed();
       std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    core_->use_endpoint(limit, [&] { found = core_->endpoint().table().found(); });
    if (found) return std::move(*found);
  }
  throw timeout_error("the addresses of the network could not be read from rank " + std::to_string(peer) + " within " +
                      until.limit_text() +
                      "; set DEVCOMM_ADDRESS or DEVCOMM_INTERFACE to a network on which all hosts reach each other");
}

std::shared_ptr<fabric_thread::service> fabric_thread::serve(service_settings asked) {
  auto made = std::make_shared<service>(core_->devices(), core_->given().device, std::move(asked), core_->endpoint());
  core_->attach(made);
  return made;
}

const std::vector<std::unique_ptr<network_queue>>& fabric_thread::queues_of(const service& one) { return one.queues(); }

void fabric_thread::finish(service& one) noexcept { one.tell(service::order::finish); }

void fabric_thread::end(const std::shared_ptr<service>& one) noexcept {
  finish(*one);
  remove(one);
}

void fabric_thread::abandon(const std::shared_ptr<service>& one) noexcept {
  one->tell(service::order::stop);
  remove(one);
  for (const auto& queue : one->queues()) queue->abandon();
}

void fabric_thread::remove(const std::shared_ptr<service>& one) noexcept {
  const clock::time_point since = clock::now();
  const auto is_stuck = [&] { return one->waits_have_ended() && clock::now() - since > 3 * shutdown_limit; };
  while (!one->is_over() && !is_stuck()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  core_->remove(one);
}

}  // namespace devcomm::host::detail
