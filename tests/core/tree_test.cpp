#include <devcomm/tree.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <vector>

using namespace devcomm;

namespace {

constexpr int max_ranks = 1024;

constexpr tree_node node_of(int rank, int size, int tree) { return double_tree(world_team(rank, size), tree); }

constexpr bool same(tree_node a, tree_node b) { return a.parent == b.parent && a.left == b.left && a.right == b.right; }

constexpr int floor_log2(int value) {
  int exponent = 0;
  while (value >> (exponent + 1) != 0) ++exponent;
  return exponent;
}

// Known trees, in constant expressions. Seven members: complete trees with the roots 3 and 4.
static_assert(same(node_of(0, 1, 0), {-1, -1, -1}) && same(node_of(0, 1, 1), {-1, -1, -1}));
static_assert(same(node_of(0, 2, 0), {1, -1, -1}) && same(node_of(1, 2, 0), {-1, 0, -1}));
static_assert(same(node_of(0, 2, 1), {-1, 1, -1}) && same(node_of(1, 2, 1), {0, -1, -1}));
static_assert(same(node_of(3, 7, 0), {-1, 1, 5}) && same(node_of(1, 7, 0), {3, 0, 2}));
static_assert(same(node_of(4, 7, 1), {-1, 2, 6}) && same(node_of(6, 7, 1), {4, 5, 0}));
static_assert(same(node_of(0, 7, 1), {6, -1, -1}));
// Six: the root's right child would be 6, whose left child 5 is a leaf.
static_assert(same(node_of(3, 6, 0), {-1, 1, 5}) && same(node_of(5, 6, 0), {3, 4, -1}));
// Five: the right child of the root would be beyond the last; the leaf below it takes its place.
static_assert(same(node_of(3, 5, 0), {-1, 1, 4}) && same(node_of(4, 5, 0), {3, -1, -1}));

constexpr bool is_in_two_trees(int size) {
  for (int rank = 0; rank < size; ++rank) {
    if (!node_of(rank, size, 0).is_leaf() && !node_of(rank, size, 1).is_leaf()) return false;
  }
  return true;
}
static_assert(is_in_two_trees(33) && is_in_two_trees(64));

/// Every edge of the tree, seen from the parent and from the child, is the same.
bool relations_agree(int size, int tree) {
  for (int rank = 0; rank < size; ++rank) {
    const tree_node node = node_of(rank, size, tree);
    if (node.left < 0 && node.right >= 0) return false;
    if (node.left >= 0 && node.left == node.right) return false;
    for (const int child : {node.left, node.right}) {
      if (child >= size || (child >= 0 && node_of(child, size, tree).parent != rank)) return false;
    }
    if (node.parent < 0) continue;
    const tree_node parent = node_of(node.parent, size, tree);
    if (parent.left != rank && parent.right != rank) return false;
  }
  return true;
}

/// Edges from `rank` to the root, or -1 when they do not lead there.
int depth_of(int rank, int size, int tree) {
  int edges = 0;
  for (tree_node node = node_of(rank, size, tree); !node.is_root(); node = node_of(node.parent, size, tree)) {
    if (++edges >= size) return -1;
  }
  return edges;
}

template <class Body>
void for_each_tree(Body body) {
  for (int size = 1; size <= max_ranks; ++size) {
    for (const int tree : {0, 1}) {
      if (!body(size, tree)) FAIL("tree " << tree << " of " << size << " ranks");
    }
  }
}

}  // namespace

TEST_CASE("parents and children of the double binary tree agree") { for_each_tree(relations_agree); }

TEST_CASE("each of the two trees spans all ranks from one root") {
  for_each_tree([](int size, int tree) {
    int roots = 0;
    std::vector<int> reached(static_cast<std::size_t>(size));
    std::vector<int> open;
    for (int rank = 0; rank < size; ++rank) {
      if (!node_of(rank, size, tree).is_root()) continue;
      ++roots;
      open.push_back(rank);
    }
    while (!open.empty()) {
      const int rank = open.back();
      open.pop_back();
      if (reached[static_cast<std::size_t>(rank)]++ != 0) return false;
      const tree_node node = node_of(rank, size, tree);
      for (const int child : {node.left, node.right}) {
        if (child >= 0) open.push_back(child);
      }
    }
    for (const int times : reached) {
      if (times != 1) return false;
    }
    return roots == 1;
  });
}

TEST_CASE("every rank is a leaf in at least one of the two trees") {
  for (int size = 1; size <= max_ranks; ++size) {
    if (!is_in_two_trees(size)) FAIL(size << " ranks");
  }
}

TEST_CASE("the roots of the two trees differ from two ranks on") {
  for (int size = 2; size <= max_ranks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      if (node_of(rank, size, 0).is_root() && node_of(rank, size, 1).is_root()) FAIL(size << " ranks");
    }
  }
}

TEST_CASE("no path in the double binary tree is longer than the logarithm of its ranks") {
  for_each_tree([](int size, int tree) {
    for (int rank = 0; rank < size; ++rank) {
      const int depth = depth_of(rank, size, tree);
      if (depth < 0 || depth > floor_log2(size)) return false;
    }
    return true;
  });
}

TEST_CASE("trees of teams of many thousand ranks are in bounds") {
  for (const int size : {16384, 131071, 1 << 20}) {
    for (const int tree : {0, 1}) {
      for (int rank = 0; rank < size; rank += 997) {
        const int depth = depth_of(rank, size, tree);
        if (depth < 0 || depth > floor_log2(size)) FAIL("rank " << rank << " of " << size << ", tree " << tree);
      }
    }
  }
}
