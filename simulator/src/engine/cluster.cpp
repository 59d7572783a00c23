#include "engine/cluster.hpp"

#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/grid.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <cstring>
#include <memory>
#include <set>
#include <string>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t offset_bits = 24;
constexpr uint32_t offset_mask = (1u << offset_bits) - 1;

/// Of the block with this rank in the launch.
uint64_t cluster_index(const launch_shape& shape, uint64_t block) {
  const uint3 at = block_index(shape.grid, block);
  const dim3& c = shape.cluster;
  return (uint64_t{at.z / c.z} * (shape.grid.y / c.y) + at.y / c.y) * (shape.grid.x / c.x) + at.x / c.x;
}

uint32_t rank_in_cluster(const launch_shape& shape, uint64_t block) {
  const uint3 at = block_index(shape.grid, block);
  const dim3& c = shape.cluster;
  return (at.z % c.z * c.y + at.y % c.y) * c.x + at.x % c.x;
}

/// All blocks of a launch, those of a cluster behind each other.
std::vector<uint64_t> blocks_by_cluster(const launch_shape& shape) {
  std::vector<uint64_t> all(shape.blocks());
  for (uint64_t i = 0; i < all.size(); ++i)
    all[cluster_index(shape, i) * shape.cluster_blocks() + rank_in_cluster(shape, i)] = i;
  return all;
}

cluster& own_cluster() {
  if (this_block->in_cluster == nullptr) join_cluster(*this_block);
  return *this_block->in_cluster;
}

/// The block of the caller's cluster with this rank. Its shared memory is there: blocks of a cluster run together.
block& peer_of(uint32_t rank) {
  cluster& c = own_cluster();
  if (rank >= c.blocks.size()) {
    fail_misuse(
        ("the cluster has " + std::to_string(c.blocks.size()) + " blocks, and none of rank " + std::to_string(rank))
            .c_str());
  }
  for (;;) {
    block* const peer = c.blocks[rank];
    const uint32_t there = peer == nullptr ? 0 : __atomic_load_n(&peer->shares, __ATOMIC_RELAXED);
    if (there != 0) return *peer;
    if (peer == nullptr) {
      this_block->simulation.dispatcher_wanted = true;
      this_block->simulation.reschedule();
    } else {
      loaded(&peer->shares, sizeof peer->shares, there);
    }
  }
}

/// The block of the caller's cluster that has `pointer` in its shared memory; null if none has.
block* owner_of(const void* pointer) {
  for (block* each : own_cluster().blocks) {
    if (each != nullptr && each->shared_range.contains(pointer)) return each;
  }
  return nullptr;
}
block& needed_owner_of(const void* pointer) {
  block* const owner = owner_of(pointer);
  if (owner == nullptr) fail_misuse("a pointer that is to be mapped in the cluster is not in its shared memory");
  return *owner;
}

void complete(cluster& c) {
  if (c.arrived == 0 || c.arrived != c.live) return;
  c.arrived = 0;
  ++c.phase;
  sanitizer::clear(c.cells[c.phase & 1]);
}

/// The shared memory changes as a whole, by one who comes after what the running thread knows.
void change_shared(const block& b, const char* why, sanitizer::cell& cell) {
  void* const before = sanitizer::identity();
  sanitizer::become(b.fibers.front().identity);  // whose block reports name
  void* const id = sanitizer::new_copy_identity(why, false);
  sanitizer::become(id);
  sanitizer::acquire(cell);
  for (const memory_span& s : b.watched_shared()) {
    char* const base = const_cast<char*>(s.base);
    std::memset(base, 0xff, s.bytes);
  }
  sanitizer::release(cell);
  sanitizer::become(before);
  sanitizer::drop_identity(id);
}

}  // namespace

void begin_clusters(grid& g) {
  const std::vector<uint64_t> all = blocks_by_cluster(g.shape);
  std::vector<char> started(all.size());
  std::set<uint64_t> halves;
  g.order.clear();
  for (uint64_t i = 0; i < g.next_block; ++i) {
    g.order.push_back(i);
    started[i] = 1;
    halves.insert(cluster_index(g.shape, i));
  }
  for (const bool of_halves : {true, false}) {
    for (const uint64_t i : all) {
      if (started[i] == 0 && (halves.count(cluster_index(g.shape, i)) != 0) == of_halves) g.order.push_back(i);
    }
    if (of_halves) g.must_start = g.order.size();
  }
}

void join_cluster(block& b) {
  const launch_shape& shape = b.launch.shape;
  const sanitizer::unobserved hidden;
  auto& own = b.launch.clusters[cluster_index(shape, b.rank)];
  if (own == nullptr) {
    own = std::make_unique<cluster>();
    own->blocks.resize(shape.cluster_blocks());
    own->live = shape.cluster_blocks() == 1 ? b.live : uint64_t{shape.threads()} * shape.cluster_blocks();
  }
  b.in_cluster = own.get();
  own->blocks[rank_in_cluster(shape, b.rank)] = &b;
}

void share_with_cluster(block& b) {
  if (b.launch.shape.cluster_blocks() > 1 && sanitizer::exact()) {
    sanitizer::cell begun;
    change_shared(b, "the start of a block, before which no other may access its shared memory", begun);
    for (const fiber& f : b.fibers) sanitizer::acquire_as(f.identity, begun);
  }
  __atomic_store_n(&b.shares, 1u, __ATOMIC_RELAXED);
}

void leave_cluster(block& b, const fiber& f) {
  if (b.in_cluster == nullptr) return;
  cluster& c = *b.in_cluster;
  sanitizer::release(b.ended_cell);
  if (f.cluster_phase == c.phase + 1) --c.arrived;
  --c.live;
  complete(c);
}

bool end_in_cluster(block& b) {
  if (b.launch.shape.cluster_blocks() == 1) return true;
  if (sanitizer::exact()) change_shared(b, "the end of a block, with which its shared memory goes", b.ended_cell);
  cluster& c = *b.in_cluster;
  return ++c.ended == c.blocks.size();
}

std::string describe_cluster_barrier(const block& b, const void* polled) {
  const cluster* const c = b.in_cluster;
  if (c == nullptr || polled != &c->phase) return {};
  return "the barrier of its cluster, at which " + std::to_string(c->arrived) + " of " + std::to_string(c->live) +
         " threads have arrived";
}

void use_clusters(unsigned x, unsigned y, unsigned z) {
  block& b = *this_block;
  grid& g = b.launch;
  const dim3 asked(x, y, z);
  const dim3& have = g.shape.cluster;
  if (have.x == x && have.y == y && have.z == z) return;
  if (g.shape.cluster_blocks() != 1)
    fail_misuse("the launch has another cluster dimension than the kernel's __cluster_dims__");
  if (const char* const wrong = wrong_cluster(g.shape.grid, asked)) fail_misuse(wrong);
  const sanitizer::unobserved hidden;
  g.shape.cluster = asked;
  begin_clusters(g);
  for (block* each : g.running) {
    join_cluster(*each);
    if (each->shares != 0) share_with_cluster(*each);
  }
  g.simulation.dispatcher_wanted = true;
}

place_in_cluster own_place_in_cluster() {
  const block& b = *this_block;
  const launch_shape& shape = b.launch.shape;
  const dim3& c = shape.cluster;
  return {c, {blockIdx.x % c.x, blockIdx.y % c.y, blockIdx.z % c.z}, rank_in_cluster(shape, b.rank)};
}

bool clusters_are_blocks() noexcept { return this_block == nullptr || this_block->launch.shape.cluster_blocks() == 1; }

void arrive_at_cluster(bool releases) {
  fiber& f = *this_fiber;
  cluster& c = own_cluster();
  if (f.cluster_phase == c.phase + 1) fail_misuse("a thread arrives at the cluster's barrier again without waiting");
  f.cluster_phase = c.phase + 1;
  if (releases) sanitizer::release(c.cells[c.phase & 1]);
  ++c.arrived;
  complete(c);
  preempt();
}

void wait_for_cluster(bool acquires) {
  fiber& f = *this_fiber;
  cluster& c = own_cluster();
  if (f.cluster_phase == 0) fail_misuse("a thread waits at the cluster's barrier without having arrived");
  const uint64_t awaited = f.cluster_phase;
  f.cluster_phase = 0;
  for (;;) {
    const uint64_t phase = __atomic_load_n(&c.phase, __ATOMIC_RELAXED);
    if (phase >= awaited) break;
    loaded(&c.phase, sizeof c.phase, phase);
  }
  if (acquires) sanitizer::acquire(c.cells[(awaited - 1) & 1]);
  preempt();
}

void* shared_of_cluster(uint32_t address) {
  const uint32_t rank = address >> offset_bits;
  const block& owner = rank == 0 ? *this_block : peer_of(rank - 1);
  void* const at = reinterpret_cast<void*>(owner.shared_range.first + (address & offset_mask));
  if (!owner.shared_range.contains(at))
    fail_misuse("an instruction for the cluster's shared memory has an address that is not in a block's shared memory");
  return at;
}

uint32_t mapped_address(uint32_t address, uint32_t rank) {
  static_cast<void>(peer_of(rank));
  return (rank + 1) << offset_bits | (address & offset_mask);
}

void* mapped_pointer(const void* pointer, uint32_t rank) {
  const block& owner = needed_owner_of(pointer);
  const block& peer = peer_of(rank);
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) - owner.shared_range.first +
                                 peer.shared_range.first);
}

uint32_t rank_of_address(uint32_t address) {
  const uint32_t rank = address >> offset_bits;
  return rank == 0 ? own_place_in_cluster().rank : rank - 1;
}

uint32_t rank_of_pointer(const void* pointer) {
  const block& owner = needed_owner_of(pointer);
  return rank_in_cluster(owner.launch.shape, owner.rank);
}

bool is_in_cluster(const void* pointer) { return owner_of(pointer) != nullptr; }

}  // namespace devcomm::simulator::detail
