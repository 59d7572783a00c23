#include "perf/left_out.hpp"

#include "perf/options.hpp"

namespace perf {

void left_out::add(const std::string& algorithm, std::uint64_t bytes, const std::string& reason) {
  entry* same = nullptr;
  for (entry& known : entries_) {
    if (known.algorithm != algorithm) continue;
    if (known.reason == reason) {
      same = &known;
    } else {
      known.goes_on = false;
    }
  }
  if (reason.empty()) return;
  if (same == nullptr) same = &entries_.emplace_back(entry{algorithm, reason, {}, false});
  if (same->goes_on) {
    same->sizes.back().last = bytes;
  } else {
    same->sizes.push_back({bytes, bytes});
  }
  same->goes_on = true;
}

std::vector<std::string> left_out::lines() const {
  std::vector<std::string> all;
  for (const entry& one : entries_) {
    std::string sizes;
    for (const range& part : one.sizes) {
      sizes += (sizes.empty() ? "" : ", ") + bytes_text(part.first);
      if (part.last != part.first) sizes += " to " + bytes_text(part.last);
    }
    all.push_back(one.algorithm + " for " + sizes + ": " + one.reason);
  }
  return all;
}

}  // namespace perf
