/// The store-buffer delay: what PTX forbids never happens, and what a missing release or acquire permits does.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

#include <cooperative_groups.h>

#include <functional>
#include <stdexcept>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

constexpr auto relaxed = memory_order::relaxed;
constexpr auto acquire = memory_order::acquire;
constexpr auto release = memory_order::release;

template <memory_order Order = relaxed, class T>
T load(const T* p) {
  return arch::load<Order, scope::system>(p);
}
template <memory_order Order = relaxed, class T>
void store(T* p, T value) {
  arch::store<Order, scope::system>(p, value);
}
template <memory_order Order = relaxed>
void wait_for(const unsigned* flag, unsigned value) {
  while (load<Order>(flag) < value) {
  }
}

constexpr unsigned words = 16;

/// Memory of one run: variables, each in a line of its own, and what threads found. Zeroed.
struct board {
  struct alignas(128) line {
    unsigned word[32];
  };
  line data;
  line x, y, z, flag;
  unsigned found[8];
};

class device_board {
 public:
  device_board() {
    devcomm::check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(board)), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(data_, 0, sizeof(board)), "cudaMemset");
  }
  ~device_board() { cudaFree(data_); }
  device_board(const device_board&) = delete;
  device_board& operator=(const device_board&) = delete;
  [[nodiscard]] board* get() const { return data_; }
  [[nodiscard]] board read() const {
    board b;
    devcomm::check_cuda(cudaMemcpy(&b, data_, sizeof b, cudaMemcpyDefault), "cudaMemcpy");
    return b;
  }

 private:
  board* data_ = nullptr;
};

// --- message passing: data, then a flag ---

enum class fences { none, writer, reader, both };
enum class access { plain, strong, volatile_, copied };

template <access How>
unsigned read_word(const unsigned* p) {
  if (How == access::strong) return load(p);
  if (How == access::volatile_) return *static_cast<const volatile unsigned*>(p);
  return *p;
}

/// How many words of the data are old although the flag is new.
template <access How, memory_order Store, memory_order Load, fences Fences>
__global__ void pass_message(board* b) {
  if (blockIdx.x == 0) {
    for (unsigned i = 0; i < words; ++i) {
      if (How == access::strong) {
        store(&b->data.word[i], 1u);
      } else {
        b->data.word[i] = 1;
      }
    }
    if (Fences == fences::writer || Fences == fences::both) __threadfence();
    store<Store>(b->flag.word, 1u);
  } else {
    wait_for<Load>(b->flag.word, 1);
    if (Fences == fences::reader || Fences == fences::both) __threadfence();
    unsigned copy[words] = {};
    if (How == access::copied) memcpy(copy, b->data.word, sizeof copy);
    for (unsigned i = 0; i < words; ++i) {
      b->found[0] += (How == access::copied ? copy[i] : read_word<How>(&b->data.word[i])) == 0 ? 1 : 0;
    }
  }
}

/// The same from thread to thread of a block or warp, by shared memory.
enum class sync_by { nothing, vote, warp, block };
template <sync_by How>
__global__ void pass_in_block(board* b) {
  __shared__ unsigned words_of[32];
  words_of[threadIdx.x] = 0;
  __syncthreads();
  words_of[threadIdx.x] = 1;
  if (How == sync_by::vote) __any_sync(0xffffffffu, 1);
  if (How == sync_by::warp) __syncwarp();
  if (How == sync_by::block) __syncthreads();
  if (words_of[(threadIdx.x + 1) % 32] == 0) atomicAdd(b->found, 1u);
}

__global__ void pass_by_grid(board* b) {
  b->data.word[blockIdx.x] = 1;
  cooperative_groups::this_grid().sync();
  if (b->data.word[(blockIdx.x + 1) % gridDim.x] == 0) atomicAdd(b->found, 1u);
}

/// From thread to thread by a chain: each hands on what it was told.
template <memory_order Store, memory_order Load>
__global__ void pass_through(board* b) {
  if (blockIdx.x == 0) {
    store(b->x.word, 1u);
    store<Store>(b->y.word, 1u);
  } else if (blockIdx.x == 1) {
    wait_for<Load>(b->y.word, 1);
    store<Store>(b->z.word, 1u);
  } else {
    wait_for<Load>(b->z.word, 1);
    b->found[0] = load(b->x.word) == 0 ? 1 : 0;
  }
}

/// Who has seen a store and then hands that on is believed, though the writer released nothing.
__global__ void see_and_pass(board* b) {
  if (blockIdx.x == 0) {
    store(b->x.word, 1u);
  } else if (blockIdx.x == 1) {
    wait_for(b->x.word, 1);
    store<release>(b->y.word, 1u);
  } else {
    wait_for<acquire>(b->y.word, 1);
    b->found[0] = load(b->x.word) == 0 ? 1 : 0;
  }
}

// --- one location ---

/// Values grow; a thread that reads them repeatedly never sees them shrink.
/// All others add to a counter, late; block 0 waits for them as much code does.
__global__ void wait_by_volatile(board* b) {
  if (blockIdx.x != 0) {
    atomicAdd(b->x.word, 1u);
  } else {
    while (*static_cast<volatile unsigned*>(b->x.word) < gridDim.x - 1) {
    }
  }
}

__global__ void count_up(board* b) {
  if (blockIdx.x == 0) {
    for (unsigned i = 1; i <= 200 && threadIdx.x == 0; ++i) store(b->x.word, i);
  } else {
    unsigned last = 0;
    while (last < 200) {
      const unsigned now = threadIdx.x % 2 == 0 ? load(b->x.word) : load<acquire>(b->x.word);
      if (now < last) atomicAdd(b->found, 1u);
      last = now;
    }
  }
}

__global__ void count_together(board* b) {
  for (int i = 0; i < 20; ++i) {
    const unsigned before = atomicAdd(b->x.word, 1u);
    if (load(b->x.word) <= before) atomicAdd(b->found, 1u);
    unsigned seen = 0;
    do {
      seen = load(b->y.word);
    } while (atomicCAS(b->y.word, seen, seen + 1) != seen);
    if (load(b->y.word) <= seen) atomicAdd(b->found, 1u);
  }
}

/// Eight bytes are seen as they were stored, and half of them does not go back either.
__global__ void write_pairs(board* b) {
  auto* const pair = reinterpret_cast<std::uint64_t*>(b->x.word);
  if (blockIdx.x == 0) {
    for (std::uint64_t i = 1; i <= 100; ++i) store(pair, i << 32 | i);
  } else {
    for (;;) {
      const unsigned half = load(b->x.word + 1);
      const std::uint64_t now = load(pair);
      if ((now >> 32) != (now & 0xffffffffu) || (now >> 32) < half) atomicAdd(b->found, 1u);
      if (now >> 32 == 100) break;
    }
  }
}

/// A thread sees its own stores, whatever others store.
__global__ void see_own(board* b) {
  for (unsigned i = 0; i < 20; ++i) {
    const unsigned mine = (blockIdx.x + 1) * 100 + i;
    b->data.word[blockIdx.x] = mine;
    if (b->data.word[blockIdx.x] != mine) atomicAdd(b->found, 1u);
    store(&b->data.word[8 + blockIdx.x], mine);
    if (load(&b->data.word[8 + blockIdx.x]) != mine) atomicAdd(b->found, 1u);
  }
}

/// How a warp stores its four lines: whole, or with their flags before or after the data.
enum class tearing { none, flag_first, flag_last };

/// What lane `lane` stores in round `i`: two words of data, and in lanes with a flag the round.
__device__ arch::vec16 words_of_line(unsigned lane, unsigned i) {
  return {1000 * i + lane, i, lane % 8 == 7 ? i : 2000 * i + lane, 0};
}

/// Who finds a line's flag finds its data, of the same round.
template <tearing How>
__global__ void write_lines(board* b) {
  auto* const place = reinterpret_cast<arch::vec16*>(&b->data) + threadIdx.x;  // of data, x, y and z
  constexpr unsigned rounds = 12;
  const bool has_flag = threadIdx.x % 8 == 7;
  if (blockIdx.x == 0) {
    for (unsigned i = 1; i <= rounds; ++i) {
      const arch::vec16 mine = words_of_line(threadIdx.x, i);
      if (How == tearing::none) {
        arch::store_lines(place, mine);
        continue;
      }
      if (has_flag == (How == tearing::flag_first)) arch::store_words(place, mine);
      __any_sync(0xffffffffu, 1);
      if (has_flag != (How == tearing::flag_first)) arch::store_words(place, mine);
    }
  } else {
    unsigned round = 0;
    while (round < rounds) {
      const arch::vec16 got = arch::load_lines(place);
      round = __shfl_sync(0xffffffffu, got.z, static_cast<int>(threadIdx.x | 7u));
      const arch::vec16 expected = words_of_line(threadIdx.x, round);
      const bool torn = got.x != expected.x || got.y != expected.y || got.z != expected.z;
      if (round != 0 && torn) atomicAdd(b->found, 1u);
      round = __all_sync(0xffffffffu, round == rounds) != 0 ? rounds : 0;
    }
  }
}

/// Block 0 stores 1, and tells block 1, which stores 2: which value stays? Blocks 2 and 3 see the values change.
template <memory_order Store, memory_order Load, bool Wide>
__global__ void store_after(board* b) {
  using word = std::conditional_t<Wide, std::uint64_t, unsigned>;
  constexpr word all = Wide ? static_cast<word>(0x100000001ull) : 1;
  auto* const x = reinterpret_cast<word*>(b->x.word);
  if (blockIdx.x == 0) {
    store(x, all);
    store<Store>(b->y.word, 1u);
  } else if (blockIdx.x == 1) {
    wait_for<Load>(b->y.word, 1);
    store(x, 2 * all);
    if (load(x) == 0) atomicAdd(b->found, 1u);  // its own or the other, but not what was before
    store<release>(b->z.word, 1u);
  } else {
    word seen[3] = {};
    unsigned changes = 0;
    while (load<acquire>(b->z.word) == 0) {
      const word now = load(x);
      if (now != seen[changes] && changes < 2) seen[++changes] = now;
    }
    const word last = load(x);
    if (last == 0) atomicAdd(b->found, 1u);  // at least what block 1 stored
    for (const word v : seen) {
      if (v % all != 0) atomicAdd(b->found, 1u);
    }
  }
}

// --- two locations ---

enum class between { nothing, release_acquire, fence };

/// Each of two threads stores one word and loads the other's: both may find the old ones, unless both fence.
template <between How>
__global__ void store_then_load(board* b) {
  unsigned* const mine = blockIdx.x == 0 ? b->x.word : b->y.word;
  const unsigned* const other = blockIdx.x == 0 ? b->y.word : b->x.word;
  if (How == between::release_acquire) {
    store<release>(mine, 1u);
    b->found[1 + blockIdx.x] = load<acquire>(other);
  } else {
    store(mine, 1u);
    if (How == between::fence) __threadfence();
    b->found[1 + blockIdx.x] = load(other);
  }
}

/// Each loads one word and then stores the other's: nobody sees what has not been stored.
__global__ void load_then_store(board* b) {
  unsigned* const mine = blockIdx.x == 0 ? b->x.word : b->y.word;
  const unsigned* const other = blockIdx.x == 0 ? b->y.word : b->x.word;
  b->found[1 + blockIdx.x] = load(other) == 0 ? 1 : 0;
  store(mine, 1u);
}

/// A lock of acquire and release, and a sum that it guards.
__global__ void add_under_lock(board* b) {
  for (int i = 0; i < 5; ++i) {
    const unsigned ticket = arch::fetch_add<relaxed, scope::system>(b->x.word, 1u);
    while (load<acquire>(b->y.word) != ticket) {
    }
    b->z.word[0] = b->z.word[0] + 1;
    store<release>(b->y.word, ticket + 1);
  }
}

// --- runs ---

struct delayed_stores {
  explicit delayed_stores(std::uint64_t steps) { sim::set_store_delay(steps); }
  ~delayed_stores() {
    sim::set_store_delay(0);
    sim::set_schedule("random");
    sim::set_seed(1);
    sim::clear_races();
  }
  delayed_stores(const delayed_stores&) = delete;
  delayed_stores& operator=(const delayed_stores&) = delete;
};

constexpr unsigned seeds = 40;
constexpr std::uint64_t steps = 1024;

using kernel = void (*)(board*);
const std::function<bool(const board&)> found_some = [](const board& b) { return b.found[0] != 0; };

/// In how many of the seeds `wrong` holds.
unsigned outcomes(kernel k, const devcomm::launch_config& config, const std::function<bool(const board&)>& wrong) {
  const delayed_stores delayed(steps);
  unsigned count = 0;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    sim::set_schedule(seed % 2 == 0 ? "random" : "mixed");
    sim::set_seed(seed);
    const device_board b;
    REQUIRE(simulator_test::run(k, config, b.get()) == cudaSuccess);
    if (wrong(b.read())) ++count;
  }
  return count;
}

unsigned stale(kernel k, unsigned grid = 2, unsigned block = 1) {
  return outcomes(k, {.grid = grid, .block = block}, found_some);
}

/// Each thread adds to a word under a lock.
__global__ void count_locked(board* b) {
  for (int i = 0; i < 3; ++i) {
    while (arch::exchange<acquire, scope::system>(b->flag.word, 1u) != 0) {
    }
    b->found[0] = b->found[0] + 1;
    store<release>(b->flag.word, 0u);
  }
}

}  // namespace

TEST_CASE("what is ordered is seen") {
  CHECK(stale(pass_message<access::plain, release, acquire, fences::none>) == 0);
  CHECK(stale(pass_message<access::plain, relaxed, relaxed, fences::both>) == 0);
  CHECK(stale(pass_message<access::plain, release, relaxed, fences::reader>) == 0);
  CHECK(stale(pass_message<access::plain, relaxed, acquire, fences::writer>) == 0);
  CHECK(stale(pass_message<access::strong, release, acquire, fences::none>) == 0);
  CHECK(stale(pass_message<access::volatile_, release, acquire, fences::none>) == 0);
  CHECK(stale(pass_message<access::copied, release, acquire, fences::none>) == 0);
  CHECK(stale(pass_in_block<sync_by::warp>, 1, 32) == 0);
  CHECK(stale(pass_in_block<sync_by::block>, 1, 32) == 0);
  CHECK(outcomes(pass_by_grid, {.grid = 4, .block = 1, .cooperative = true}, found_some) == 0);
  CHECK(stale(pass_through<release, acquire>, 3) == 0);
  CHECK(stale(see_and_pass, 3) == 0);
  CHECK(outcomes(add_under_lock, {.grid = 4, .block = 1}, [](const board& b) { return b.z.word[0] != 20; }) == 0);
}

TEST_CASE("a thread that waits by volatile loads for late additions is not taken for one that waits for ever") {
  CHECK(stale(wait_by_volatile, 4) == 0);
  CHECK(stale(wait_by_volatile, 2) == 0);
}

TEST_CASE("each location is coherent, and an access of up to eight bytes is one") {
  CHECK(stale(count_up, 3, 2) == 0);
  CHECK(stale(count_together, 2, 8) == 0);
  CHECK(stale(write_pairs, 3) == 0);
  CHECK(stale(see_own, 4) == 0);
}

TEST_CASE("of two stores to one word that nothing orders, either may be the last, and of ordered ones the later is") {
  const std::function<bool(const board&)> first_stays = [](const board& b) { return b.x.word[0] == 1; };
  const std::function<bool(const board&)> wrong = [](const board& b) {
    return b.found[0] != 0 || (b.x.word[0] != 1 && b.x.word[0] != 2);
  };
  const devcomm::launch_config four{.grid = 4, .block = 1};
  const unsigned unordered = outcomes(store_after<relaxed, relaxed, false>, four, first_stays);
  const unsigned wide = outcomes(store_after<relaxed, relaxed, true>, four, first_stays);
  INFO("the first stays in " << unordered << " and " << wide << " of " << seeds);
  CHECK(unordered >= 2);
  CHECK(wide >= 2);
  CHECK(outcomes(store_after<release, relaxed, false>, four, first_stays) == 0);  // a load before a store decides on it
  CHECK(outcomes(store_after<release, acquire, false>, four, first_stays) == 0);
  CHECK(outcomes(store_after<release, acquire, true>, four, first_stays) == 0);
  CHECK(outcomes(store_after<relaxed, relaxed, false>, four, wrong) == 0);
  CHECK(outcomes(store_after<relaxed, relaxed, true>, four, wrong) == 0);
}

TEST_CASE("a line that a warp stores by one instruction is seen whole, and one of several stores is not") {
  const auto found_torn = [](kernel k) { return outcomes(k, {.grid = 2, .block = 32}, found_some); };
  CHECK(found_torn(write_lines<tearing::none>) == 0);
  CHECK(found_torn(write_lines<tearing::flag_first>) >= 5);
  CHECK(found_torn(write_lines<tearing::flag_last>) >= 5);
}

TEST_CASE("a missing release or acquire is a wrong answer") {
  const struct {
    const char* name;
    kernel k;
    unsigned grid, block;
  } wrong[] = {
      {"no release", pass_message<access::plain, relaxed, acquire, fences::none>, 2, 1},
      {"no acquire", pass_message<access::plain, release, relaxed, fences::none>, 2, 1},
      {"neither", pass_message<access::plain, relaxed, relaxed, fences::none>, 2, 1},
      {"no fence of the reader", pass_message<access::plain, relaxed, relaxed, fences::writer>, 2, 1},
      {"no fence of the writer", pass_message<access::plain, relaxed, relaxed, fences::reader>, 2, 1},
      {"volatile loads, no acquire", pass_message<access::volatile_, release, relaxed, fences::none>, 2, 1},
      {"a copy, no acquire", pass_message<access::copied, release, relaxed, fences::none>, 2, 1},
      {"a relaxed chain", pass_through<relaxed, relaxed>, 3, 1},
      {"no sync in the block", pass_in_block<sync_by::nothing>, 1, 32},
      {"a vote as a sync", pass_in_block<sync_by::vote>, 1, 32},
  };
  for (const auto& w : wrong) {
    const unsigned count = stale(w.k, w.grid, w.block);
    INFO(w.name << ": " << count << " of " << seeds);
    CHECK(count >= 5);
  }
}

TEST_CASE("strong accesses without order are a wrong answer though they do not race") {
  sim::clear_races();
  const unsigned count = stale(pass_message<access::strong, relaxed, relaxed, fences::none>);
  INFO("all relaxed: " << count << " of " << seeds);
  CHECK(count >= 5);
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("two threads that store and then load may both find old values, unless they fence") {
  const auto both_old = [](const board& b) { return b.found[1] == 0 && b.found[2] == 0; };
  const devcomm::launch_config two{.grid = 2, .block = 1};
  const unsigned plain = outcomes(store_then_load<between::nothing>, two, both_old);
  const unsigned ordered = outcomes(store_then_load<between::release_acquire>, two, both_old);
  INFO("relaxed " << plain << ", release and acquire " << ordered << " of " << seeds);
  CHECK(plain >= 1);
  CHECK(ordered >= 1);
  CHECK(outcomes(store_then_load<between::fence>, two, both_old) == 0);
  // found: whether the other's word was old when it was loaded.
  const auto both_new = [](const board& b) { return b.found[1] == 0 && b.found[2] == 0; };
  CHECK(outcomes(load_then_store, two, both_new) == 0);
}

TEST_CASE("no store comes between the read and the write of a change") {
  // Were the unlocking store to come there, the lock would stay taken.
  CHECK(outcomes(count_locked, {.grid = 4, .block = 1}, [](const board& b) { return b.found[0] != 12; }) == 0);
}

TEST_CASE("delays repeat from the seed, and without them no store is delayed") {
  const delayed_stores delayed(steps);
  const auto found = [](std::uint64_t seed) {
    sim::set_seed(seed);
    const device_board b;
    REQUIRE(simulator_test::run(pass_message<access::strong, relaxed, relaxed, fences::none>, {.grid = 2, .block = 1},
                                b.get()) == cudaSuccess);
    return std::pair(b.read().found[0], sim::get_statistics().trace_hash);
  };
  bool differs = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto first = found(seed);
    CHECK(found(seed) == first);
    differs = differs || first != found(seed + 1);
  }
  CHECK(differs);
  sim::set_store_delay(0);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) CHECK(found(seed).first == 0);
}
