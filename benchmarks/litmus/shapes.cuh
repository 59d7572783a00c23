/// \file shapes.cuh
/// The shapes of the library's protocols, each with controls: the same with one thing taken away.
///
/// A shape is made of the instructions that the protocol is made of, and, where there are any, of its functions.
/// docs/memory_model.md says why the outcome that a shape counts is forbidden. A control is either *weakened*: an order
/// is relaxed, or data and flag are apart, so that PTX allows the outcome and a GPU may show it or not; or it is
/// *broken*: a step is left out, so that even a sequentially consistent machine shows the outcome, and so does a GPU,
/// or the test is blind.
#pragma once

#include "litmus/actor.cuh"

#include <devcomm/lsa/detail/barrier_protocol.cuh>
#include <devcomm/lsa/lamport_session.cuh>
#include <devcomm/lsa/ll128_session.cuh>
#include <devcomm/lsa/ll_session.cuh>

#include <cuda/ptx>

namespace litmus {

DEVCOMM_DEVICE inline void store_weakly(std::uint32_t* word, std::uint32_t value) {
  arch::store_bytes_streaming<4>(word, value);
}
DEVCOMM_DEVICE inline std::uint32_t load_weakly(const std::uint32_t* word) { return arch::load_bytes<4>(word); }

/// Data by weak stores, the block's sync, a flag by one thread: as `lsa::barrier_session`. `Pulled`: the data stays
/// with its writer, and the reader loads it across the link; else it is pushed to the reader.
template <bool Pulled>
struct message_passing {
  enum : unsigned { relaxed_arrival = 1, relaxed_wait = 2, no_sync = 3 };
  static constexpr unsigned writer = 0, reader = 1;

  DEVCOMM_DEVICE static void run(actor& self) {
    const unsigned control = self.control();
    const memory_order arrival = control == relaxed_arrival ? memory_order::relaxed : memory_order::release;
    const memory_order wait = control == relaxed_wait ? memory_order::relaxed : memory_order::acquire;
    std::uint32_t* const data = self.word(Pulled ? writer : reader, 0);
    while (self.begin_round()) {
      if (self.role() == writer) {
        self.jitter(1);
        store_weakly(data, self.round());
        if (control != no_sync) devcomm::block::sync();
        if (self.leads()) {
          devcomm::detail::store_flag(self.flag(reader, 0), self.round(), arrival);
          self.await_word(reader, self.flag(writer, 1), self.round(), memory_order::acquire);
        }
      } else {
        if (self.leads()) self.await_word(writer, self.flag(reader, 0), self.round(), wait);
        if (!self.together()) return;
        self.look(load_weakly(data) == self.round());
        devcomm::block::sync();
        if (self.leads()) devcomm::detail::store_flag(self.flag(writer, 1), self.round(), memory_order::release);
      }
    }
  }
};

/// Packets of which each half has its flag, both ways, as `lsa::ll_session`.
struct ll {
  enum : unsigned { flag_apart = 1, flag_first = 2 };

  DEVCOMM_DEVICE static void run(actor& self) {
    using protocol = devcomm::detail::ll_protocol;
    const unsigned me = self.role(), peer = 1 - me, control = self.control();
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      char* const outgoing = self.packet(peer, me, round);
      const char* const incoming = self.packet(me, peer, round);
      const std::uint64_t sent = self.value(me) | std::uint64_t{self.value(me, 1)} << 32;
      const std::uint64_t expected = self.value(peer) | std::uint64_t{self.value(peer, 1)} << 32;
      self.jitter(1);
      if (control == 0) {
        arch::store_halves(outgoing, protocol::encode(sent, round));
        arch::halves got{};
        if (self.await(peer, [&] {
              got = arch::load_halves(incoming);
              return protocol::has_flag(got, round);
            }))
          self.look(protocol::decode(got) == expected);
        continue;
      }
      const auto store_flag = [&] { arch::store<memory_order::relaxed, scope::system>(self.word(peer, 0), round); };
      if (control == flag_first) store_flag();
      arch::store<memory_order::relaxed, scope::system>(reinterpret_cast<std::uint64_t*>(outgoing), sent);
      if (control == flag_apart) store_flag();
      self.await_word(peer, self.word(me, 0), round, memory_order::relaxed);
      self.look(arch::load<memory_order::relaxed, scope::system>(reinterpret_cast<const std::uint64_t*>(incoming)) ==
                expected);
    }
  }
};

/// Lines of 128 bytes that a warp stores and loads by one instruction, both ways, as `lsa::ll128_session`. In the
/// controls two instructions store a line, a half each.
struct ll128 {
  enum : unsigned { split = 1, split_flag_first = 2 };

  DEVCOMM_DEVICE static void run(actor& self) {
    using protocol = devcomm::detail::ll128_protocol;
    const unsigned me = self.role(), peer = 1 - me, control = self.control();
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      const arch::vec16 words = protocol::encode(data_of(self, me), round);
      const arch::vec16 expected = protocol::decode(protocol::encode(data_of(self, peer), round));
      char* const outgoing = self.packet(peer, me, round);
      self.jitter(1);
      arch::join_warp();
      if (control == 0) {
        arch::store_lines(outgoing, words);
      } else {
        const bool goes_first = (arch::lane() % 8 < 4) == (control == split);
        if (goes_first) arch::store_words(outgoing, words);
        devcomm::warp::sync();
        if (!goes_first) arch::store_words(outgoing, words);
      }
      arch::vec16 got{};
      arch::join_warp();
      const bool arrived = self.await<devcomm::detail::whole_warp>(peer, [&] {
        got = arch::load_lines(self.packet(me, peer, round));
        return !devcomm::detail::whole_warp::any(protocol::is_missing(got, round));
      });
      if (!arrived) continue;
      got = protocol::decode(got);
      self.look(got.x == expected.x && got.y == expected.y && got.z == expected.z && got.w == expected.w);
    }
  }

 private:
  DEVCOMM_DEVICE static arch::vec16 data_of(const actor& self, unsigned sender) {
    return {self.value(sender, 0), self.value(sender, 1), self.value(sender, 2), self.value(sender, 3)};
  }
};

/// Packets that are there when no word is 0, zeroed by the reader, both ways, as `lsa::lamport_session`.
struct lamport {
  enum : unsigned { no_fence = 1, one_row = 2 };

  DEVCOMM_DEVICE static void run(actor& self) {
    using protocol = devcomm::detail::lamport_protocol;
    const unsigned me = self.role(), peer = 1 - me, control = self.control();
    while (self.begin_round()) {
      if (self.round() > 1 && control != no_fence) protocol::end_round();
      const std::uint32_t half = control == one_row ? 0 : self.round();
      char* const incoming = self.packet(me, peer, half);
      self.jitter(1);
      arch::store_words(self.packet(peer, me, half), words_of(self, me));
      self.jitter(3);
      arch::vec16 got{};
      if (!self.await(peer, [&] {
            got = arch::load_words(incoming);
            return protocol::is_whole(got);
          }))
        continue;
      const arch::vec16 expected = words_of(self, peer);
      self.look(got.x == expected.x && got.y == expected.y && got.z == expected.z && got.w == expected.w);
      if (control == one_row) self.jitter(5);
      arch::store_words(incoming, {0, 0, 0, 0});
    }
  }

 private:
  DEVCOMM_DEVICE static arch::vec16 words_of(const actor& self, unsigned sender) {
    return {self.value(sender, 0), self.value(sender, 1), self.value(sender, 2), self.value(sender, 3)};
  }
};

// Bulk copies, which devices before compute capability 9.0 do not have.

/// What a peer stored is read by a bulk copy of the waiting thread: as operands behind `gemm::gate`. `Pulled`: from the
/// writer's memory, across the link.
template <bool Pulled>
struct bulk_load {
  enum : unsigned { no_proxy_fence = 1, relaxed_wait = 2, no_sync = 3 };
  static constexpr unsigned writer = 0, reader = 1;

  DEVCOMM_DEVICE static void run(actor& self) {
#if defined(DEVCOMM_SIMULATOR) || __CUDA_ARCH__ >= 900
    namespace ptx = cuda::ptx;
    alignas(128) __shared__ arch::vec16 rows[max_threads];
    __shared__ std::uint64_t full;
    const unsigned control = self.control();
    const auto bytes = static_cast<std::uint32_t>(arch::block_threads() * sizeof(arch::vec16));
    char* const mine = self.packet(Pulled ? writer : reader, writer, 0);
    if (self.leads()) {
      ptx::mbarrier_init(&full, 1);
      ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      if (self.role() == writer) {
        self.jitter(1);
        arch::store16(mine, words_of(self));
        if (control != no_sync) devcomm::block::sync();
        if (self.leads()) {
          devcomm::detail::store_flag(self.flag(reader, 0), round, memory_order::release);
          self.await_word(reader, self.flag(writer, 1), round, memory_order::acquire);
        }
        continue;
      }
      if (self.leads()) {
        self.await_word(writer, self.flag(reader, 0), round,
                        control == relaxed_wait ? memory_order::relaxed : memory_order::acquire);
        if (control != no_proxy_fence) arch::fence_async();
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, bytes);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, rows, mine, bytes, &full);
      }
      while (!ptx::mbarrier_try_wait_parity(&full, (round - 1) % 2)) {
      }
      const arch::vec16 got = rows[arch::thread_rank()], expected = words_of(self);
      self.look(got.x == expected.x && got.y == expected.y && got.z == expected.z && got.w == expected.w);
      devcomm::block::sync();
      if (self.leads()) devcomm::detail::store_flag(self.flag(writer, 1), round, memory_order::release);
    }
#else
    static_cast<void>(self);
#endif
  }

 private:
  DEVCOMM_DEVICE static arch::vec16 words_of(const actor& self) {
    return {self.value(writer, 0), self.value(writer, 1), self.value(writer, 2), self.value(writer, 3)};
  }
};

/// A bulk copy stores shared memory to a peer, or adds it to what is there, and the thread that issued it then says so:
/// as `gemm::publisher::store_shared`.
template <bool Adds>
struct bulk_store {
  enum : unsigned { read_only_wait = 1, no_proxy_fence = 2, early_flag = 3 };
  static constexpr unsigned sender = 0, receiver = 1;

  DEVCOMM_DEVICE static void run(actor& self) {
#if defined(DEVCOMM_SIMULATOR) || __CUDA_ARCH__ >= 900
    namespace ptx = cuda::ptx;
    alignas(128) __shared__ arch::vec16 rows[max_threads];
    const unsigned control = self.control();
    const auto bytes = static_cast<std::uint32_t>(arch::block_threads() * sizeof(arch::vec16));
    char* const theirs = self.packet(receiver, sender, 0);
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      if (self.role() == sender) {
        rows[arch::thread_rank()] = Adds ? arch::vec16{1, 1, 1, 1} : words_of(self);
        if (control != no_proxy_fence) arch::fence_async();
        self.jitter(1);
        devcomm::block::sync();
        if (!self.leads()) continue;
        const auto say_so = [&] { devcomm::detail::store_flag(self.flag(receiver, 0), round, memory_order::release); };
        if (control == early_flag) say_so();
        if constexpr (Adds) {
          ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add,
                                    reinterpret_cast<std::uint32_t*>(theirs),
                                    reinterpret_cast<const std::uint32_t*>(rows), bytes);
        } else {
          arch::store_bulk(theirs, rows, bytes);
        }
        if (control == read_only_wait) {
          ptx::cp_async_bulk_commit_group();
          ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        } else {
          arch::finish_bulk_stores();
        }
        if (control != early_flag) say_so();
        self.await_word(receiver, self.flag(sender, 1), round, memory_order::acquire);
        continue;
      }
      if (self.leads()) self.await_word(sender, self.flag(receiver, 0), round, memory_order::acquire);
      if (!self.together()) return;
      const arch::vec16 got = arch::load16(theirs);
      const arch::vec16 expected = Adds ? arch::vec16{round, round, round, round} : words_of(self);
      self.look(got.x == expected.x && got.y == expected.y && got.z == expected.z && got.w == expected.w);
      devcomm::block::sync();
      if (self.leads()) devcomm::detail::store_flag(self.flag(sender, 1), round, memory_order::release);
    }
    if (self.role() == sender && self.leads()) arch::finish_bulk_stores();
#else
    static_cast<void>(self);
#endif
  }

 private:
  DEVCOMM_DEVICE static arch::vec16 words_of(const actor& self) {
    return {self.value(sender, 0), self.value(sender, 1), self.value(sender, 2), self.value(sender, 3)};
  }
};

/// Two chunks in the receiver's memory that are written in turn, each again once the receiver has given credit for it:
/// as FIFO channels, and the buffers of `all_reduce_two_shot_chunked`.
struct chunk_reuse {
  enum : unsigned { relaxed_credit = 1, early_credit = 2 };
  static constexpr unsigned sender = 0, receiver = 1;

  DEVCOMM_DEVICE static void run(actor& self) {
    const unsigned control = self.control();
    const bool is_relaxed = control == relaxed_credit;
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      std::uint32_t* const chunk = self.word(receiver, round % 2);
      std::uint32_t* const tail = self.flag(receiver, 0);
      std::uint32_t* const head = self.flag(sender, 0);
      if (self.role() == sender) {
        if (self.leads() && round > 2)
          self.await_word(receiver, head, round - 2, is_relaxed ? memory_order::relaxed : memory_order::acquire);
        if (!self.together()) return;
        store_weakly(chunk, round);
        devcomm::block::sync();
        if (self.leads()) devcomm::detail::store_flag(tail, round, memory_order::release);
      } else {
        if (self.leads()) self.await_word(sender, tail, round, memory_order::acquire);
        if (!self.together()) return;
        const auto give_credit = [&](memory_order order) {
          if (self.leads()) devcomm::detail::store_flag(head, round, order);
        };
        if (control == early_credit) give_credit(memory_order::release);
        self.jitter(1);
        self.look(load_weakly(chunk) == round);
        devcomm::block::sync();
        if (control != early_credit) give_credit(is_relaxed ? memory_order::relaxed : memory_order::release);
      }
    }
  }
};

/// A row that is written again on the strength of what was heard through another rank, as packet sessions do: the last
/// rank writes the first one's row, whose reader then tells the middle one, who tells the last. Nothing but relaxed
/// packets travels.
struct row_reuse {
  enum : unsigned { before_all_looked = 1, unheard = 2 };
  static constexpr unsigned reader = 0, teller = 1, writer = 2;

  DEVCOMM_DEVICE static void run(actor& self) {
    using protocol = devcomm::detail::ll_protocol;
    const unsigned control = self.control();
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      if (self.role() == reader) {
        self.jitter(1);
        arch::halves got{};
        self.await(writer, [&] {
          got = arch::load_halves(self.packet(reader, writer, 0));
          return is_at_least(flag_of(got.low), round) && is_at_least(flag_of(got.high), round);
        });
        const std::uint64_t expected = self.value(writer) | std::uint64_t{self.value(writer, 1)} << 32;
        self.look(protocol::has_flag(got, round) && protocol::decode(got) == expected);
        if (control == before_all_looked && self.leads()) tell(self, teller);
        if (!self.together()) return;
        if (control != before_all_looked && self.leads()) tell(self, teller);
      } else if (self.role() == teller) {
        if (self.leads() && control != unheard) hear(self, reader, round);
        if (!self.together()) return;
        if (self.leads()) tell(self, writer);
      } else {
        if (self.leads() && round > 1) hear(self, teller, round - 1);
        if (!self.together()) return;
        const std::uint64_t data = self.value(writer) | std::uint64_t{self.value(writer, 1)} << 32;
        arch::store_halves(self.packet(reader, writer, 0), protocol::encode(data, round));
      }
    }
  }

 private:
  DEVCOMM_DEVICE static std::uint32_t flag_of(std::uint64_t half) { return static_cast<std::uint32_t>(half >> 32); }
  DEVCOMM_DEVICE static void tell(const actor& self, unsigned peer) {
    arch::store_halves(self.packet(peer, self.role(), 0),
                       devcomm::detail::ll_protocol::encode(self.round(), self.round()));
  }
  DEVCOMM_DEVICE static void hear(actor& self, unsigned peer, std::uint32_t round) {
    self.await(peer, [&] {
      const arch::halves got = arch::load_halves(self.packet(self.role(), peer, 0));
      return is_at_least(flag_of(got.low), round) && is_at_least(flag_of(got.high), round);
    });
  }
};

/// A failed wait sets the abort word before it counts its failure and tells others: who hears of it, by the count or by
/// a message, finds the word set, as `detail::take_failure_slot` has it. On one GPU; each thread of a block has a
/// partner.
struct abort_word {
  enum : unsigned { no_fence = 1, told_first = 2 };
  static constexpr unsigned failing = 0, hearing = 1;

  DEVCOMM_DEVICE static void run(actor& self) {
    const unsigned control = self.control();
    std::uint32_t* const word = self.word(failing, 0);
    std::uint32_t* const failures = self.word(failing, 1);
    std::uint32_t* const message = self.word(hearing, 2);
    std::uint32_t* const answer = self.word(failing, 3);
    const std::uint32_t* const heard = arch::thread_rank() % 2 == 0 ? failures : message;
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      if (self.role() == failing) {
        self.jitter(1);
        const auto set = [&] { arch::exchange<memory_order::relaxed, scope::device>(word, round); };
        if (control != told_first) set();
        if (control == 0) arch::fence<memory_order::acq_rel, scope::device>();
        arch::fetch_add<memory_order::relaxed, scope::device>(failures, 1u);
        arch::store<memory_order::relaxed, scope::system>(message, round);
        if (control == told_first) set();
        self.await_word(hearing, answer, round, memory_order::acquire);
      } else {
        self.await_word(failing, heard, round, memory_order::acquire);
        self.look(arch::load<memory_order::relaxed, scope::device>(word) == round);
        arch::store<memory_order::release, scope::system>(answer, round);
      }
    }
  }
};

/// Store buffering: each of two threads stores its own word in the other's memory and then loads the word that the
/// other stores; one of them sees the other's. It takes sequentially consistent fences, so no protocol of the library
/// relies on it. The controls tell whether threads meet closely enough for a weak outcome to show.
struct store_buffering {
  enum : unsigned { acq_rel_fence = 1, no_fence = 2 };

  DEVCOMM_DEVICE static void run(actor& self) {
    const unsigned me = self.role(), peer = 1 - me, control = self.control();
    while (self.begin_round()) {
      const std::uint32_t round = self.round();
      arch::store<memory_order::relaxed, scope::system>(self.word(peer, 0), round);
      self.await_word(peer, self.word(me, 0), round, memory_order::relaxed);
      arch::store<memory_order::relaxed, scope::system>(self.word(peer, 1), round);
      if (control == 0) __threadfence_system();
      if (control == acq_rel_fence) arch::fence<memory_order::acq_rel, scope::system>();
      const bool saw = is_at_least(arch::load<memory_order::relaxed, scope::system>(self.word(me, 1)), round);
      if (me == 1) {
        arch::store<memory_order::relaxed, scope::system>(self.word(peer, 2), 2 * round + (saw ? 1 : 0));
        continue;
      }
      std::uint32_t told = 0;
      if (self.await(peer, [&] {
            told = arch::load<memory_order::relaxed, scope::system>(self.word(me, 2));
            return is_at_least(told, 2 * round);
          }))
        self.look(saw || told % 2 == 1);
    }
  }
};

}  // namespace litmus
