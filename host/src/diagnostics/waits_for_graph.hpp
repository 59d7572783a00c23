/// \file waits_for_graph.hpp
/// Who waits for whom, as deadlock detection needs it; for the watchdog and for whoever else explains waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace devcomm::host::detail {

/// A directed graph whose nodes are numbered from 0. An edge goes from a node that waits to one that it waits for.
class waits_for_graph {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  explicit waits_for_graph(std::size_t nodes = 0) : edges_(nodes) {}

  /// The number of the new node.
  std::size_t add_node() {
    edges_.emplace_back();
    return edges_.size() - 1;
  }
  /// An edge that is there already is not added again.
  void add_edge(std::size_t from, std::size_t to) {
    std::vector<std::size_t>& all = edges_[from];
    const auto at = std::lower_bound(all.begin(), all.end(), to);
    if (at == all.end() || *at != to) all.insert(at, to);
  }

  [[nodiscard]] std::size_t size() const { return edges_.size(); }
  /// What `node` waits for itself, ascending.
  [[nodiscard]] const std::vector<std::size_t>& waits_for(std::size_t node) const { return edges_[node]; }
  [[nodiscard]] bool waits_for_itself(std::size_t node) const {
    return std::binary_search(edges_[node].begin(), edges_[node].end(), node);
  }

  /// What `node` waits for, directly or through others, ascending.
  [[nodiscard]] std::vector<std::size_t> reachable(std::size_t node) const {
    std::vector<bool> seen(size());
    std::vector<std::size_t> found;
    std::vector<std::size_t> open{node};
    while (!open.empty()) {
      const std::size_t next = open.back();
      open.pop_back();
      for (const std::size_t to : edges_[next]) {
        if (seen[to]) continue;
        seen[to] = true;
        found.push_back(to);
        open.push_back(to);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// A shortest cycle of at least two nodes through `start`, which comes first, with fewer nodes than `limit`; empty
  /// when there is none. Breadth-first search.
  [[nodiscard]] std::vector<std::size_t> cycle_through(std::size_t start, std::size_t limit = none) const {
    std::vector<std::size_t> before(size(), none);
    std::vector<std::size_t> layer{start};
    for (std::size_t length = 1; !layer.empty() && length < limit; ++length) {
      std::vector<std::size_t> next;
      for (const std::size_t node : layer) {
        for (const std::size_t to : edges_[node]) {
          if (to == node) continue;
          if (to == start) return path(before, start, node);
          if (before[to] != none) continue;
          before[to] = node;
          next.push_back(to);
        }
      }
      layer.swap(next);
    }
    return {};
  }

 private:
  static std::vector<std::size_t> path(const std::vector<std::size_t>& before, std::size_t start, std::size_t end) {
    std::vector<std::size_t> nodes;
    for (std::size_t node = end; node != start; node = before[node]) nodes.push_back(node);
    nodes.push_back(start);
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }

  std::vector<std::vector<std::size_t>> edges_;
};

}  // namespace devcomm::host::detail
