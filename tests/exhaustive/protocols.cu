/// Every interleaving of the library's protocols, up to the bounds that the table it prints names.
///
///   protocols [PART OF A NAME]    prints a row for each; fails unless all are complete and none fails
#include "exhaustive/scenario.hpp"

#include <memory>
#include <mutex>
#include <type_traits>

using namespace exhaustive;

namespace {

/// A rank's group: one thread, two lanes of a warp, or a warp.
template <class Group>
constexpr unsigned threads_of = 1;
template <>
constexpr unsigned threads_of<lanes> = 2;
template <>
constexpr unsigned threads_of<warp> = 32;
template <class Group>
__device__ Group make_group() {
  if constexpr (threads_of<Group> == 2) {
    return Group(3u);
  } else {
    return Group{};
  }
}

// --- barriers ---

enum class barrier_call { sync, arrive_and_wait, relaxed };

/// In each round every rank writes a word, synchronizes with the others, and reads theirs.
template <class Group>
__device__ std::uint32_t meet(lsa::barrier_session<Group>& barrier, team members, const device_comm& comm,
                              sym_ptr<std::uint32_t> board, int first, int rounds, barrier_call call) {
  std::uint32_t wrong = 0;
  const std::uint32_t lane = threads_of<Group> == 1 ? 0 : threadIdx.x;
  for (int round = first; round < first + rounds; ++round) {
    if (call == barrier_call::relaxed) {
      barrier.sync(memory_order::relaxed);
      continue;
    }
    // The rank's other word is for odd rounds, so that one barrier a round is enough.
    const auto word = static_cast<std::uint32_t>(2 * round % 4) + lane;
    board.local()[word] = static_cast<std::uint32_t>(comm.rank * 100 + round);
    if (call == barrier_call::sync) {
      barrier.sync();
    } else {
      barrier.arrive();
      barrier.wait();
    }
    for (int member = 0; member < members.size; ++member) {
      const int rank = members.world_rank(member);
      wrong += board.peer(rank)[word] != static_cast<std::uint32_t>(rank * 100 + round) ? 1u : 0u;
    }
  }
  return wrong;
}

template <class Group>
__global__ void meet_in_rounds(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, int rounds,
                               int sessions, barrier_call call) {
  std::uint32_t wrong = 0;
  for (int s = 0; s < sessions; ++s) {
    lsa::barrier_session barrier{make_group<Group>(), comm, 0};
    wrong += meet(barrier, comm.lsa(), comm, board, s * rounds, rounds, call);
    if (s + 1 == sessions) result[4 + threadIdx.x] = barrier.epoch();
  }
  result[threadIdx.x] = 1 + wrong;
}

template <class Group>
scenario barrier(const char* name, int ranks, int rounds, const char* bound, barrier_call call, int sessions = 1,
                 int launches = 1, bool check_launch = false) {
  return {name,
          ranks,
          bound,
          check_launch,
          [](requirements& needs) { needs.lsa_barriers(1); },
          [=](const bench& b) {
            for (int launch = 0; launch < launches; ++launch) {
              b.on_each_rank([&](int rank) {
                devcomm::launch(meet_in_rounds<Group>, {.block = threads_of<Group>}, b.comm(rank), b.board(rank),
                                b.result(rank), rounds, sessions, call);
              });
              b.finish();
              for (int rank = 0; rank < b.size(); ++rank) {
                for (unsigned t = 0; t < threads_of<Group>; ++t) {
                  b.require(b.result(rank)[t] == 1, "rank " + std::to_string(rank) + " read an old word");
                  b.require(b.result(rank)[4 + t] == static_cast<std::uint32_t>((launch + 1) * rounds * sessions),
                            "rank " + std::to_string(rank) + " is at another epoch");
                }
              }
            }
          }};
}

/// A team of the first two ranks and one of all, each with a barrier of its own.
__global__ void meet_in_teams(device_comm comm, lsa::barrier_handle pairs, lsa::barrier_handle everybody,
                              sym_ptr<std::uint32_t> board, std::uint32_t* result) {
  std::uint32_t wrong = 0;
  if (comm.rank < 2) {
    const team pair{comm.rank, 2, 0, 1};
    lsa::barrier_session barrier{thread{}, comm, pair, pairs, 0};
    wrong += meet(barrier, pair, comm, board, 0, 1, barrier_call::sync);
  }
  lsa::barrier_session barrier{thread{}, comm, comm.world(), everybody, 0};
  wrong += meet(barrier, comm.world(), comm, board + 8, 0, 1, barrier_call::sync);
  result[0] = 1 + wrong;
}

struct team_handles {
  lsa::barrier_handle pairs;
  lsa::barrier_handle everybody;
};

scenario teams() {
  const auto handles = std::make_shared<team_handles>();
  return {
      "barriers of two teams",
      3,
      "1 round each",
      false,
      [=](requirements& needs) {
        const team_handles mine{needs.add(lsa::barriers{{0, 2, 0, 1}, 1}), needs.add(lsa::barriers{{0, 3, 0, 1}, 1})};
        static std::mutex one;
        const std::lock_guard hold(one);
        *handles = mine;
      },
      [=](const bench& b) {
        b.on_each_rank([&](int rank) {
          devcomm::launch(meet_in_teams, {}, b.comm(rank), handles->pairs, handles->everybody, b.board(rank),
                          b.result(rank));
        });
        b.finish();
        for (int rank = 0; rank < 3; ++rank) b.require(b.result(rank)[0] == 1, "a word of another round");
      }};
}

// --- packets ---

/// Each rank sends a packet to each in every round, and reads those of all.
__global__ void send_ll(device_comm comm, lsa::ll_handle channels, std::uint32_t* result, int rounds) {
  std::uint32_t wrong = 0;
  lsa::ll_session channel{thread{}, comm, channels, 0};
  const auto data = [&](int rank, int round) {
    return static_cast<std::uint64_t>(1000 * (rank + 1) + round) << 32 | static_cast<std::uint32_t>(rank * 100 + round);
  };
  for (int round = 1; round <= rounds; ++round) {
    channel.begin_round();
    for (int member = 0; member < comm.size; ++member) channel.send(member, 0, data(comm.rank, round));
    std::uint64_t got[4][1];
    channel.receive(0, comm.size, 0, got);
    for (int member = 0; member < comm.size; ++member) wrong += got[member][0] != data(member, round) ? 1u : 0u;
  }
  result[0] = 1 + wrong;
}

__global__ void send_lamport(device_comm comm, lsa::lamport_handle channels, std::uint32_t* result, int rounds) {
  std::uint32_t wrong = 0;
  lsa::lamport_session channel{thread{}, comm, channels, 0};
  const auto data = [&](int rank, int round) {
    pack<float> value;
    for (int e = 0; e < 4; ++e) value[e] = static_cast<float>(100 * rank + 10 * round + e);
    return value;
  };
  for (int round = 1; round <= rounds; ++round) {
    channel.begin_round();
    channel.send_pack_to_all(0, data(comm.rank, round));
    pack<float> got[4];
    channel.receive_packs(0, comm.size, 0, got);
    for (int member = 0; member < comm.size; ++member) {
      const pack<float> expected = data(member, round);
      for (int e = 0; e < 4; ++e) wrong += got[member][e] != expected[e] ? 1u : 0u;
    }
  }
  result[0] = 1 + wrong;
}

__global__ void send_ll128(device_comm comm, lsa::ll128_handle channels, std::uint32_t* result, int rounds) {
  std::uint32_t wrong = 0;
  lsa::ll128_session channel{warp{}, comm, channels, 0};
  const auto word = [](int rank, int round, std::uint64_t i, int e) {
    return static_cast<std::uint32_t>(((rank + 1) * 100 + round) * 1000 + static_cast<int>(i) * 4 + e);
  };
  for (int round = 1; round <= rounds; ++round) {
    channel.begin_round();
    const auto at = channel.cursor();
    const bool mine = at.is_below(lsa::ll128_unit::packs);
    pack<std::uint32_t> value{};
    for (int e = 0; mine && e < 4; ++e) value[e] = word(comm.rank, round, at.index(), e);
    channel.send_pack_to_all(at, value);
    pack<std::uint32_t> got[4];
    channel.receive_packs(0, comm.size, at, got);
    for (int member = 0; mine && member < comm.size; ++member) {
      for (int e = 0; e < 4; ++e) wrong += got[member][e] != word(member, round, at.index(), e) ? 1u : 0u;
    }
  }
  result[threadIdx.x] = 1 + wrong;
}

// --- collectives ---

enum class algorithm { one_shot, two_shot, reduce_scatter, all_gather, broadcast, exchange, all_to_all };

template <template <class> class Session, class Group, class Handle>
__global__ void run(device_comm comm, Handle channels, std::uint32_t* result, algorithm how, std::uint32_t packs) {
  Session<Group> channel{Group{}, comm, channels, 0};
  const auto element = [](int rank, std::uint64_t i, int e) {
    return static_cast<float>(100 * rank + 10 * static_cast<int>(i) + e);
  };
  std::uint32_t wrong = 0;
  const auto produce = [&](std::uint64_t i) {
    pack<float> value;
    for (int e = 0; e < 4; ++e) value[e] = element(comm.rank, i, e);
    return value;
  };
  const auto produce_for = [&](int, std::uint64_t i) { return produce(i); };
  const auto consume = [&](std::uint64_t i, const pack<float>& value) {
    for (int e = 0; e < 4; ++e) {
      float sum = 0;
      for (int rank = 0; rank < comm.size; ++rank) sum += element(rank, i, e);
      wrong += value[e] != sum ? 1u : 0u;
    }
  };
  const auto consume_from = [&](int rank, std::uint64_t i, const pack<float>& value) {
    for (int e = 0; e < 4; ++e) wrong += value[e] != element(rank, i, e) ? 1u : 0u;
  };
  constexpr int root = 1;
  const collective::slice all{0, packs};
  switch (how) {
    case algorithm::one_shot: collective::all_reduce_one_shot<float>(channel, all, produce, consume, sum{}); break;
    case algorithm::two_shot: collective::all_reduce_two_shot<float>(channel, all, produce, consume, sum{}); break;
    case algorithm::reduce_scatter: collective::reduce_scatter<float>(channel, all, produce_for, consume, sum{}); break;
    case algorithm::all_gather: collective::all_gather<float>(channel, all, produce, consume_from); break;
    case algorithm::broadcast:
      collective::broadcast<float>(channel, root, all, produce,
                                   [&](std::uint64_t i, const pack<float>& value) { consume_from(root, i, value); });
      break;
    case algorithm::exchange: {
      const auto with = collective::partners::in_ring(comm.rank, comm.size);
      collective::exchange<float>(channel, with, all, produce, [&](std::uint64_t i, const pack<float>& value) {
        consume_from(with.from, i, value);
      });
      break;
    }
    case algorithm::all_to_all: collective::all_to_all<float>(channel, all, produce_for, consume_from); break;
  }
  result[threadIdx.x] = 1 + wrong;
}

/// A scenario whose kernel takes a channel of `packets` packets.
template <class Handle, class Kernel, class... Arguments>
scenario packets(const char* name, int ranks, const char* bound, std::uint32_t capacity, int launches, Kernel kernel,
                 Arguments... arguments) {
  constexpr unsigned threads = std::is_same_v<Handle, lsa::ll128_handle> ? threads_of<warp> : 1;
  const auto channels = std::make_shared<Handle>();
  return {name,
          ranks,
          bound,
          false,
          [=](requirements& needs) {
            Handle mine{};
            mine = needs.add(lsa::mailboxes<Handle::protocol>{needs.lsa(), 1, capacity});
            static std::mutex one;
            const std::lock_guard hold(one);
            *channels = mine;
          },
          [=](const bench& b) {
            for (int launch = 0; launch < launches; ++launch) {
              b.on_each_rank([&](int rank) {
                for (unsigned t = 0; t < threads; ++t) b.result(rank)[t] = 0;
                devcomm::launch(kernel, {.block = threads}, b.comm(rank), *channels, b.result(rank), arguments...);
              });
              b.finish();
              for (int rank = 0; rank < b.size(); ++rank) {
                for (unsigned t = 0; t < threads; ++t)
                  b.require(b.result(rank)[t] == 1, "rank " + std::to_string(rank) + " got wrong data");
              }
            }
          },
          true};
}

__global__ void reduce_direct(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result) {
  const std::uint32_t count = 4u * static_cast<std::uint32_t>(comm.size);
  for (std::uint32_t i = 0; i < count; ++i) board.local()[i] = 10 * i + static_cast<std::uint32_t>(comm.rank);
  lsa::barrier_session barrier{thread{}, comm, 0};
  collective::all_reduce_two_shot_zero_copy(barrier, board, board + 16, count, sum{});
  std::uint32_t wrong = 0;
  const auto ranks = static_cast<std::uint32_t>(comm.size);
  for (std::uint32_t i = 0; i < count; ++i) {
    wrong += board.local()[16 + i] != 10 * i * ranks + ranks * (ranks - 1) / 2 ? 1u : 0u;
  }
  result[0] = 1 + wrong;
}

scenario zero_copy(int ranks) {
  return {"all-reduce, two-shot, zero-copy",
          ranks,
          "a pack for each rank",
          false,
          [](requirements& needs) { needs.lsa_barriers(1); },
          [](const bench& b) {
            b.on_each_rank(
                [&](int rank) { devcomm::launch(reduce_direct, {}, b.comm(rank), b.board(rank), b.result(rank)); });
            b.finish();
            for (int rank = 0; rank < b.size(); ++rank) b.require(b.result(rank)[0] == 1, "a wrong sum");
          }};
}

enum class chunked_kind : std::uint8_t { all_reduce, to_windows, reduce_scatter };

__global__ void reduce_chunked(device_comm comm, collective::chunk_buffers buffers, sym_ptr<std::uint32_t> board,
                               int rounds, chunked_kind kind, std::uint32_t* result) {
  const auto ranks = static_cast<std::uint32_t>(comm.size);
  const std::uint32_t packs = ranks * static_cast<std::uint32_t>(rounds);
  const std::uint32_t count = 4u * packs;
  const auto scratch = collective::chunk_scratch::of_group(comm, buffers, 1, 0);
  const auto produce = [&](std::uint64_t i) {
    pack<std::uint32_t> value;
    for (int e = 0; e < 4; ++e)
      value[e] = 10 * (4 * static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(e)) +
                 static_cast<std::uint32_t>(comm.rank);
    return value;
  };
  lsa::barrier_session barrier{thread{}, comm, 0};
  std::uint64_t begin = 0;  // of the results
  std::uint64_t end = count;
  if (kind == chunked_kind::reduce_scatter) {
    const auto length = static_cast<std::uint64_t>(rounds);
    begin = 4 * length * static_cast<std::uint64_t>(comm.rank);
    end = begin + 4 * length;
    collective::reduce_scatter_chunked<std::uint32_t>(
        barrier, scratch, {0, length},
        [&](int rank, std::uint64_t i) { return produce(static_cast<std::uint64_t>(rank) * length + i); },
        collective::to_memory<std::uint32_t>{board.local() + begin, 4 * length}, sum{});
  } else if (kind == chunked_kind::to_windows) {
    collective::all_reduce_two_shot_chunked<std::uint32_t>(barrier, scratch, {0, packs}, produce,
                                                           collective::to_window<std::uint32_t>{board, count}, sum{});
  } else {
    collective::all_reduce_two_shot_chunked<std::uint32_t>(
        barrier, scratch, {0, packs}, produce, collective::to_memory<std::uint32_t>{board.local(), count}, sum{});
  }
  std::uint32_t wrong = 0;
  for (auto i = static_cast<std::uint32_t>(begin); i < end; ++i)
    wrong += board.local()[i] != 10 * i * ranks + ranks * (ranks - 1) / 2 ? 1u : 0u;
  result[0] += 1 + 100 * wrong;
}

/// Chunks of a pack. Round 2 writes where round 0 was read, and a second launch where the first has read.
scenario chunked(const char* bound, int rounds, int launches, chunked_kind kind) {
  constexpr int ranks = 2;
  auto buffers = std::make_shared<collective::chunk_buffers>();
  const char* const names[] = {"all-reduce in chunks", "all-reduce in chunks, to windows", "reduce-scatter in chunks"};
  return {names[static_cast<int>(kind)],
          ranks,
          bound,
          false,
          [buffers](requirements& needs) {
            needs.lsa_barriers(1);
            *buffers = needs.add(collective::chunk_buffer_bytes{2 * 16 * ranks});
          },
          [=](const bench& b) {
            b.on_each_rank([&](int rank) {
              b.result(rank)[0] = 0;
              for (int launch = 0; launch < launches; ++launch)
                devcomm::launch(reduce_chunked, {}, b.comm(rank), *buffers, b.board(rank), rounds, kind,
                                b.result(rank));
            });
            b.finish();
            for (int rank = 0; rank < b.size(); ++rank)
              b.require(b.result(rank)[0] == static_cast<std::uint32_t>(launches), "a wrong sum");
          }};
}

// --- channels ---

/// Rank 0 sends messages of a pack, those between pass them on, the last takes them.
template <channel::protocol Protocol, class Group>
__global__ void pass_along(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint32_t* result,
                           std::uint32_t first, int messages) {
  const channel::endpoint none = channel::endpoint::none();
  const bool takes = comm.rank > 0;
  const bool sends = comm.rank + 1 < comm.size;
  std::uint32_t wrong = 0;
  std::uint32_t taken = 0;
  {
    channel::session line{Group{}, comm, fifos, takes ? channel::endpoint{comm.rank - 1, 0, 0} : none,
                          sends ? channel::endpoint{comm.rank + 1, 0, 0} : none};
    for (std::uint32_t n = first; n < first + static_cast<std::uint32_t>(messages); ++n) {
      const auto message = [n](std::uint64_t) { return pack<std::uint32_t>{{n, ~n, n + 7, 5 * n}}; };
      const auto compare = [&, n](std::uint64_t, const pack<std::uint32_t>& value) {
        ++taken;
        wrong += value[0] != n || value[1] != ~n || value[2] != n + 7 || value[3] != 5 * n ? 1u : 0u;
      };
      if (!takes) {
        line.template send<std::uint32_t>({0, 1}, message);
      } else if (sends) {
        line.template recv_copy_send<std::uint32_t>({0, 1}, compare);
      } else {
        line.template recv<std::uint32_t>({0, 1}, compare);
      }
    }
  }
  const bool has_pack = takes && threadIdx.x == 0;  // each message is a pack
  if (has_pack && taken != static_cast<std::uint32_t>(messages)) ++wrong;
  result[threadIdx.x] += 1 + 100 * wrong;
}

/// Through so many slots that messages wait for credit, from counts of steps that wrap around on the way.
template <channel::protocol Protocol>
scenario fifo(const char* name, int ranks, const char* bound, std::uint32_t slots, int messages, int launches) {
  using group = std::conditional_t<Protocol == channel::protocol::ll128, warp, thread>;
  const auto fifos = std::make_shared<channel::fifo_handle<Protocol>>();
  return {name,
          ranks,
          bound,
          false,
          [=](requirements& needs) {
            const channel::fifo_handle<Protocol> mine = needs.add(channel::fifos<Protocol>{needs.lsa(), 1, 1, slots});
            static std::mutex one;
            const std::lock_guard hold(one);
            *fifos = mine;
          },
          [=](const bench& b) {
            const channel::fifo_layout<Protocol> layout{1, fifos->slots, fifos->packs};
            b.on_each_rank([&](int rank) {
              constexpr std::uint32_t almost_around = ~0u;
              char* own = b.comm(rank).resources.local + fifos->offset;
              for (const std::uint64_t at :
                   {layout.tail(0), layout.head(0), layout.counts(0), layout.counts(0) + 4, layout.counts(0) + 8})
                std::memcpy(own + at, &almost_around, sizeof almost_around);
              for (unsigned t = 0; t < threads_of<group>; ++t) b.result(rank)[t] = 0;
            });
            b.on_each_rank([&](int rank) {
              for (int n = 0; n < launches; ++n)
                devcomm::launch(pass_along<Protocol, group>, {.block = threads_of<group>}, b.comm(rank), *fifos,
                                b.result(rank), static_cast<std::uint32_t>(n * messages), messages);
            });
            b.finish();
            for (int rank = 0; rank < b.size(); ++rank)
              for (unsigned t = 0; t < threads_of<group>; ++t)
                b.require(b.result(rank)[t] == static_cast<std::uint32_t>(launches),
                          "rank " + std::to_string(rank) + " got a wrong message");
          }};
}

// --- groups of messages ---

/// What the messages of `trade` go through.
enum class carried { inlined, to_window };

/// Who sends in each call: rank 0, or each to the other; the two list their messages in different orders then.
enum class senders { first, both };

__global__ void trade(device_comm comm, channel::connection_handle connections, sym_ptr<std::uint32_t> board,
                      std::uint32_t* result, carried how, senders who, std::uint32_t words, int calls) {
  // Words that no peer reaches, and those that it stores to.
  auto* const list = reinterpret_cast<channel::message*>(result + 16);
  std::uint32_t* const output = how == carried::to_window ? board.local() : result + 80;
  std::uint32_t* const input = result + 160;
  const int peer = 1 - comm.rank;
  const auto value = [](int rank, int call, std::uint32_t i) {
    return static_cast<std::uint32_t>(1000 * rank + 100 * call) + i + 1;
  };
  std::uint32_t wrong = 0;
  {
    channel::group_session session{thread{}, comm, connections, {0, 1}};
    for (int call = 0; call < calls; ++call) {
      for (std::uint32_t i = 0; i < words; ++i) input[i] = value(comm.rank, call, i);
      const channel::message sent = channel::message::send(peer, input, words * sizeof *input);
      const channel::message received = how == carried::to_window
                                            ? channel::message::receive(peer, board, words)
                                            : channel::message::receive(peer, output, words * sizeof *output);
      const bool sends = who == senders::both || comm.rank == 0;
      const bool receives = who == senders::both || comm.rank == 1;
      list[0] = comm.rank == 0 ? sent : received;
      list[1] = comm.rank == 0 ? received : sent;
      session.transfer({list, sends && receives ? 2u : 1u, 1, &board.memory});
      for (std::uint32_t i = 0; receives && i < words; ++i) wrong += output[i] != value(peer, call, i) ? 1u : 0u;
    }
    wrong += session.agree() != status::success ? 1u : 0u;
  }
  *result += 1 + 100 * wrong;
}

/// From numbers that wrap around on the way.
scenario messages(const char* name, const char* bound, carried how, senders who, std::uint32_t words, int calls) {
  const auto connections = std::make_shared<channel::connection_handle>();
  return {
      name,
      2,
      bound,
      false,
      [=](requirements& needs) {
        const auto mine = needs.add(channel::connections{needs.lsa(), 1, 1, 128, how == carried::inlined ? 64u : 0u});
        static std::mutex one;
        const std::lock_guard hold(one);
        *connections = mine;
      },
      [=](const bench& b) {
        const channel::connection_layout& layout = connections->layout;
        b.on_each_rank([&](int rank) {
          constexpr std::uint32_t from = ~0u;
          char* const own = b.comm(rank).resources.local + connections->offset;
          const auto peer = static_cast<std::uint32_t>(1 - rank);
          const auto set = [&](std::uint64_t at, std::uint32_t value) { std::memcpy(own + at, &value, sizeof value); };
          const auto set_note = [&]<class Note>(std::uint64_t at, std::uint32_t number, const Note&) {
            for (std::uint32_t half = 0; half < 2 * Note::words; ++half) set(at + half * 8 + 4, number);
            set(at + offsetof(channel::posted_note<Note>, number), number);
          };
          set(layout.sent(0, peer), from);
          for (const std::uint32_t last : {from - 1, from - 2}) {  // their numbers are one more
            set_note(layout.cts(0, peer, last), last + 1, channel::message_cts{});
            set_note(layout.rts(0, peer, last), last + 1, channel::message_rts{});
          }
          for (const auto way : {channel::direction::send, channel::direction::receive})
            for (std::uint64_t word = 0; word < 4; ++word) set(layout.state(0, peer, way) + 4 * word, from);
          *b.result(rank) = 0;
        });
        b.on_each_rank([&](int rank) {
          devcomm::launch(trade, {}, b.comm(rank), *connections, b.board(rank), b.result(rank), how, who, words, calls);
        });
        b.finish();
        for (int rank = 0; rank < b.size(); ++rank)
          b.require(*b.result(rank) == 1,
                    "rank " + std::to_string(rank) + " got a wrong message: " + std::to_string(*b.result(rank)));
      }};
}

// --- outcomes ---

/// Rank 0 gives the first barrier up after a while, and says so; rank 1 comes at any time.
__global__ void meet_or_give_up(device_comm comm, std::uint32_t* result) {
  lsa::barrier_session barrier{lanes(3u), comm, 0};
  std::uint32_t timeouts = 0;
  status outcome = status::success;
  do {
    outcome = barrier.sync_for(nanoseconds{1000000000});
    timeouts += outcome == status::timeout ? 1u : 0u;
  } while (outcome == status::timeout && timeouts < 3);
  result[threadIdx.x] = 1 + static_cast<std::uint32_t>(outcome);
  result[4 + threadIdx.x] = timeouts;
}

/// A group of two lanes, its peer missing or not, and the abort word set at any moment: the lanes agree.
__global__ void meet_or_be_aborted(device_comm comm, std::uint32_t* result) {
  if (blockIdx.x == 1) {
    if (threadIdx.x == 0)
      arch::store<memory_order::relaxed, scope::device>(
          &reinterpret_cast<resource_header*>(comm.resources.local)->abort, abort_by_host);
    return;
  }
  lsa::barrier_session barrier{lanes(3u), comm, 0};
  barrier.sync();
  result[threadIdx.x] = 1 + static_cast<std::uint32_t>(barrier.agree());
}

scenario aborted() {
  return {"barrier, aborted at any moment",
          2,
          "groups of 2 lanes, 1 round",
          false,
          [](requirements& needs) { needs.lsa_barriers(1); },
          [](const bench& b) {
            b.on_each_rank([&](int rank) {
              devcomm::launch(meet_or_be_aborted, {.grid = 2, .block = 2}, b.comm(rank), b.result(rank));
            });
            b.finish();
            for (int rank = 0; rank < b.size(); ++rank) {
              const std::uint32_t* const got = b.result(rank);
              b.require(got[0] == got[1], "the lanes of a group disagree");
              const auto outcome = static_cast<status>(got[0] - 1);
              b.require(got[0] != 0 && (outcome == status::success || outcome == status::aborted), "a wrong outcome");
            }
          }};
}

scenario given_up(bool late) {
  return {late ? "barrier with deadlines" : "barrier with deadlines, peer missing",
          2,
          "groups of 2 lanes, 1 round",
          false,
          [](requirements& needs) { needs.lsa_barriers(1); },
          [=](const bench& b) {
            b.on_each_rank([&](int rank) {
              if (rank == 1 && !late) return;
              devcomm::launch(meet_or_give_up, {.block = 2}, b.comm(rank), b.result(rank));
            });
            b.finish();
            for (int rank = 0; rank < (late ? 2 : 1); ++rank) {
              for (int t = 0; t < 2; ++t) {
                const auto outcome = static_cast<status>(b.result(rank)[t] - 1);
                b.require(outcome == (late ? status::success : status::timeout), "a wrong outcome");
                b.require(b.result(rank)[4 + t] == (late ? 0u : 3u), "a wrong number of timeouts");
              }
            }
          }};
}

// --- signals ---

/// The ranks throw a word to each other: the even ranks first, the odd ones back. With one word there is no credit: who
/// has the ball may write it.
template <class Group>
__global__ void ping_pong(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> board,
                          std::uint32_t* result, int rounds, int sessions) {
  const std::uint32_t lane = threads_of<Group> == 1 ? 0 : threadIdx.x;
  const int peer = 1 - comm.lsa().rank;
  std::uint32_t wrong = 0;
  for (int s = 0; s < sessions; ++s) {
    lsa::signal_session signal{make_group<Group>(), comm, signals, 0};
    for (int round = 0; round < rounds; ++round) {
      const auto number = static_cast<std::uint32_t>(signal.taken());
      if (comm.lsa().rank == 0) {
        board.lsa(peer)[lane] = 2 * number + 1;
        signal.add(peer, 1);
      }
      signal.take(peer);
      const std::uint32_t got = board.local()[threads_of<Group> - 1 - lane];
      wrong += got != 2 * number + (comm.lsa().rank == 0 ? 2 : 1) ? 1u : 0u;
      if (comm.lsa().rank == 1) {
        board.lsa(peer)[lane] = 2 * number + 2;
        signal.add(peer, 1);
      }
    }
    result[4 + threadIdx.x] = static_cast<std::uint32_t>(signal.taken());
  }
  result[threadIdx.x] = 1 + wrong;
}

/// Each rank sends to the next as long as it has credits, of which there are two.
__global__ void pipeline(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> board,
                         std::uint32_t* result, int rounds) {
  const team ranks = comm.lsa();
  const int next = (ranks.rank + 1) % ranks.size;
  const int previous = (ranks.rank + ranks.size - 1) % ranks.size;
  lsa::signal_session data{thread{}, comm, signals, 0};
  lsa::signal_session credit{thread{}, comm, signals, 1};
  std::uint32_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round >= 2) credit.take(next);
    board.lsa(next)[round % 2] = static_cast<std::uint32_t>(100 + round);
    data.store(next, static_cast<std::uint64_t>(round) + 1);
    data.wait(previous, lsa::at_least{static_cast<std::uint64_t>(round) + 1});
    wrong += board.local()[round % 2] != static_cast<std::uint32_t>(100 + round) ? 1u : 0u;
    credit.add(previous, 1);
  }
  result[0] = 1 + wrong;
}

struct of_signals {
  std::mutex lock;  // ranks ask at the same time
  lsa::signal_handle handle;
};

template <class Group>
scenario signals(const char* name, const char* bound, int rounds, int sessions, int launches) {
  const auto made = std::make_shared<of_signals>();
  return {name,
          2,
          bound,
          false,
          [made](requirements& needs) {
            const std::lock_guard guard(made->lock);
            made->handle = needs.add(lsa::signals{{0, 2, 0, 1}, 1});
          },
          [=](const bench& b) {
            for (int launch = 0; launch < launches; ++launch) {
              b.on_each_rank([&](int rank) {
                devcomm::launch(ping_pong<Group>, {.block = threads_of<Group>}, b.comm(rank), made->handle,
                                b.board(rank), b.result(rank), rounds, sessions);
              });
              b.finish();
              for (int rank = 0; rank < b.size(); ++rank) {
                for (unsigned t = 0; t < threads_of<Group>; ++t) {
                  b.require(b.result(rank)[t] == 1, "rank " + std::to_string(rank) + " read an old word");
                  b.require(b.result(rank)[4 + t] == static_cast<std::uint32_t>((launch + 1) * rounds * sessions),
                            "rank " + std::to_string(rank) + " has taken another number");
                }
              }
            }
          }};
}

scenario credits(int ranks, const char* bound, int rounds) {
  const auto made = std::make_shared<of_signals>();
  return {"signals, credits",
          ranks,
          bound,
          false,
          [=](requirements& needs) {
            const std::lock_guard guard(made->lock);
            made->handle = needs.add(lsa::signals{{0, ranks, 0, 1}, 2});
          },
          [=](const bench& b) {
            b.on_each_rank([&](int rank) {
              devcomm::launch(pipeline, {}, b.comm(rank), made->handle, b.board(rank), b.result(rank), rounds);
            });
            b.finish();
            for (int rank = 0; rank < b.size(); ++rank)
              b.require(b.result(rank)[0] == 1, "rank " + std::to_string(rank) + " read another word");
          }};
}

// --- the network ---

/// What ranks do in each round; words 4 and up of the result count what is wrong.
enum class network_round {
  meet,      ///< a barrier with all fences, after each has put a word to every other rank
  exchange,  ///< a put with a weak signal, one with a strong signal, a flush, and a barrier
  credits,   ///< a put into the same word each time, once its reader has said so
};

__global__ void send_in_rounds(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> board, int rounds,
                               network_round what, std::uint32_t* result) {
  gin::context net{thread{}, comm, contexts, 0};
  gin::barrier_session barrier{thread{}, comm, comm.world(), contexts, gin::one_context(0), 0};
  constexpr std::uint32_t weak = 0;
  constexpr std::uint32_t strong = 1;
  const int next = (comm.rank + 1) % comm.size;
  const int before = (comm.rank + comm.size - 1) % comm.size;
  const sym_ptr<std::uint32_t> source = board + 16;
  std::uint32_t wrong = 0;
  for (int round = 1; round <= rounds; ++round) {
    const auto word_of = [&](int rank) { return static_cast<std::uint32_t>(100 * rank + round); };
    const auto signal = static_cast<std::uint64_t>(round);
    source.local()[0] = word_of(comm.rank);
    source.local()[1] = word_of(comm.rank) + 50;
    if (what == network_round::meet) {
      const auto row = static_cast<std::uint32_t>(round % 2 * 4);
      for (int peer = 0; peer < comm.size; ++peer) {
        if (peer != comm.rank) net.put(peer, board + row + comm.rank, source, 1);
      }
      barrier.sync();
      for (int peer = 0; peer < comm.size; ++peer) {
        if (peer != comm.rank && board.local()[row + static_cast<std::uint32_t>(peer)] != word_of(peer)) ++wrong;
      }
    } else if (what == network_round::exchange) {
      net.put(next, board, source, 1, gin::signal_add{weak, 1, gin::strength::weak});
      net.put(next, board + 1, source + 1, 1, gin::signal_add{strong});
      net.wait_signal(weak, signal);
      if (board.local()[0] != word_of(before)) ++wrong;
      net.wait_signal(strong, signal);
      if (board.local()[1] != word_of(before) + 50) ++wrong;
      net.flush();
      barrier.sync(gin::fence_level::none);
    } else if (comm.rank == 0) {
      net.wait_signal(weak, signal - 1);
      net.put(1, board, source, 1, gin::signal_add{weak, 1, gin::strength::weak});
      net.flush();
    } else {
      net.wait_signal(weak, signal);
      if (board.local()[0] != word_of(0)) ++wrong;
      net.signal(0, gin::signal_add{weak, 1, gin::strength::weak});
    }
  }
  result[0] = 1 + wrong;
}

scenario over_network(const char* name, int ranks, const char* bound, int rounds, int launches, network_round what) {
  const auto contexts = std::make_shared<gin::context_handle>();
  return {
      name,
      ranks,
      bound,
      false,
      [=](requirements& needs) {
        const auto made = needs.add(gin::contexts{.world = {0, ranks, 0, 1}, .signals = 2, .depth = 8, .barriers = 1});
        static std::mutex one;
        const std::lock_guard hold(one);
        *contexts = made;
      },
      [=](const bench& b) {
        for (int launch = 0; launch < launches; ++launch) {
          b.on_each_rank([&](int rank) {
            devcomm::launch(send_in_rounds, {}, b.comm(rank), *contexts, b.board(rank), rounds, what, b.result(rank));
          });
          b.finish();
          for (int rank = 0; rank < b.size(); ++rank) {
            b.require(b.result(rank)[0] == 1, "rank " + std::to_string(rank) + " read an old word");
          }
        }
      }};
}

// --- products ---

/// Two tiles, one of each rank, which both ranks publish and the owner sums.
__global__ void publish_and_sum(device_comm comm, gemm::partial_handle<float> partials, gemm::tile_order order,
                                std::uint32_t launch, std::uint32_t* result) {
  const auto value = [&](int rank, int owner) {
    return static_cast<float>(launch * 1000 + static_cast<std::uint32_t>(rank * 100 + owner + 1));
  };
  const gemm::session<thread> session{thread{}, comm, partials.flags};
  {
    gemm::publisher<float, thread> publisher{thread{}, comm, session, partials, order.grid()};
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      const gemm::tile t = order[i];
      if (publisher.begin()) *publisher.on(t.owner, t) = value(comm.rank, t.owner);
      publisher.end(t);
    }
  }
  gemm::reducer<float, thread> reducer{thread{}, comm, session, partials};
  reducer.reduce(order.grid().at(comm.rank, 0), [&](std::uint32_t, std::uint32_t, int, const float(&sums)[4]) {
    result[0] = sums[0] == value(0, comm.rank) + value(1, comm.rank) ? launch + 1 : 0;
  });
}

/// Block 1 sends this rank's rows to the other rank, each a chunk, and block 0 reads those of the other rank.
__global__ void gather_rows(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks,
                            sym_ptr<std::uint32_t> rows, std::uint32_t launch, std::uint32_t* result) {
  const gemm::session<thread> session{thread{}, comm, flags};
  const gemm::tile_grid& grid = chunks.grid();
  const std::uint32_t first = launch * 100 + 1;
  if (blockIdx.x == 1) {
    gemm::operand_sender<thread> sender{thread{}, comm, session, chunks, 0};
    for (std::uint32_t row = grid.first_row(comm.rank); row < grid.first_row(comm.rank + 1); ++row)
      rows.local()[row] = first + row;
    return sender.send(rows, 0, 1);
  }
  gemm::gate gate{thread{}, session, chunks};
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < grid.tiles_of(1 - comm.rank); ++i) {
    const gemm::tile t = grid.at(1 - comm.rank, i);
    gate.wait(t, 0);
    wrong += rows.local()[t.row] != first + t.row ? 1u : 0u;
  }
  result[0] = wrong == 0 ? launch + 1 : 0;
}

constexpr gemm::tile_shape one_element{1, 1, 1};

struct product_handles {
  gemm::partial_handle<float> partials;
  gemm::flag_handle flags;
};

scenario tiles(const char* name, const char* bound, std::uint32_t rows, std::uint32_t launches, bool gathers) {
  const auto handles = std::make_shared<product_handles>();
  const auto grid = gemm::tile_grid::by_rows({rows, 1, 1}, one_element, 2);
  const gemm::operand_chunks chunks{grid, 1, 1};
  return {name,
          2,
          bound,
          false,
          [=](requirements& needs) {
            needs.lsa_barriers(1);
            product_handles mine{};
            if (gathers) mine.flags = needs.add(gemm::flags{needs.lsa(), chunks.count(), 2});
            if (!gathers) mine.partials = needs.add(gemm::partial_tiles<float>{needs.lsa(), grid, 1});
            static std::mutex one;
            const std::lock_guard hold(one);
            *handles = mine;
          },
          [=](const bench& b) {
            for (std::uint32_t launch = 0; launch < launches; ++launch) {
              b.on_each_rank([&](int rank) {
                if (gathers) {
                  devcomm::launch(gather_rows, {.grid = 2}, b.comm(rank), handles->flags, chunks, b.board(rank), launch,
                                  b.result(rank));
                } else {
                  const gemm::tile_order order{grid, rank, gemm::first_owner::next};
                  devcomm::launch(publish_and_sum, {}, b.comm(rank), handles->partials, order, launch, b.result(rank));
                }
              });
              b.finish();
              for (int rank = 0; rank < b.size(); ++rank)
                b.require(b.result(rank)[0] == launch + 1, "rank " + std::to_string(rank) + " has a wrong value");
            }
          }};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<scenario> all = {
      barrier<thread>("barrier, relaxed", 2, 4, "4 rounds", barrier_call::relaxed),
      barrier<thread>("barrier, sync", 2, 4, "4 rounds", barrier_call::sync),
      barrier<thread>("barrier, sync", 3, 2, "2 rounds", barrier_call::sync),
      barrier<thread>("barrier, relaxed", 3, 2, "2 rounds", barrier_call::relaxed),
      barrier<thread>("barrier, arrive and wait", 2, 3, "3 rounds", barrier_call::arrive_and_wait),
      barrier<thread>("barrier, arrive and wait", 3, 2, "2 rounds", barrier_call::arrive_and_wait),
      barrier<lanes>("barrier, groups of 2 lanes", 3, 2, "2 rounds", barrier_call::sync),
      barrier<thread>("barrier, launches compared", 2, 2, "2 rounds", barrier_call::sync, 1, 1, true),
      barrier<thread>("barrier, used again", 2, 1, "2 sessions of 1 round, 2 launches", barrier_call::sync, 2, 2),
      teams(),
      signals<thread>("signals, ping-pong", "3 rounds, 2 launches", 3, 1, 2),
      signals<lanes>("signals, ping-pong, groups of 2 lanes", "2 sessions of 2 rounds", 2, 2, 1),
      credits(2, "4 rounds", 4),
      credits(3, "3 rounds", 3),
      aborted(),
      given_up(true),
      given_up(false),
      packets<lsa::ll_handle>("LL mailbox", 2, "4 rounds, 2 launches", 1, 2, send_ll, 4),
      packets<lsa::ll_handle>("LL mailbox", 3, "4 rounds, 2 launches", 1, 2, send_ll, 4),
      packets<lsa::lamport_handle>("Lamport mailbox", 2, "4 rounds, 2 launches", 1, 2, send_lamport, 4),
      packets<lsa::lamport_handle>("Lamport mailbox", 3, "4 rounds", 1, 1, send_lamport, 4),
      packets<lsa::ll128_handle>("LL128 mailbox", 2, "2 rounds of 4 lines, 2 launches", 32, 2, send_ll128, 2),
      packets<lsa::ll128_handle>("LL128 mailbox", 2, "3 rounds of 4 lines", 32, 1, send_ll128, 3),
      packets<lsa::ll128_handle>("LL128 mailbox", 3, "2 rounds of 4 lines", 32, 1, send_ll128, 2),
      packets<lsa::ll128_handle>("all-reduce, one-shot, LL128", 2, "2 rounds of 30 packs", 64, 1,
                                 run<lsa::ll128_session, warp, lsa::ll128_handle>, algorithm::one_shot, 60u),
      packets<lsa::ll128_handle>("all-reduce, two-shot, LL128", 2, "60 packs", 128, 1,
                                 run<lsa::ll128_session, warp, lsa::ll128_handle>, algorithm::two_shot, 60u),
      packets<lsa::ll128_handle>("reduce-scatter, LL128", 2, "2 rounds of 30 packs", 64, 1,
                                 run<lsa::ll128_session, warp, lsa::ll128_handle>, algorithm::reduce_scatter, 60u),
      packets<lsa::ll128_handle>("all-gather, LL128", 2, "2 rounds of 30 packs", 64, 1,
                                 run<lsa::ll128_session, warp, lsa::ll128_handle>, algorithm::all_gather, 60u),
      packets<lsa::ll128_handle>("broadcast, LL128", 2, "3 rounds of 30 packs", 64, 1,
                                 run<lsa::ll128_session, warp, lsa::ll128_handle>, algorithm::broadcast, 90u),
      packets<lsa::ll_handle>("all-reduce, one-shot, LL", 2, "3 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::one_shot, 3u),
      packets<lsa::ll_handle>("all-reduce, one-shot, LL", 3, "2 packs", 4, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::one_shot, 2u),
      packets<lsa::lamport_handle>("all-reduce, one-shot, Lamport", 3, "2 packs", 2, 1,
                                   run<lsa::lamport_session, thread, lsa::lamport_handle>, algorithm::one_shot, 2u),
      packets<lsa::ll_handle>("all-reduce, two-shot, LL", 2, "2 packs", 4, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::two_shot, 2u),
      packets<lsa::ll_handle>("all-reduce, two-shot, LL", 3, "3 packs", 4, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::two_shot, 3u),
      packets<lsa::lamport_handle>("all-reduce, two-shot, Lamport", 3, "3 packs", 2, 1,
                                   run<lsa::lamport_session, thread, lsa::lamport_handle>, algorithm::two_shot, 3u),
      fifo<channel::protocol::simple>("FIFO, simple", 2, "1 slot, 3 messages", 1, 3, 1),
      fifo<channel::protocol::simple>("FIFO, simple", 2, "2 slots, 2 launches of 2 messages", 2, 2, 2),
      fifo<channel::protocol::simple>("FIFO, simple", 3, "1 slot, 2 messages", 1, 2, 1),
      fifo<channel::protocol::ll>("FIFO, LL", 2, "1 slot, 3 messages", 1, 3, 1),
      fifo<channel::protocol::ll>("FIFO, LL", 2, "2 slots, 2 launches of 2 messages", 2, 2, 2),
      fifo<channel::protocol::ll>("FIFO, LL", 3, "1 slot, 2 messages", 1, 2, 1),
      fifo<channel::protocol::ll128>("FIFO, LL128", 2, "1 slot, 3 messages", 1, 3, 1),
      fifo<channel::protocol::ll128>("FIFO, LL128", 3, "1 slot, 2 messages", 1, 2, 1),
      messages("messages, inline", "2 calls of a word", carried::inlined, senders::first, 1, 2),
      messages("messages, inline", "3 calls of a word", carried::inlined, senders::first, 1, 3),
      messages("messages, inline", "a word each way", carried::inlined, senders::both, 1, 1),
      messages("messages, to window", "2 calls of a word", carried::to_window, senders::first, 1, 2),
      over_network("network, puts and barrier", 2, "2 rounds", 2, 1, network_round::meet),
      over_network("network, puts and barrier", 3, "1 round", 1, 1, network_round::meet),
      over_network("network, weak and strong signals, flush, barrier", 2, "1 round", 1, 1, network_round::exchange),
      over_network("network, weak and strong signals, flush, barrier", 2, "2 rounds", 2, 1, network_round::exchange),
      over_network("network, weak and strong signals, flush, barrier", 3, "1 round", 1, 1, network_round::exchange),
      over_network("network, credits", 2, "3 rounds", 3, 1, network_round::credits),
      tiles("product, tiles published and summed", "2 tiles, 2 launches", 2, 2, false),
      tiles("product, operand gathered", "2 tiles, 2 launches", 2, 2, true),
      tiles("product, operand gathered", "4 tiles", 4, 1, true),
      zero_copy(2),
      zero_copy(3),
      chunked("1 round, 2 launches", 1, 2, chunked_kind::all_reduce),
      chunked("1 round, 2 launches", 1, 2, chunked_kind::to_windows),
      chunked("1 round, 2 launches", 1, 2, chunked_kind::reduce_scatter),
      chunked("3 rounds", 3, 1, chunked_kind::all_reduce),
      chunked("3 rounds", 3, 1, chunked_kind::to_windows),
      chunked("3 rounds", 3, 1, chunked_kind::reduce_scatter),
      packets<lsa::ll_handle>("reduce-scatter, LL", 3, "3 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::reduce_scatter, 3u),
      packets<lsa::ll_handle>("all-gather, LL", 3, "3 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::all_gather, 3u),
      packets<lsa::ll_handle>("broadcast, LL", 2, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::broadcast, 4u),
      packets<lsa::ll_handle>("broadcast, LL", 3, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::broadcast, 4u),
      packets<lsa::lamport_handle>("broadcast, Lamport", 3, "4 rounds of a pack", 1, 1,
                                   run<lsa::lamport_session, thread, lsa::lamport_handle>, algorithm::broadcast, 4u),
      packets<lsa::ll_handle>("exchange, LL", 2, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::exchange, 4u),
      packets<lsa::ll_handle>("exchange, LL", 3, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::exchange, 4u),
      packets<lsa::lamport_handle>("exchange, Lamport", 3, "4 rounds of a pack", 1, 1,
                                   run<lsa::lamport_session, thread, lsa::lamport_handle>, algorithm::exchange, 4u),
      packets<lsa::ll_handle>("all-to-all, LL", 2, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::all_to_all, 4u),
      packets<lsa::ll_handle>("all-to-all, LL", 3, "4 rounds of a pack", 2, 1,
                              run<lsa::ll_session, thread, lsa::ll_handle>, algorithm::all_to_all, 4u),
      packets<lsa::lamport_handle>("all-to-all, Lamport", 3, "4 rounds of a pack", 1, 1,
                                   run<lsa::lamport_session, thread, lsa::lamport_handle>, algorithm::all_to_all, 4u),
  };
  return explore_all(all, argc, argv);
}
