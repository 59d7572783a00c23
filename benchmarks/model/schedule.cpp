#include "model/schedule.hpp"

#include <devcomm/ring.hpp>
#include <devcomm/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace model {
namespace {

using devcomm::team;
using kind = operation::kind;
using dependencies = std::vector<operation_id>;

/// Part `index` of `parts` of a range; earlier parts have the bytes that are left over.
byte_range part_of(byte_range all, int index, int parts) {
  const auto part = static_cast<std::uint64_t>(index);
  const auto count = static_cast<std::uint64_t>(parts);
  const std::uint64_t each = all.size() / count;
  const std::uint64_t left = all.size() % count;
  const std::uint64_t begin = all.begin + part * each + std::min(part, left);
  return {begin, begin + each + (part < left ? 1 : 0)};
}

/// Builds one rank's schedule of phases. Each phase begins after what it is given, and returns what its data wait for.
class schedule {
 public:
  std::vector<operation> take() { return std::move(operations_); }

  /// Every member sends all of `range` to every other, and adds what it gets.
  dependencies all_to_all_reduce(team t, byte_range range) {
    const int tag = next_tag(1);
    std::vector<dependencies> sent;  // the input, before sums replace it
    for (int i = 1; i < t.size; ++i) sent.push_back(send(peer(t, t.rank + i), range, tag, {}));
    return gather_sum(t, range, tag, joined(sent));
  }

  /// Member i gets the sum of part i.
  dependencies reduce_scatter(team t, byte_range range) {
    const int tag = next_tag(1);
    for (int i = 1; i < t.size; ++i) {
      const int to = (t.rank + i) % t.size;
      send(t.world_rank(to), part_of(range, to, t.size), tag, {});
    }
    return gather_sum(t, part_of(range, t.rank, t.size), tag, {});
  }

  /// Every member gets all parts from those that have them.
  void all_gather(team t, byte_range range, const dependencies& ready) {
    const int tag = next_tag(1);
    for (int i = 1; i < t.size; ++i) send(peer(t, t.rank + i), part_of(range, t.rank, t.size), tag, ready);
    for (int i = 1; i < t.size; ++i) {
      const int from = (t.rank + i) % t.size;
      receive(t.world_rank(from), part_of(range, from, t.size), tag, {});
    }
  }

  dependencies ring(team t, byte_range range, const dependencies& ready) {
    const int steps = devcomm::ring_all_reduce_steps(t);
    const int tag = next_tag(steps);
    std::vector<dependencies> has(static_cast<std::size_t>(t.size), ready);  // what each part waits for
    const int next = t.world_rank(devcomm::ring_next(t));
    const int previous = t.world_rank(devcomm::ring_previous(t));
    for (int s = 0; s < steps; ++s) {
      const devcomm::ring_step step = devcomm::ring_all_reduce_step(t, s);
      send(next, part_of(range, step.sends, t.size), tag + s, has[static_cast<std::size_t>(step.sends)]);
      dependencies& got = has[static_cast<std::size_t>(step.receives)];
      const byte_range part = part_of(range, step.receives, t.size);
      got = step.reduces ? add(previous, part, tag + s, got) : receive(previous, part, tag + s, got);
    }
    return joined(has);
  }

  dependencies double_tree(team t, byte_range range, const dependencies& ready, int chunks) {
    dependencies done = ready;
    for (const int tree : {0, 1}) {
      const byte_range half = part_of(range, tree, 2);
      const devcomm::tree_node node = devcomm::double_tree(t, tree);
      const int tag = next_tag(2 * chunks);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const dependencies sums = up_and_down(t, node, part_of(half, chunk, chunks), tag + 2 * chunk, ready);
        done.insert(done.end(), sums.begin(), sums.end());
      }
    }
    return done;
  }

 private:
  static int peer(team t, int member) { return t.world_rank(member % t.size); }

  int next_tag(int count) { return std::exchange(tags_, tags_ + count); }

  /// `tag` is that of the way up, the next one that of the way down.
  dependencies up_and_down(team t, devcomm::tree_node node, byte_range chunk, int tag, dependencies have) {
    for (const int child : {node.left, node.right}) {
      if (child >= 0) have = add(t.world_rank(child), chunk, tag, have);
    }
    if (!node.is_root()) {
      const int parent = t.world_rank(node.parent);
      const dependencies sent = send(parent, chunk, tag, have);
      have = receive(parent, chunk, tag + 1, sent);
    }
    for (const int child : {node.left, node.right}) {
      if (child >= 0) send(t.world_rank(child), chunk, tag + 1, have);
    }
    return have;
  }

  /// Adds what all other members send.
  dependencies gather_sum(team t, byte_range range, int tag, dependencies have) {
    for (int i = 1; i < t.size; ++i) have = add(peer(t, t.rank + i), range, tag, have);
    return have;
  }

  dependencies add(int from, byte_range range, int tag, const dependencies& have) {
    dependencies after = receive(from, range, tag, {});
    if (after.empty()) return have;
    after.insert(after.end(), have.begin(), have.end());
    return put({kind::reduce, from, range, tag, std::move(after)});
  }
  dependencies send(int to, byte_range range, int tag, const dependencies& after) {
    return put({kind::send, to, range, tag, after});
  }
  dependencies receive(int from, byte_range range, int tag, const dependencies& after) {
    return put({kind::receive, from, range, tag, after});
  }
  dependencies put(operation what) {
    if (what.range.size() == 0) return {};
    operations_.push_back(std::move(what));
    return {static_cast<operation_id>(operations_.size() - 1)};
  }
  static dependencies joined(const std::vector<dependencies>& all) {
    dependencies one;
    for (const dependencies& each : all) one.insert(one.end(), each.begin(), each.end());
    return one;
  }

  std::vector<operation> operations_;
  int tags_ = 0;
};

}  // namespace

std::vector<operation> schedule_of(algorithm which, const machine& on, int rank, std::uint64_t bytes, int chunks) {
  const team world = devcomm::world_team(rank, on.ranks());
  const team host = devcomm::inner_factor(world, on.ranks_per_host);
  const team rail = devcomm::outer_factor(world, on.ranks_per_host);
  const byte_range all{0, bytes};
  schedule mine;
  switch (which) {
    case algorithm::one_shot: mine.all_to_all_reduce(world, all); break;
    case algorithm::two_shot: mine.all_gather(world, all, mine.reduce_scatter(world, all)); break;
    case algorithm::ring: mine.ring(world, all, {}); break;
    case algorithm::tree: mine.double_tree(world, all, {}, chunks); break;
    case algorithm::rail_ring:
    case algorithm::rail_tree: {
      const byte_range shard = part_of(all, host.rank, host.size);
      const dependencies ready = mine.reduce_scatter(host, all);
      const dependencies sums =
          which == algorithm::rail_ring ? mine.ring(rail, shard, ready) : mine.double_tree(rail, shard, ready, chunks);
      mine.all_gather(host, all, sums);
    }
  }
  return mine.take();
}

}  // namespace model
