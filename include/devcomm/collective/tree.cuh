/// \file tree.cuh
/// All-reduce up and down a binary tree, through FIFOs: twice the logarithm of the ranks in trips, where a ring takes
/// twice their number.
#pragma once

#include <devcomm/channel/session.cuh>
#include <devcomm/collective/ring.cuh>
#include <devcomm/data/slice.hpp>
#include <devcomm/tree.hpp>

namespace devcomm::collective {

/// FIFOs that a group needs for its position in a tree.
inline constexpr uint32_t fifos_of_tree = 3;

/// A group's position in one of the two trees of `double_tree`. Groups with an even `index` share one tree, those with
/// an odd one the other, so that half of the data goes through each; FIFOs are `fifos_of_tree` for each index.
///
///     const collective::tree_position position{block{}, comm, comm.lsa(), fifos, blockIdx.x};
///     collective::all_reduce_tree<float>(position, slice_of_block(packs_of<float>(count)), from_memory<float>{input,
///     count},
///                                        to_memory<float>{output, count}, sum{});
template <channel::protocol Protocol, class Group>
class tree_position {
 public:
  static constexpr channel::protocol protocol = Protocol;
  using group_type = Group;

  DEVCOMM_DEVICE tree_position(Group group, const device_comm& comm, const team& members,
                               const channel::fifo_handle<Protocol>& fifos, uint32_t index)
      : group_(group),
        comm_(comm),
        members_(members),
        fifos_(fifos),
        tree_(static_cast<int>(index % 2)),
        first_(index * fifos_of_tree),
        node_(double_tree(members, tree_)) {}

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const device_comm& comm() const { return comm_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  DEVCOMM_DEVICE const channel::fifo_handle<Protocol>& fifos() const { return fifos_; }
  DEVCOMM_DEVICE const tree_node& node() const { return node_; }

  // The ends of FIFOs from, and to, its neighbors.

  DEVCOMM_DEVICE channel::endpoint left() const { return {node_.left, first_, first_ + up}; }
  DEVCOMM_DEVICE channel::endpoint right() const { return {node_.right, first_ + 1, first_ + up}; }
  DEVCOMM_DEVICE channel::endpoint parent() const {
    if (node_.is_root()) return channel::endpoint::none();
    const team theirs{node_.parent, members_.size, members_.first, members_.stride};
    const bool is_left = double_tree(theirs, tree_).left == members_.rank;
    return {node_.parent, first_ + up, first_ + (is_left ? 0 : 1)};
  }

 private:
  static constexpr uint32_t up = 2;  // after the children's

  Group group_;
  const device_comm& comm_;
  team members_;
  channel::fifo_handle<Protocol> fifos_;
  int tree_;
  uint32_t first_;
  tree_node node_;
};

/// Every rank gets the reduction of all ranks' vectors: chunks of a slot go up to the root, each rank adds its own to
/// its children's, and results come down behind them. Each rank sends the vector once up and, to each child, once down.
/// Elements are reduced in the order of the tree, which is the same in every run; all ranks get the bits of the root.
///
/// `produce`, `consume` and memory are as for `all_reduce_ring`. *Collective* over the group on every rank of the team,
/// with the same `packs`.
template <class T, class Position, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_tree(const Position& position, slice packs, const Produce& produce,
                                    const Consume& consume, const Operator& op) {
  using group_type = typename Position::group_type;
  constexpr channel::protocol protocol = Position::protocol;
  const tree_node& node = position.node();
  const int size = position.members().size;
  if (size == 1) return detail::reduce_alone<T>(position.group(), packs, produce, consume, op);
  const uint64_t chunk = position.fifos().packs;
  if (chunk == 0) return;
  const trace_span traced{
      position.group(), reinterpret_cast<resource_header*>(position.comm().resources.local),
      call_span{collective_call::all_reduce_tree, static_cast<uint32_t>(operation::fifo_receive), packs.size()}.pack()};
  const auto part = [&](uint64_t i) -> slice {
    const uint64_t begin = packs.begin + i * chunk;
    return {begin, packs.end - begin < chunk ? packs.end : begin + chunk};
  };
  const uint64_t chunks = (packs.size() + chunk - 1) / chunk;
  const channel::endpoint children[2] = {position.left(), position.right()};
  if (node.is_root()) {
    channel::session<protocol, group_type, 2, 2> turn{position.group(), position.comm(), position.members(),
                                                      position.fifos(), children,        children};
    for (uint64_t i = 0; i < chunks; ++i) turn.template recv_reduce_copy_send<T>(part(i), produce, consume, op, size);
    return;
  }
  const channel::endpoint parent = position.parent();
  const channel::endpoint up_to[1] = {parent};
  channel::session<protocol, group_type, 2, 1> up{position.group(), position.comm(), position.members(),
                                                  position.fifos(), children,        up_to};
  channel::session<protocol, group_type, 1, 2> down{position.group(), position.comm(), position.members(),
                                                    position.fifos(), up_to,           children};
  const detail::prepared_input<T, Produce, Operator> input{produce, op};
  // Results follow as many chunks behind as slots allow: the root, which sends them, waits for slots below and never
  // for results.
  const uint64_t behind = position.fifos().slots;
  for (uint64_t i = 0; i < chunks + behind; ++i) {
    if (i < chunks) {
      if (node.is_leaf()) {
        up.template send<T>(part(i), input);
      } else {
        up.template recv_reduce_send<T>(part(i), produce, op);
      }
    }
    if (i < behind) continue;
    if (node.is_leaf()) {
      down.template recv<T>(part(i - behind), consume);
    } else {
      down.template recv_copy_send<T>(part(i - behind), consume);
    }
  }
}

}  // namespace devcomm::collective
