#include "diagnostics/waits_for_graph.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <vector>

using devcomm::host::detail::waits_for_graph;
using nodes = std::vector<std::size_t>;

TEST_CASE("edges are kept once, in ascending order") {
  waits_for_graph graph(3);
  graph.add_edge(0, 2);
  graph.add_edge(0, 1);
  graph.add_edge(0, 2);
  CHECK(graph.waits_for(0) == nodes{1, 2});
  CHECK(graph.waits_for(1).empty());
  CHECK(graph.add_node() == 3);
  CHECK(graph.size() == 4);
}

TEST_CASE("what a node waits for through others is reachable, itself only in a cycle") {
  waits_for_graph graph(5);
  graph.add_edge(0, 1);
  graph.add_edge(1, 2);
  graph.add_edge(2, 1);
  CHECK(graph.reachable(0) == nodes{1, 2});
  CHECK(graph.reachable(1) == nodes{1, 2});
  CHECK(graph.reachable(4).empty());
}

TEST_CASE("the cycle through a node is a shortest one that begins with it") {
  waits_for_graph graph(5);
  for (std::size_t i = 0; i < 5; ++i) graph.add_edge(i, (i + 1) % 5);
  CHECK(graph.cycle_through(3) == nodes{3, 4, 0, 1, 2});
  CHECK(graph.cycle_through(3, 6) == nodes{3, 4, 0, 1, 2});
  CHECK(graph.cycle_through(3, 5).empty());
  graph.add_edge(4, 3);
  CHECK(graph.cycle_through(3) == nodes{3, 4});
  CHECK(graph.cycle_through(1) == nodes{1, 2, 3, 4, 0});
}

TEST_CASE("a node that waits for itself is no cycle of several") {
  waits_for_graph graph(2);
  graph.add_edge(0, 0);
  graph.add_edge(1, 0);
  CHECK(graph.waits_for_itself(0));
  CHECK_FALSE(graph.waits_for_itself(1));
  CHECK(graph.cycle_through(0).empty());
  CHECK(graph.cycle_through(1).empty());
}
