#include "rank/process_ranks.hpp"

#include <utility>

namespace devcomm::host::detail {
namespace {

constinit std::mutex registry;

/// Call it with `registry` held, also the first time: race detectors see a mutex, and no initialization on
/// first use.
std::map<std::uint64_t, std::weak_ptr<process_ranks>>& all_communicators() {
  // Outlives every communicator, static ones too.
  static auto& all = *new std::map<std::uint64_t, std::weak_ptr<process_ranks>>;
  return all;
}

}  // namespace

std::shared_ptr<process_ranks> process_ranks::join(std::uint64_t id) {
  const std::lock_guard lock(registry);
  std::weak_ptr<process_ranks>& entry = all_communicators()[id];
  std::shared_ptr<process_ranks> here = entry.lock();
  if (!here) entry = here = std::make_shared<process_ranks>(id);
  return here;
}

process_ranks::~process_ranks() {
  const std::lock_guard lock(registry);
  auto& all = all_communicators();
  const auto entry = all.find(id_);
  if (entry != all.end() && entry->second.expired()) all.erase(entry);
}

void process_ranks::add(int rank, std::shared_ptr<abort_state> aborts) {
  const std::lock_guard lock(mutex_);
  ranks_[rank] = std::move(aborts);
}

void process_ranks::remove(int rank, int culprit, const std::string& text) noexcept {
  peer_links* links = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ranks_.erase(rank) == 0) return;
    links = links_.get();
  }
  if (culprit >= 0) lose(culprit, text);
  if (links != nullptr) links->leave(rank, culprit, text);
}

void process_ranks::abandon(int rank, std::uint64_t number, const std::string& text) noexcept {
  peer_links* links = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [local, aborts] : ranks_) {
      if (local != rank) aborts->lose_device_communicator(number, rank, text);
    }
    links = links_.get();
  }
  if (links != nullptr) links->abandon(rank, number, text);
}

void process_ranks::depart(int rank, std::uint64_t number) noexcept {
  note_departure(number, rank);
  peer_links* links = nullptr;
  {
    const std::lock_guard lock(mutex_);
    links = links_.get();
  }
  if (links != nullptr) links->depart(rank, number);
}

void process_ranks::spread_abort(int rank, const std::string& text) noexcept {
  peer_links* links = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [local, aborts] : ranks_) {
      if (local != rank) aborts->abort_by(rank, text);
    }
    links = links_.get();
  }
  if (links != nullptr) links->abort(rank, text);
}

void process_ranks::open_links() {
  auto links = std::make_unique<peer_links>(
      [this](int rank, const std::string& text) { lose(rank, text); },
      [this](int rank, std::uint64_t number, const std::string& text) { lose_device_communicator(number, rank, text); },
      [this](int rank, const std::string& text) { abort_by(rank, text); },
      [this](int rank, std::uint64_t number) { note_departure(number, rank); });
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
}

peer_links& process_ranks::links() noexcept {
  const std::lock_guard lock(mutex_);
  return *links_;
}

void process_ranks::lose(int rank, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [local, aborts] : ranks_) aborts->lose(rank, text);
}

void process_ranks::lose_device_communicator(std::uint64_t number, int rank, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [local, aborts] : ranks_) aborts->lose_device_communicator(number, rank, text);
}

void process_ranks::abort_by(int rank, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [local, aborts] : ranks_) aborts->abort_by(rank, text);
}

void process_ranks::note_departure(std::uint64_t number, int rank) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [local, aborts] : ranks_) {
    if (local != rank) aborts->note_departure(number, rank);
  }
}

std::shared_ptr<void> process_ranks::share_any(std::uint64_t number, int lsa_first,
                                               const std::function<std::shared_ptr<void>()>& make) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<void>& entry = shared_[{number, lsa_first}];
  std::shared_ptr<void> here = entry.lock();
  if (!here) entry = here = make();
  return here;
}

void process_ranks::store_bootstrap(child_key child, int child_rank, std::shared_ptr<bootstrap> ranks) {
  const std::lock_guard lock(mutex_);
  std::erase_if(bootstraps_, [&](const auto& entry) { return entry.first.first.split < child.split; });
  bootstraps_[{child, child_rank}] = std::move(ranks);
}

std::shared_ptr<bootstrap> process_ranks::take_bootstrap(child_key child, int child_rank) {
  const std::lock_guard lock(mutex_);
  const auto entry = bootstraps_.find({child, child_rank});
  if (entry == bootstraps_.end()) return nullptr;
  std::shared_ptr<bootstrap> ranks = std::move(entry->second);
  bootstraps_.erase(entry);
  return ranks;
}

}  // namespace devcomm::host::detail
