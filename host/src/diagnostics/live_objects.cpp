#include "diagnostics/live_objects.hpp"

#include "util/call_text.hpp"

#include <cstdio>
#include <set>
#include <utility>

namespace devcomm::host::detail {
namespace {

struct all_ledgers {
  std::mutex mutex;
  std::set<ledger*> list;
};

/// Outlives everything, as some are left when the process ends.
all_ledgers& all() {
  static auto& only = *new all_ledgers;
  return only;
}

}  // namespace

ledger::ledger(int rank, int size) : rank_(rank), size_(size) {
  const std::lock_guard lock(all().mutex);
  all().list.insert(this);
}

ledger::~ledger() {
  const std::lock_guard lock(all().mutex);
  all().list.erase(this);
}

void ledger::report(const char* when) noexcept {
  const std::lock_guard lock(mutex_);
  for (item& each : items_) {
    if (each.reported) continue;
    each.reported = true;
    std::fprintf(stderr, "devcomm: rank %d of %d: %s, made at %s:%u, %s\n", rank_, size_, each.what.c_str(),
                 each.made.file, each.made.line, when);
  }
}

void ledger::report_left() noexcept { report("is alive when its communicator is destroyed; destroy it first"); }

std::size_t ledger::report_all() noexcept {
  const std::lock_guard lock(all().mutex);
  std::size_t count = 0;
  for (ledger* each : all().list) {
    each->report("was never destroyed");
    count += each->items_.size();
  }
  return count;
}

ledger::entry::entry(std::shared_ptr<ledger> list, const std::string& what, code_place made) : list_(std::move(list)) {
  const std::lock_guard lock(list_->mutex_);
  item_ = list_->items_.insert(list_->items_.end(), {what, made, false});
}

ledger::entry::~entry() {
  const std::lock_guard lock(list_->mutex_);
  list_->items_.erase(item_);
}

}  // namespace devcomm::host::detail
