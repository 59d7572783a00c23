#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace devcomm;

namespace {

constexpr unsigned threads = 128;

/// What one thread sees of its group: rank, size, the sum of all ranks through memory ordered by
/// `sync`, `any` for one and for no member, and a broadcast of a 24-byte value from the last member.
struct view {
  std::uint32_t rank;
  std::uint32_t size;
  std::uint32_t sum;
  std::uint32_t any_of_last;
  std::uint32_t any_of_none;
  std::uint32_t broadcasts;
  std::uint32_t broadcast;
};

struct large {
  std::uint32_t words[6];
};

/// `board`: one word for each member, shared by the group.
template <class Group>
__device__ view view_of(const Group& group, std::uint32_t* board) {
  view seen{};
  seen.rank = group.thread_rank();
  seen.size = group.size();
  for (int round = 0; round < 3; ++round) {
    board[seen.rank] = seen.rank + 1;
    group.sync();
    seen.sum = 0;
    for (std::uint32_t i = 0; i < seen.size; ++i) seen.sum += board[i];
    group.sync();
    board[seen.rank] = 0;
    group.sync();
  }
  seen.any_of_last = group.any(seen.rank == seen.size - 1) ? 1 : 0;
  seen.any_of_none = group.any(false) ? 1 : 0;
  large mine{};
  for (int i = 0; i < 6; ++i) mine.words[i] = seen.rank * 10 + static_cast<std::uint32_t>(i);
  // One after another, from different members: each is read before the next.
  for (std::uint32_t root = 0; root < seen.size; ++root)
    seen.broadcasts += broadcast(group, seen.rank * 10 + root, root) == root * 11 ? 1u : 0u;
  seen.broadcast = broadcast(group, mine, seen.size - 1).words[5];
  return seen;
}

struct of_thread {
  static __host__ __device__ constexpr unsigned size(unsigned) { return 1; }
  static __host__ __device__ constexpr unsigned first(unsigned thread) { return thread; }
  static __device__ auto make() { return thread{}; }
};

template <int Size>
struct of_tile {
  static __host__ __device__ constexpr unsigned size(unsigned) { return Size; }
  static __host__ __device__ constexpr unsigned first(unsigned thread) { return thread / Size * Size; }
  static __device__ auto make() { return tile<Size>{}; }
};

struct of_block {
  static __host__ __device__ constexpr unsigned size(unsigned) { return threads; }
  static __host__ __device__ constexpr unsigned first(unsigned) { return 0; }
  static __device__ auto make() { return block{}; }
};

/// Warp 0 alone, and warps 1 to 3 together.
struct of_warp_span {
  static __host__ __device__ constexpr unsigned size(unsigned thread) { return thread < 32 ? 32 : 96; }
  static __host__ __device__ constexpr unsigned first(unsigned thread) { return thread < 32 ? 0 : 32; }
  static __device__ auto make() { return threadIdx.x < 32 ? warp_span(0, 1, 3) : warp_span(1, 3, 4); }
};

template <class Inner>
struct of_any {
  static __host__ __device__ constexpr unsigned size(unsigned thread) { return Inner::size(thread); }
  static __host__ __device__ constexpr unsigned first(unsigned thread) { return Inner::first(thread); }
  static __device__ auto make() { return any_group(Inner::make()); }
};

template <class Case>
__global__ void look_at_groups(std::uint32_t* boards, view* out) {
  out[threadIdx.x] = view_of(Case::make(), boards + Case::first(threadIdx.x));
}

template <class Case>
void check_groups() {
  test::device_array<std::uint32_t> boards(threads);
  test::device_array<view> out(threads, 0xff);
  launch(look_at_groups<Case>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, boards.get(), out.get());
  test::finish("look_at_groups");
  const auto seen = out.read();
  for (unsigned t = 0; t < threads; ++t) {
    INFO("thread " << t << " in a group of " << Case::size(t));
    const unsigned size = Case::size(t);
    const unsigned rank = t - Case::first(t);
    REQUIRE(seen[t].rank == rank);
    REQUIRE(seen[t].size == size);
    REQUIRE(seen[t].sum == size * (size + 1) / 2);
    REQUIRE(seen[t].any_of_last == 1);
    REQUIRE(seen[t].any_of_none == 0);
    REQUIRE(seen[t].broadcasts == size);
    REQUIRE(seen[t].broadcast == (size - 1) * 10 + 5);
  }
}

/// Odd lanes and even lanes of each warp as two groups.
__global__ void look_at_lanes(std::uint32_t* boards, view* out) {
  const bool odd = threadIdx.x % 2 == 1;
  const std::uint32_t first = threadIdx.x / 32 * 32 + (odd ? 16 : 0);
  out[threadIdx.x] = view_of(lanes(odd ? 0xaaaaaaaau : 0x55555555u), boards + first);
}

/// A group of the caller's own, with the three members that every group has.
struct foreign_block {
  __device__ std::uint32_t thread_rank() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

struct without_sync {
  static constexpr std::uint32_t thread_rank() { return 0; }
  static constexpr std::uint32_t size() { return 1; }
};

static_assert(is_group<thread> && is_group<warp> && is_group<lanes> && is_group<warp_span> && is_group<block> &&
              is_group<any_group> && is_group<foreign_block>);
static_assert(without_sync::size() > without_sync::thread_rank());
static_assert(!is_group<without_sync> && !is_group<int>);

__global__ void copy_by_foreign_group(float* to, const float* from, std::uint64_t count) {
  copy(foreign_block{}, to, from, count);
}

__global__ void count_coalesced(std::uint32_t* sizes) {
  const lanes group = coalesced();
  sizes[threadIdx.x] = group.size() * 100 + group.thread_rank();
}

}  // namespace

TEST_CASE("groups rank, synchronize, vote and broadcast") {
  check_groups<of_thread>();
  check_groups<of_tile<1>>();
  check_groups<of_tile<4>>();
  check_groups<of_tile<16>>();
  check_groups<of_tile<32>>();
  check_groups<of_warp_span>();
  check_groups<of_block>();
}

TEST_CASE("a type-erased group acts as the group it holds") {
  check_groups<of_any<of_thread>>();
  check_groups<of_any<of_tile<8>>>();
  check_groups<of_any<of_tile<32>>>();
  check_groups<of_any<of_warp_span>>();
  check_groups<of_any<of_block>>();
}

TEST_CASE("lanes of a mask are ranked from the lowest") {
  test::device_array<std::uint32_t> boards(threads);
  test::device_array<view> out(threads, 0xff);
  launch(look_at_lanes, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, boards.get(), out.get());
  test::finish("look_at_lanes");
  const auto seen = out.read();
  for (unsigned t = 0; t < threads; ++t) {
    INFO("thread " << t);
    REQUIRE(seen[t].rank == t % 32 / 2);
    REQUIRE(seen[t].size == 16);
    REQUIRE(seen[t].sum == 136);
    REQUIRE(seen[t].any_of_last == 1);
    REQUIRE(seen[t].any_of_none == 0);
    REQUIRE(seen[t].broadcast == 155);
  }
}

TEST_CASE("a group of the caller's own copies") {
  std::vector<float> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const test::device_array<float> from(values);
  const test::device_array<float> to(values.size(), 0xff);
  launch(copy_by_foreign_group, {.grid = 1, .block = 96, .stream = cudaStreamPerThread}, to.get(), from.get(),
         values.size());
  test::finish("copy_by_foreign_group");
  CHECK(to.read() == values);
}

TEST_CASE("coalesced names lanes that are there") {
  const test::device_array<std::uint32_t> sizes(32);
  launch(count_coalesced, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, sizes.get());
  test::finish("count_coalesced");
  // How many lanes arrive together is the hardware's choice; each must fit in the group it names.
  for (const std::uint32_t value : sizes.read()) {
    CHECK(value / 100 >= 1);
    CHECK(value / 100 <= 32);
    CHECK(value % 100 < value / 100);
  }
}
