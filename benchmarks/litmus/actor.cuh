/// \file actor.cuh
/// One block's part in a litmus test: its cells on each rank, its waits, what it counts, and the stress beside it.
///
/// An instance of a test has two or three roles, each played by a block; roles of one instance are on ranks one after
/// the other, and instance `i` starts at rank `i`. All instances of a launch run at once, each in memory of its own.
/// Words hold the number of the round, so nothing is reset between rounds.
#pragma once

#include <devcomm/devcomm.cuh>

#include <cstdint>

namespace litmus {

namespace arch = devcomm::arch;
using devcomm::memory_order;
using devcomm::scope;

constexpr unsigned max_roles = 3;
constexpr unsigned max_threads = 128;

/// What the blocks of one rank have counted.
struct counts {
  std::uint64_t rounds;     ///< that a role of an instance ended
  std::uint64_t looks;      ///< values that were held against what they must be
  std::uint64_t forbidden;  ///< of them, those that must not be
  std::uint64_t lost;       ///< waits for what never came
};

/// The memory of one role of one instance.
struct cell_layout {
  static constexpr std::uint64_t line = 128;
  static constexpr std::uint64_t row_bytes = 16 * max_threads;
  static constexpr std::uint64_t flags = 8;
  static constexpr std::uint64_t areas = 4;
  static constexpr std::uint64_t rows_at = flags * line;
  static constexpr std::uint64_t areas_at = rows_at + 2 * max_roles * row_bytes;
  static constexpr std::uint64_t bytes = areas_at + areas * max_threads * line;
};

enum stress_kind : unsigned { no_stress = 0, local_stress = 1, remote_stress = 2 };  // bits

/// A launch.
struct test {
  devcomm::device_comm comm;
  devcomm::sym_ptr<char> cells;
  devcomm::sym_ptr<char> scratch;  ///< of stress
  std::uint64_t scratch_bytes;
  counts* counted;      ///< in this rank's memory
  std::uint32_t* busy;  ///< blocks of this rank that have a role and have not ended
  unsigned instances;
  unsigned roles;
  bool on_one_gpu;   ///< all roles of an instance are on one rank
  unsigned control;  ///< 0: as the protocol is; else what is weakened
  unsigned rounds;
  unsigned seed;
  unsigned spacing;     ///< bytes between the words of neighboring threads
  unsigned stress;      ///< of stress_kind
  unsigned bursts;      ///< of stress at most; 0: while a role is played
  std::uint64_t limit;  ///< nanoseconds that a wait may take

  DEVCOMM_HOST_DEVICE int rank_of(unsigned instance, unsigned role) const {
    return static_cast<int>((instance + (on_one_gpu ? 0 : role)) % static_cast<unsigned>(comm.lsa().size));
  }
};

/// A mix of three numbers.
DEVCOMM_DEVICE inline std::uint32_t mix(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t h = a * 0x9e3779b9u ^ (b + 0x85ebca6bu) * 0xc2b2ae35u ^ (c + 0x27d4eb2fu) * 0x165667b1u;
  h ^= h >> 15;
  h *= 0x2c1b3c6du;
  return h ^ h >> 13;
}

DEVCOMM_DEVICE inline bool is_at_least(std::uint32_t seen, std::uint32_t round) {
  return static_cast<std::int32_t>(seen - round) >= 0;
}

/// A block in its role. Methods are called by all of its threads unless they say otherwise.
class actor {
 public:
  DEVCOMM_DEVICE actor(const test& given, unsigned instance, unsigned role)
      : test_(given),
        home_(reinterpret_cast<devcomm::resource_header*>(given.comm.resources.local)),
        instance_(instance),
        role_(role) {}

  DEVCOMM_DEVICE unsigned role() const { return role_; }
  DEVCOMM_DEVICE unsigned control() const { return test_.control; }
  DEVCOMM_DEVICE std::uint32_t round() const { return round_; }
  DEVCOMM_DEVICE static bool leads() { return arch::thread_rank() == 0; }

  /// Synchronizes the block. False after the last round, and where a wait of the block was in vain.
  DEVCOMM_DEVICE bool begin_round() {
    if (!together() || round_ == test_.rounds) return false;
    ++round_;
    return true;
  }
  /// Synchronizes the block. False where a wait of one of its threads was in vain.
  DEVCOMM_DEVICE bool together() const { return !devcomm::block::any(lost_ != 0); }

  // Addresses in the memory of `owner`, a role.

  /// A word in a line of its own.
  DEVCOMM_DEVICE std::uint32_t* flag(unsigned owner, unsigned which) const {
    return reinterpret_cast<std::uint32_t*>(at(owner) + which * cell_layout::line);
  }
  /// This thread's packet of 16 bytes from `sender`; even and odd `half`.
  DEVCOMM_DEVICE char* packet(unsigned owner, unsigned sender, std::uint32_t half) const {
    return at(owner) + cell_layout::rows_at + (half % 2 * max_roles + sender) * cell_layout::row_bytes +
           std::uint64_t{16} * arch::thread_rank();
  }
  /// This thread's word of `area`: as far from its neighbors' as this launch has them.
  DEVCOMM_DEVICE std::uint32_t* word(unsigned owner, unsigned area) const {
    return reinterpret_cast<std::uint32_t*>(at(owner) + cell_layout::areas_at + area * max_threads * cell_layout::line +
                                            std::uint64_t{test_.spacing} * arch::thread_rank());
  }

  /// What `sender` sends in this round to this thread's like: never 0.
  DEVCOMM_DEVICE std::uint32_t value(unsigned sender, unsigned part = 0) const {
    return mix(round_, instance_ * max_roles + sender, 4 * arch::thread_rank() + part) >> 2 | 1;
  }

  /// One thread polls until `ready` returns true, or all lanes of a warp do; false where it was in vain.
  template <class LaneGroup = devcomm::detail::one_thread, class Ready>
  DEVCOMM_DEVICE bool await(unsigned peer, Ready ready) {
    const auto label = [&]() -> devcomm::detail::wait_label {
      const int rank = test_.comm.lsa().world_rank(test_.rank_of(instance_, peer));
      return {{devcomm::operation::lsa_signal, instance_, rank, round_}, home_->comm.rank, test_.limit, true};
    };
    bool arrived = true;
    devcomm::detail::poll<1, LaneGroup>(home_, {true, test_.limit}, label, ready,
                                        [&](devcomm::status) { arrived = false; });
    if (!arrived) ++lost_;
    return arrived;
  }
  /// One thread waits until `word` is `least` or more, as barriers do.
  DEVCOMM_DEVICE void await_word(unsigned peer, const std::uint32_t* word, std::uint32_t least, memory_order order) {
    await(peer, [&] { return is_at_least(arch::load<memory_order::relaxed, scope::system>(word), least); });
    if (devcomm::acquires(order)) static_cast<void>(arch::load<memory_order::acquire, scope::system>(word));
  }

  /// Counts what one thread saw.
  DEVCOMM_DEVICE void look(bool is_right) {
    ++looks_;
    if (!is_right) ++forbidden_;
  }

  /// Lets one warp in four, or the whole block where `salt` is even, come late.
  DEVCOMM_DEVICE void jitter(unsigned salt) const {
    const unsigned warp = salt % 2 == 0 ? 0 : 1 + arch::thread_rank() / arch::warp_threads;
    const std::uint32_t random = mix(test_.seed + salt, round_, instance_ * 64 + role_ * 16 + warp);
    if (random % 4 == 0) arch::sleep(random >> 4 & 0x7ff);
  }

  /// Adds what the threads have counted to what the rank has.
  DEVCOMM_DEVICE void end() const {
    add(&test_.counted->looks, looks_);
    add(&test_.counted->forbidden, forbidden_);
    add(&test_.counted->lost, lost_);
    if (leads()) add(&test_.counted->rounds, round_);
    devcomm::block::sync();
    if (leads()) arch::fetch_add<memory_order::relaxed, scope::device>(test_.busy, ~std::uint32_t{0});
  }

 private:
  DEVCOMM_DEVICE static void add(std::uint64_t* to, std::uint64_t value) {
    if (value != 0) arch::fetch_add<memory_order::relaxed, scope::device>(to, value);
  }
  DEVCOMM_DEVICE char* at(unsigned owner) const {
    const std::uint64_t cell = std::uint64_t{instance_} * max_roles + owner;
    return test_.cells.lsa(test_.rank_of(instance_, owner)) + cell * cell_layout::bytes;
  }

  const test& test_;
  devcomm::resource_header* home_;
  unsigned instance_;
  unsigned role_;
  std::uint32_t round_ = 0;
  std::uint64_t looks_ = 0;
  std::uint64_t forbidden_ = 0;
  std::uint64_t lost_ = 0;
};

/// Strong accesses to random places of the scratch memory of this rank and of its peers, while a role is played here.
DEVCOMM_DEVICE inline void stress(const test& given) {
  if (given.stress == no_stress) return;
  const int ranks = given.comm.lsa().size;
  const int self = given.comm.lsa().rank;
  const std::uint32_t thread = arch::block_rank() * arch::block_threads() + arch::thread_rank();
  for (unsigned burst = 0; given.bursts == 0 || burst < given.bursts; ++burst) {
    if (arch::load<memory_order::relaxed, scope::device>(given.busy) == 0) return;
    for (unsigned i = 0; i < 16; ++i) {
      const std::uint32_t random = mix(given.seed + i, burst, thread);
      const bool is_remote = given.stress == remote_stress || (given.stress != local_stress && random % 2 == 0);
      char* const place = given.scratch.lsa(is_remote ? (self + 1) % ranks : self) +
                          std::uint64_t{16} * (random % (given.scratch_bytes / 16));
      if ((random >> 28) < 10) {
        arch::store_words(place, {random, burst, thread, i});
      } else if ((random >> 28) < 14) {
        static_cast<void>(arch::load_words(place));
      } else {
        arch::fetch_add<memory_order::relaxed, scope::system>(reinterpret_cast<std::uint32_t*>(place), 1u);
      }
    }
  }
}

/// All roles of `Shape`. Blocks whose role is another rank's, and those past the instances, are stress.
template <class Shape>
__global__ void __launch_bounds__(max_threads) play(test given) {
  const unsigned instance = arch::block_rank() / given.roles;
  const unsigned role = arch::block_rank() % given.roles;
  if (instance >= given.instances || given.rank_of(instance, role) != given.comm.lsa().rank) return stress(given);
  actor self(given, instance, role);
  Shape::run(self);
  self.end();
}

}  // namespace litmus
