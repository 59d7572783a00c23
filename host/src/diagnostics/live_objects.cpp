#include "diagnostics/live_objects.hpp"

#include "util/call_text.hpp"

#include <cstdio>
#include <set>
#include <utility>

namespace devcomm::host::detail {
namespace {

struct every_list {
  std::mutex mutex;
  std::set<live_objects*> lists;
};

/// Never destroyed: objects may be left when the process ends.
every_list& all_lists() {
  static auto& only = *new every_list;
  return only;
}

}  // namespace

live_objects::live_objects(int rank, int size) : rank_(rank), size_(size) {
  const std::lock_guard lock(all_lists().mutex);
  all_lists().lists.insert(this);
}

live_objects::~live_objects() {
  const std::lock_guard lock(all_lists().mutex);
  all_lists().lists.erase(this);
}

void live_objects::report(const char* when) noexcept {
  const std::lock_guard lock(mutex_);
  for (item& each : items_) {
    if (each.reported) continue;
    each.reported = true;
    std::fprintf(stderr, "devcomm: rank %d of %d: %s, made at %s:%u, %s\n", rank_, size_, each.what.c_str(),
                 each.made.file, each.made.line, when);
  }
}

void live_objects::report_left() noexcept { report("is alive when its communicator is destroyed; destroy it first"); }

std::size_t live_objects::report_all() noexcept {
  const std::lock_guard lock(all_lists().mutex);
  std::size_t count = 0;
  for (live_objects* each : all_lists().lists) {
    each->report("was never destroyed");
    count += each->items_.size();
  }
  return count;
}

live_objects::entry::entry(std::shared_ptr<live_objects> list, const std::string& what, code_place made)
    : list_(std::move(list)) {
  const std::lock_guard lock(list_->mutex_);
  item_ = list_->items_.insert(list_->items_.end(), {what, made, false});
}

live_objects::entry::~entry() {
  const std::lock_guard lock(list_->mutex_);
  list_->items_.erase(item_);
}

}  // namespace devcomm::host::detail
