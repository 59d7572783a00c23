#include "perf/algorithm.hpp"

namespace perf {
namespace {

std::vector<std::unique_ptr<operation>>& registered() {
  static std::vector<std::unique_ptr<operation>> all;
  return all;
}

}  // namespace

const std::vector<std::unique_ptr<operation>>& operations() { return registered(); }

bool register_operation(std::unique_ptr<operation> added) {
  registered().push_back(std::move(added));
  return true;
}

}  // namespace perf
