/// \file wait_graph.hpp
/// Who waits for whom in a deadlock.
#pragma once

#include "report/snapshot.hpp"

#include <diagnostics/waits_for_graph.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

/// Consecutive threads of a block that wait in the same way, or something else that others wait for.
struct waiting_threads {
  std::string who;     ///< "rank 0, block 1, threads 3-63"
  std::string where;   ///< "LSA barrier 1", "__syncthreads"
  std::string what;    ///< the whole of it: "LSA barrier 1: waits for rank 2 to reach epoch 2, saw 1"
  std::string column;  ///< whose it is: "rank 0"
  bool in_cycle = false;
};

struct wait_graph {
  std::vector<waiting_threads> nodes;
  host::detail::waits_for_graph edges;
  /// Each waits for the next one, and the last for the first; a shortest one, empty when there is none.
  std::vector<size_t> cycle;
};

[[nodiscard]] wait_graph make_wait_graph(const snapshot& all);

/// In Graphviz' language.
[[nodiscard]] std::string draw_dot(const wait_graph& graph);
/// A picture by itself, with a column for each rank.
[[nodiscard]] std::string draw_svg(const wait_graph& graph);

}  // namespace devcomm::simulator::detail
