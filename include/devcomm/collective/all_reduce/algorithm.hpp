/// \file algorithm.hpp
/// The all-reduce algorithms and what each is good for.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/collectives.hpp>

namespace devcomm::collective {

/// How an all-reduce moves its data. The names have two parts. *Shots*: with one, every rank reduces the whole vector
/// from all inputs; with two, each rank reduces its shard and sends the result to all. *Transport*: packets, where
/// nothing is added to the name; `zero_copy` straight between windows; or `chunked` through scratch memory of the
/// peers; or `multimem`, by the switch. `ring` and `tree` go through FIFO channels, see docs/channels.md.
///
/// All ranks get the same bits, and all but `two_shot_multimem` get them in every run: ring and tree reduce in an order
/// of their own, the others in that of the ranks.
/// `host::all_reduce_plan` chooses among them by size.
enum class all_reduce_algorithm : uint32_t {
  /// `all_reduce_one_shot`. Each rank sends `ranks - 1` times the vector, with LL twice that, in one trip over the
  /// links and without a barrier. The least latency, for small vectors: up to some 64 KiB on 8 GPUs. Producer and
  /// consumer hooks; inputs and outputs are private memory of any alignment.
  one_shot,
  /// `all_reduce_two_shot`. Each rank sends `2 * (ranks - 1) / ranks` times the vector, with LL twice that, in two
  /// trips
  /// and without a barrier. For medium vectors, and on many ranks. Same hooks and memory as `one_shot`.
  two_shot,
  /// `all_reduce_one_shot_zero_copy`. Each rank reads `ranks - 1` times the vector from the inputs, which are in a
  /// window; the output is private. Two barriers. For inputs that are to stay where they are.
  one_shot_zero_copy,
  /// `all_reduce_two_shot_zero_copy`. Each rank reads and writes `(ranks - 1) / ranks` times the vector; input and
  /// output are in windows. Two barriers. For large vectors where no scratch memory can be given.
  two_shot_zero_copy,
  /// `all_reduce_two_shot_chunked`. Each rank sends `2 * (ranks - 1) / ranks` times the vector, chunk by chunk, through
  /// scratch buffers: the links' bandwidth with few blocks. One barrier per chunk, whose latency a second group of the
  /// block hides. For large vectors in private memory. Hooks, also for whole rows (`map`, `complete`).
  two_shot_chunked,
  /// The same with `to_window` as consumer: results go straight to the outputs in a window, which saves one copy. The
  /// most bandwidth.
  two_shot_chunked_to_window,
  /// `all_reduce_two_shot_multimem` by NVLink multicast. Each rank loads `1 / ranks` of the vector, which the switch
  /// has
  /// reduced, and stores as much, which the switch brings to all; input and output are in windows with a multicast
  /// address. Two barriers. For large vectors of three ranks and more. All ranks get the same bits, but sums of
  /// floating
  /// point need not be the same in every run.
  two_shot_multimem,
  /// `all_reduce_ring`. Each rank sends `2 * (ranks - 1) / ranks` times the vector to the next rank alone, in
  /// `2 * (ranks - 1)` trips. For the largest vectors where only neighbors have good links. Hooks; private memory.
  ring,
  /// The same with `to_window` as consumer: results go straight into the next rank's output.
  ring_to_window,
  /// `all_reduce_tree`. Each rank sends the vector once up and once to each of at most two children down, in at most
  /// `2 * log2(ranks)` trips. For many ranks. Hooks; private memory.
  tree,
};

/// Key of the algorithm in plans, and name in messages.
DEVCOMM_HOST_DEVICE constexpr const char* to_string(all_reduce_algorithm algorithm) {
  switch (algorithm) {
    case all_reduce_algorithm::one_shot: return "one_shot";
    case all_reduce_algorithm::two_shot: return "two_shot";
    case all_reduce_algorithm::one_shot_zero_copy: return "one_shot_zero_copy";
    case all_reduce_algorithm::two_shot_zero_copy: return "two_shot_zero_copy";
    case all_reduce_algorithm::two_shot_chunked: return "two_shot_chunked";
    case all_reduce_algorithm::two_shot_chunked_to_window: return "two_shot_chunked_to_window";
    case all_reduce_algorithm::two_shot_multimem: return "two_shot_multimem";
    case all_reduce_algorithm::ring: return "ring";
    case all_reduce_algorithm::ring_to_window: return "ring_to_window";
    case all_reduce_algorithm::tree: return "tree";
  }
  return "unknown algorithm";
}

/// The function, as traces and checked launches name it.
DEVCOMM_HOST_DEVICE constexpr collective_call call_of(all_reduce_algorithm algorithm) {
  switch (algorithm) {
    case all_reduce_algorithm::one_shot: return collective_call::all_reduce_one_shot;
    case all_reduce_algorithm::two_shot: return collective_call::all_reduce_two_shot;
    case all_reduce_algorithm::one_shot_zero_copy: return collective_call::all_reduce_one_shot_zero_copy;
    case all_reduce_algorithm::two_shot_zero_copy: return collective_call::all_reduce_two_shot_zero_copy;
    case all_reduce_algorithm::two_shot_multimem: return collective_call::all_reduce_two_shot_multimem;
    case all_reduce_algorithm::ring: return collective_call::all_reduce_ring;
    case all_reduce_algorithm::ring_to_window: return collective_call::all_reduce_ring;
    case all_reduce_algorithm::tree: return collective_call::all_reduce_tree;
    case all_reduce_algorithm::two_shot_chunked: break;
    case all_reduce_algorithm::two_shot_chunked_to_window: break;
  }
  return collective_call::all_reduce_two_shot_chunked;
}

}  // namespace devcomm::collective
