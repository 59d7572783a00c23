/// \file exchange.hpp
/// Small values from rank to rank, whether ranks are threads or processes.
#pragma once

#include <devcomm/host/communicator.hpp>

#include <algorithm>
#include <vector>

namespace perf {

/// *Collective*: every call.
class exchange {
 public:
  explicit exchange(devcomm::host::communicator& comm) : comm_(comm) {}

  /// Every rank's `mine`, rank 0's first. `T` is trivially copyable.
  template <class T>
  std::vector<T> gather(const T& mine) {
    return comm_.all_gather(mine);
  }

  template <class T>
  T largest(const T& mine) {
    const std::vector<T> all = gather(mine);
    return *std::max_element(all.begin(), all.end());
  }
  template <class T>
  T total(const T& mine) {
    T sum{};
    for (const T& value : gather(mine)) sum += value;
    return sum;
  }

 private:
  devcomm::host::communicator& comm_;
};

}  // namespace perf
