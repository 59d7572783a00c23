/// Every interleaving of what goes by a multicast address, up to the bounds that the table it prints names. Members see
/// each store one after the other.
///
///   multimem_protocols [PART OF A NAME]    prints a row for each; fails unless all are complete and none fails
#include "exhaustive/scenario.hpp"

#include <memory>
#include <mutex>

using namespace exhaustive;

namespace {

constexpr auto required = multimem::policy::required;

/// A handle that each rank asks for, of which all get the same.
template <class Handle>
class shared_handle {
 public:
  void set(const Handle& mine) {
    const std::lock_guard hold(lock_);
    handle_ = mine;
  }
  [[nodiscard]] const Handle& get() const { return handle_; }

 private:
  std::mutex lock_;
  Handle handle_{};
};

/// Every rank launches `kernel(comm, handle, board, result, arguments...)`, which leaves a 1 for each launch.
template <class Handle, class Needs, class Kernel, class... Arguments>
scenario explored(const char* name, int ranks, const char* bound, int launches, Needs needs, Kernel kernel,
                  Arguments... arguments) {
  const auto handle = std::make_shared<shared_handle<Handle>>();
  return {name,
          ranks,
          bound,
          false,
          [=](requirements& wants) { handle->set(needs(wants)); },
          [=](const bench& b) {
            for (int launch = 0; launch < launches; ++launch) {
              b.on_each_rank([&](int rank) {
                devcomm::launch(kernel, {}, b.comm(rank), handle->get(), b.board(rank), b.result(rank), arguments...);
              });
              b.finish();
            }
            for (int rank = 0; rank < b.size(); ++rank)
              b.require(b.result(rank)[0] == static_cast<std::uint32_t>(launches),
                        "rank " + std::to_string(rank) + " got wrong data");
          }};
}

/// One of each kind.
multimem::barrier_handle one_barrier(requirements& wants) {
  wants.lsa_barriers(1);
  return wants.add(multimem::barriers{1, required});
}

/// In each round every rank writes a word, synchronizes with the others, and reads theirs.
__global__ void meet(device_comm comm, multimem::barrier_handle barriers, sym_ptr<std::uint32_t> board,
                     std::uint32_t* result, int rounds) {
  multimem::barrier_session barrier{thread{}, comm, barriers, 0};
  std::uint32_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const int word = round % 2;  // the other is for odd rounds, so that one barrier a round is enough
    board.local()[word] = static_cast<std::uint32_t>(comm.rank * 100 + round + 1);
    barrier.sync();
    for (int rank = 0; rank < comm.size; ++rank)
      wrong += board.lsa(rank)[word] != static_cast<std::uint32_t>(rank * 100 + round + 1) ? 1u : 0u;
  }
  result[0] += 1 + 100 * wrong;
}

/// Between barriers of either kind.
__global__ void reduce_two_shot(device_comm comm, multimem::barrier_handle barriers, sym_ptr<std::uint32_t> board,
                                std::uint32_t* result, std::uint32_t count, bool lsa_barrier) {
  const auto ranks = static_cast<std::uint32_t>(comm.size);
  for (std::uint32_t i = 0; i < count; ++i) board.local()[i] = 10 * i + static_cast<std::uint32_t>(comm.rank);
  if (lsa_barrier) {
    lsa::barrier_session barrier{thread{}, comm, 0};
    collective::all_reduce_two_shot_multimem<std::uint32_t, 1>(barrier, board, board + 16, count, sum{});
  } else {
    multimem::barrier_session barrier{thread{}, comm, barriers, 0};
    collective::all_reduce_two_shot_multimem<std::uint32_t, 1>(barrier, board, board + 16, count, sum{});
  }
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    wrong += board.local()[16 + i] != 10 * i * ranks + ranks * (ranks - 1) / 2 ? 1u : 0u;
  result[0] += 1 + 100 * wrong;
}

enum class form { one_shot, reduce_scatter, all_gather, broadcast };

/// A call of two ranks on `count` elements, between barriers of either kind. What only this rank reads or writes is in
/// `result`.
template <class Barrier>
__device__ void make_call(Barrier& barrier, form which, sym_ptr<std::uint32_t> input, sym_ptr<std::uint32_t> output,
                          std::uint32_t* own, std::uint32_t count) {
  switch (which) {
    case form::one_shot:
      collective::all_reduce_one_shot_multimem<std::uint32_t, 1>(
          barrier, input, count, collective::to_memory<std::uint32_t>{own, count}, sum{});
      break;
    case form::reduce_scatter:
      collective::reduce_scatter_multimem<std::uint32_t, 1>(barrier, input, own, count, sum{});
      break;
    case form::all_gather: collective::all_gather_multimem<std::uint32_t, 1>(barrier, own, output, count); break;
    case form::broadcast: collective::broadcast_multimem<std::uint32_t, 1>(barrier, 1, own, output, count); break;
  }
}

__global__ void call_once(device_comm comm, multimem::barrier_handle barriers, sym_ptr<std::uint32_t> board,
                          std::uint32_t* result, form which, std::uint32_t count, bool lsa_barrier) {
  const auto value = [](int rank, std::uint64_t i) {
    return 10 * static_cast<std::uint32_t>(i) + 100 * static_cast<std::uint32_t>(rank);
  };
  const bool reduces = which == form::one_shot || which == form::reduce_scatter;
  const sym_ptr<std::uint32_t> output = board + 16;
  std::uint32_t* const own = result + 4;
  std::uint32_t* const input = reduces ? board.local() : own;
  for (std::uint32_t i = 0; i < count; ++i) input[i] = value(comm.rank, i);
  if (lsa_barrier) {
    lsa::barrier_session barrier{thread{}, comm, 0};
    make_call(barrier, which, board, output, own, count);
  } else {
    multimem::barrier_session barrier{thread{}, comm, barriers, 0};
    make_call(barrier, which, board, output, own, count);
  }
  const collective::slice shard = collective::shard_of(count, comm.size, comm.rank);
  const std::uint64_t length = collective::shard_length(count, comm.size);
  std::uint32_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t both = value(0, i) + value(1, i);
    if (which == form::one_shot) wrong += own[i] != both ? 1u : 0u;
    if (which == form::reduce_scatter && i >= shard.begin && i < shard.end)
      wrong += own[i - shard.begin] != both ? 1u : 0u;
    if (which == form::all_gather)
      wrong += output.local()[i] != value(static_cast<int>(i / length), i % length) ? 1u : 0u;
    if (which == form::broadcast) wrong += output.local()[i] != value(1, i) ? 1u : 0u;
  }
  result[0] += 1 + 100 * wrong;
}

/// By one shot rounds of a pack; by two shots a round.
template <class Session>
__global__ void reduce_packets(device_comm comm, typename Session::handle mailboxes, sym_ptr<std::uint32_t>,
                               std::uint32_t* result, std::uint32_t packs, bool two_shots) {
  multimem::packet_session<Session> session{thread{}, comm, mailboxes, 0};
  std::uint32_t wrong = session.is_hardware() ? 0 : 1;
  const auto produce = [&](std::uint64_t i) {
    const auto first = static_cast<float>(100 * comm.rank + 10 * static_cast<int>(i));
    return pack<float>{{first, first + 1, first + 2, first + 3}};
  };
  const auto consume = [&](std::uint64_t i, const pack<float>& value) {
    for (int e = 0; e < 4; ++e) {
      float total = 0;
      for (int rank = 0; rank < comm.size; ++rank)
        total += static_cast<float>(100 * rank + 10 * static_cast<int>(i) + e);
      wrong += value[e] != total ? 1u : 0u;
    }
  };
  if (two_shots) {
    collective::all_reduce_two_shot<float>(session, {0, packs}, produce, consume, sum{});
  } else {
    collective::all_reduce_one_shot<float>(session, {0, packs}, produce, consume, sum{});
  }
  result[0] += 1 + 100 * wrong;
}
template <class Session, std::uint32_t Packs>
typename Session::handle mailbox_of(requirements& wants) {
  wants.with(multimem::resources{required});
  return wants.add(lsa::mailboxes_for<Session>(wants.lsa(), 1, Packs));
}

using ll = lsa::ll_session<thread>;
using lamport = lsa::lamport_session<thread>;

scenario of_barrier(int ranks, const char* bound, int rounds, int launches) {
  return explored<multimem::barrier_handle>("multimem barrier", ranks, bound, launches, one_barrier, meet, rounds);
}
scenario of_two_shot(const char* name, int ranks, bool lsa_barrier) {
  return explored<multimem::barrier_handle>(name, ranks, "a pack for each rank", 1, one_barrier, reduce_two_shot,
                                            4 * static_cast<std::uint32_t>(ranks), lsa_barrier);
}
scenario of_call(const char* name, form which, const char* bound, std::uint32_t count, bool lsa_barrier) {
  return explored<multimem::barrier_handle>(name, 2, bound, 1, one_barrier, call_once, which, count, lsa_barrier);
}
template <class Session>
scenario of_packets(const char* name, int ranks, const char* bound, std::uint32_t packs) {
  scenario made = explored<typename Session::handle>(name, ranks, bound, 1, mailbox_of<Session, 1>,
                                                     reduce_packets<Session>, packs, false);
  made.is_confluent = true;
  return made;
}
template <class Session>
scenario of_two_shot_packets(const char* name) {
  scenario made = explored<typename Session::handle>(name, 2, "a pack for each rank", 1, mailbox_of<Session, 2>,
                                                     reduce_packets<Session>, 2u, true);
  made.is_confluent = true;
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  return explore_all(
      {
          of_barrier(2, "3 rounds", 3, 1),
          of_barrier(2, "1 round, 2 launches", 1, 2),
          of_barrier(3, "1 round", 1, 1),
          of_two_shot("all-reduce, two-shot, multimem", 2, false),
          of_two_shot("all-reduce, two-shot, multimem, LSA barrier", 2, true),
          of_two_shot("all-reduce, two-shot, multimem, LSA barrier", 3, true),
          of_call("all-reduce, one-shot, multimem", form::one_shot, "5 elements", 5, false),
          of_call("all-reduce, one-shot, multimem, LSA barrier", form::one_shot, "5 elements", 5, true),
          of_call("reduce-scatter, multimem", form::reduce_scatter, "9 elements", 9, false),
          of_call("reduce-scatter, multimem, LSA barrier", form::reduce_scatter, "9 elements", 9, true),
          of_call("all-gather, multimem", form::all_gather, "9 elements", 9, false),
          of_call("all-gather, multimem, LSA barrier", form::all_gather, "9 elements", 9, true),
          of_call("broadcast, multimem", form::broadcast, "5 elements", 5, false),
          of_call("broadcast, multimem, LSA barrier", form::broadcast, "5 elements", 5, true),
          of_packets<ll>("all-reduce, one-shot, LL by multimem", 2, "3 rounds of a pack", 3),
          of_packets<ll>("all-reduce, one-shot, LL by multimem", 3, "a pack", 1),
          of_packets<lamport>("all-reduce, one-shot, Lamport by multimem", 2, "3 rounds of a pack", 3),
          of_packets<lamport>("all-reduce, one-shot, Lamport by multimem", 3, "a pack", 1),
          of_two_shot_packets<ll>("all-reduce, two-shot, LL by multimem"),
          of_two_shot_packets<lamport>("all-reduce, two-shot, Lamport by multimem"),
      },
      argc, argv);
}
