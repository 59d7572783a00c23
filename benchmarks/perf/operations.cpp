#include "perf/algorithm.hpp"

#include <algorithm>

namespace perf {
namespace {

std::vector<std::unique_ptr<operation>>& registered() {
  static std::vector<std::unique_ptr<operation>> all;
  return all;
}

}  // namespace

const std::vector<std::unique_ptr<operation>>& operations() { return registered(); }

bool register_operation(std::unique_ptr<operation> added) {
  auto& all = registered();
  const auto place =
      std::find_if(all.begin(), all.end(), [&](const auto& other) { return added->name() < other->name(); });
  all.insert(place, std::move(added));
  return true;
}

}  // namespace perf
