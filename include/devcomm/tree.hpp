/// \file tree.hpp
/// Two binary trees over a team, in which every member is an inner node at most once.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/team.hpp>

namespace devcomm {

/// A member's neighbors in a binary tree, as indices in the team; -1 where there is none.
struct tree_node {
  int32_t parent;
  int32_t left;
  int32_t right;

  DEVCOMM_HOST_DEVICE constexpr bool is_root() const { return parent < 0; }
  /// An inner node has a left child, and perhaps a right one.
  DEVCOMM_HOST_DEVICE constexpr bool is_leaf() const { return left < 0; }
};

namespace detail {

/// Node `position` (1 to `size`) of the in-order tree: the lowest bit that is set is a node's height, so odd positions
/// are leaves. Where a complete tree would have a right child beyond `size`, that child's leftmost descendant within
/// `size` takes its place.
DEVCOMM_HOST_DEVICE constexpr tree_node in_order_node(int32_t position, int32_t size) {
  const int32_t height = position & -position;
  tree_node node{-1, -1, -1};
  const int32_t below = position - height;  // 0: no node lies to the left of this subtree
  const int32_t above = below | (height << 1);
  if (above <= size) {
    node.parent = above;
  } else if (below != 0) {
    node.parent = below;
  }
  if (height == 1) return node;
  node.left = position - height / 2;
  for (int32_t step = height / 2; step != 0 && node.right < 0; step /= 2) {
    if (position + step <= size) node.right = position + step;
  }
  return node;
}

}  // namespace detail

/// The caller's neighbors in tree `tree` (0 or 1) of the double binary tree of `t`, after Sanders, Speck and Träff,
/// "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009): in either tree half of the members
/// are leaves, and an inner node of one is a leaf of the other. Trees that carry half of the data each so load every
/// member with at most the data once down and once up, as a ring does, in a number of steps that grows with the
/// logarithm.
///
/// Tree 1 is tree 0 moved on by one member. Paths from a root have at most log2(`t.size`) edges, rounded down.
///
///     const tree_node up_and_down = double_tree(comm.lsa(), 0);
///     if (!up_and_down.is_root()) send(up_and_down.parent);
DEVCOMM_HOST_DEVICE constexpr tree_node double_tree(team t, int tree) {
  // Members of tree 0 are at positions 1 to size; in tree 1 member 0 comes last, and the others move up by one.
  const bool second = tree != 0;
  const int32_t position = !second ? t.rank + 1 : t.rank == 0 ? t.size : t.rank;
  const tree_node node = detail::in_order_node(position, t.size);
  const int32_t shift = second ? 0 : 1;
  const auto member = [&](int32_t at) { return at < 0 ? -1 : (at - shift) % t.size; };
  return {member(node.parent), member(node.left), member(node.right)};
}

}  // namespace devcomm
