/// Multimem pointers: every form against software, what the simulated switch does, and what it refuses.
#include <devcomm/devcomm.cuh>
#include <devcomm/simulator/simulator.hpp>

#include "memory.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

namespace sim = devcomm::simulator;
using multimem_test::how;
using multimem_test::memory;

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Rank 0 reduces what lies at 0, stores it at 64 and 128, and reduces it into 192 and 256: the first of each by
/// `Mode`, the second in software.
template <class T, class Operator, int Bytes, class Mode>
__global__ void make_all_calls(window place) {
  if (place.lsa_rank != 0) return;
  const multimem::ptr<T, Mode> first(place);
  const multimem::ptr<T, multimem::software> second(place);
  constexpr int step = 64 / static_cast<int>(sizeof(T));
  (first + step).store(first.template load_reduce<Operator, Bytes>());
  const auto again = second.template load_reduce<Operator, Bytes>(memory_order::acquire);
  (second + 2 * step).store(again, memory_order::release);
  if constexpr (sizeof(T) > 1) {
    (first + 3 * step).template reduce<Operator>(again);
    (second + 4 * step).template reduce<Operator>(again, memory_order::release, scope::device);
  }
}

/// Small whole numbers, so that sums have one result in any order.
template <class T>
T input_of(int rank, int element) {
  return static_cast<T>(static_cast<float>((rank * 3 + element * 5) % 7 + 1));
}
template <class T>
T input_of_integers(int rank, int element) {
  return static_cast<T>(0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(rank * 16 + element + 1));
}

template <class T, class Operator, int Bytes, class Mode = multimem::automatic>
void check_form(memory& shared) {
  constexpr int count = Bytes / static_cast<int>(sizeof(T));
  using block_of_bytes = std::array<T, static_cast<std::size_t>(count)>;
  std::array<accumulator_t<T>, static_cast<std::size_t>(count)> total;
  for (int rank = 0; rank < shared.ranks(); ++rank) {
    block_of_bytes mine;
    for (int e = 0; e < count; ++e) {
      T value{};
      if constexpr (std::is_integral_v<T>) {
        value = input_of_integers<T>(rank, e);
      } else {
        value = input_of<T>(rank, e);
      }
      const auto i = static_cast<std::size_t>(e);
      mine[i] = value;
      const auto wide = static_cast<accumulator_t<T>>(value);
      total[i] = rank == 0 ? wide : Operator{}(total[i], wide);
    }
    for (const std::size_t offset : {0u, 64u, 128u, 192u, 256u}) shared.write(rank, offset, mine.data(), sizeof mine);
  }
  block_of_bytes expected;
  for (std::size_t e = 0; e < expected.size(); ++e) expected[e] = static_cast<T>(total[e]);
  INFO("elements of " << sizeof(T) << " bytes, access of " << Bytes);
  REQUIRE(multimem_test::run_all(shared, make_all_calls<T, Operator, Bytes, Mode>, 1) == cudaSuccess);
  for (int rank = 0; rank < shared.ranks(); ++rank) {
    INFO("rank " << rank);
    const auto mine = shared.get<block_of_bytes>(rank, 0);
    for (const std::size_t offset : {64u, 128u}) {
      const auto got = shared.get<block_of_bytes>(rank, offset);
      CHECK(std::memcmp(&got, &expected, sizeof got) == 0);
    }
    if (sizeof(T) == 1) continue;
    for (const std::size_t offset : {192u, 256u}) {
      const auto got = shared.get<block_of_bytes>(rank, offset);
      block_of_bytes both;
      for (std::size_t e = 0; e < both.size(); ++e) {
        both[e] = static_cast<T>(
            Operator{}(static_cast<accumulator_t<T>>(mine[e]), static_cast<accumulator_t<T>>(expected[e])));
      }
      CHECK(std::memcmp(&got, &both, sizeof got) == 0);
    }
  }
}

/// Every operation and width that multimem has of an integer, and of a float of less than 4 bytes.
template <class T>
void check_integer(memory& shared) {
  check_form<T, sum, sizeof(T)>(shared);
  check_form<T, minimum, sizeof(T)>(shared);
  check_form<T, maximum, sizeof(T)>(shared);
  check_form<T, bitwise_and, sizeof(T)>(shared);
  check_form<T, bitwise_or, sizeof(T)>(shared);
  check_form<T, bitwise_xor, sizeof(T)>(shared);
}
template <class T, class Operator>
void check_widths(memory& shared) {
  check_form<T, Operator, 4>(shared);
  check_form<T, Operator, 8>(shared);
  check_form<T, Operator, 16, multimem::hardware>(shared);
}
template <class T>
void check_small_float(memory& shared) {
  check_widths<T, sum>(shared);
  check_widths<T, minimum>(shared);
  check_widths<T, maximum>(shared);
}

/// Each rank has one number; thread 0 of rank 0 adds them.
__global__ void add_all(window place, float* out) {
  if (place.lsa_rank == 0) *out = place.multimem<float>().load_reduce<sum, 4>();
}

/// Every thread of every rank adds to the same word, and to one of the two elements that share another.
__global__ void add_at_once(window place, int times) {
  const multimem::ptr<std::uint32_t, multimem::software> word(place);
  const multimem::ptr<__half, multimem::software> halves(place, 64);
  multimem::value<__half, 4> ones{};
  ones[threadIdx.x % 2] = __float2half(1.0f);
  for (int i = 0; i < times; ++i) {
    word.reduce<sum>(1u);
    halves.template reduce<sum>(ones);
  }
}

/// Rank 0 stores to all; the others look at two members until one has it, and note whether only one has.
__global__ void watch_a_store(window place, unsigned* split) {
  if (place.lsa_rank == 0) {
    place.multimem<unsigned>().store(1u, memory_order::relaxed);
    return;
  }
  const auto seen = [&](int member) {
    return arch::load<memory_order::relaxed, scope::system>(
        reinterpret_cast<const unsigned*>(place.lsa_pointer(member)));
  };
  for (;;) {
    const unsigned first = seen(1);
    const unsigned second = seen(2);
    if (first == 0 && second == 0) continue;
    if (first != second) split[place.lsa_rank] = 1;
    return;
  }
}

/// Rank 0 stores one element of 8 bytes to all; the others look at their own until it is there, and note if it is not
/// there as a whole.
__global__ void watch_an_element(window place, unsigned* torn) {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  if (place.lsa_rank == 0) {
    place.multimem<std::uint64_t>().store(all, memory_order::relaxed);
    return;
  }
  std::uint64_t seen = 0;
  while (seen == 0) {
    seen = arch::load<memory_order::relaxed, scope::system>(reinterpret_cast<const std::uint64_t*>(place.local));
  }
  if (seen != all) torn[place.lsa_rank] = 1;
}

/// Widths that `Operator` has of `T`: bits 0 to 2 for 4, 8 and 16 bytes.
template <class Operator, class T>
constexpr unsigned widths = (detail::has_load_reduce<Operator, T, 4> ? 1u : 0u) |
                            (detail::has_load_reduce<Operator, T, 8> ? 2u : 0u) |
                            (detail::has_load_reduce<Operator, T, 16> ? 4u : 0u);
/// Of the sum, minimum, maximum, the bitwise operators, and one that PTX lacks.
using form_row = std::array<unsigned, 7>;
template <class T>
constexpr form_row forms_of = {widths<sum, T>,         widths<minimum, T>,    widths<maximum, T>,
                               widths<bitwise_and, T>, widths<bitwise_or, T>, widths<bitwise_xor, T>,
                               widths<average, T>};

enum class mistake { none, misaligned, other_memory, past_the_end, no_record, no_address };

template <class Mode>
__global__ void make_mistake(window place, mistake which) {
  if (place.lsa_rank != 0) return;
  window changed = place;
  if (which == mistake::no_record) changed.multicast = nullptr;
  if (which == mistake::other_memory) {
    const detail::multimem_words<16> words{};
    arch::multimem_store<16, true, memory_order::relaxed, scope::system>(place.local, words);
    return;
  }
  const std::uint64_t offset = which == mistake::misaligned ? 8 : which == mistake::past_the_end ? place.bytes : 0;
  multimem::ptr<float, Mode>(changed, offset).store(pack<float>{});
}

__global__ void store_one_float(window place) { multimem::ptr<float>(place).store(1.0f); }
__global__ void store_four_floats(window place) { multimem::ptr<float>(place).store(pack<float>{}); }

template <class Mode = multimem::automatic>
std::string failure_of(mistake which, how kind = how::multicast) {
  memory shared(2, 4096, kind);
  sim::clear_failure();
  const cudaError_t status = multimem_test::run_all(shared, make_mistake<Mode>, 1, which);
  const std::string text = sim::last_failure();
  sim::clear_failure();
  cudaDeviceReset();
  return status == cudaSuccess ? "" : text;
}

}  // namespace

TEST_CASE("multimem reduces and stores every type, operation and width as software does") {
  for (const int ranks : {2, 3, 8}) {
    INFO(ranks << " ranks");
    memory shared(ranks, 4096);
    check_form<float, sum, 4>(shared);
    check_form<float, sum, 8, multimem::hardware>(shared);
    check_form<float, sum, 16>(shared);
    check_form<double, sum, 8>(shared);
    check_integer<std::uint32_t>(shared);
    check_integer<std::int32_t>(shared);
    check_integer<std::uint64_t>(shared);
    check_integer<std::int64_t>(shared);
    check_small_float<__half>(shared);
    check_small_float<__nv_bfloat16>(shared);
    check_small_float<__nv_fp8_e4m3>(shared);
    check_small_float<__nv_fp8_e5m2>(shared);
  }
}

TEST_CASE("multimem has the types, operations and widths of PTX, and no other") {
  constexpr form_row only_sums{7, 0, 0, 0, 0, 0, 0};
  constexpr form_row small_floats{7, 7, 7, 0, 0, 0, 0};
  constexpr form_row one_of_4_bytes{1, 1, 1, 1, 1, 1, 0};
  constexpr form_row one_of_8_bytes{2, 2, 2, 2, 2, 2, 0};
  constexpr form_row nothing{};
  CHECK(forms_of<float> == only_sums);
  CHECK(forms_of<double> == form_row{2, 0, 0, 0, 0, 0, 0});
  CHECK(forms_of<__half> == small_floats);
  CHECK(forms_of<__nv_bfloat16> == small_floats);
  CHECK(forms_of<__nv_fp8_e4m3> == small_floats);
  CHECK(forms_of<__nv_fp8_e5m2> == small_floats);
  CHECK(forms_of<std::uint32_t> == one_of_4_bytes);
  CHECK(forms_of<std::int32_t> == one_of_4_bytes);
  CHECK(forms_of<std::uint64_t> == one_of_8_bytes);
  CHECK(forms_of<std::int64_t> == one_of_8_bytes);
  CHECK(forms_of<std::int8_t> == nothing);
  CHECK(forms_of<std::uint16_t> == nothing);
}

TEST_CASE("a window without a multicast address is reduced in software") {
  memory shared(3, 4096, how::software);
  check_form<float, sum, 16>(shared);
  check_form<__half, sum, 8>(shared);
  check_form<std::int64_t, minimum, 8>(shared);
}

TEST_CASE("reductions of many threads and ranks in software are all counted") {
  constexpr int ranks = 3;
  constexpr unsigned threads = 16;
  constexpr int times = 5;
  memory shared(ranks, 4096, how::software);
  REQUIRE(multimem_test::run_all(shared, add_at_once, threads, times) == cudaSuccess);
  constexpr unsigned all = unsigned{ranks} * threads * unsigned{times};
  for (int rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank);
    CHECK(shared.get<std::uint32_t>(rank, 0) == all);
    for (const __half& count : shared.get<std::array<__half, 2>>(rank, 64))
      CHECK(static_cast<float>(count) == static_cast<float>(all / 2));
  }
}

TEST_CASE("the simulated switch adds in an order of the seed, and in that of the ranks where asked") {
  const float inputs[] = {1e8f, 3, -1e8f, 5, 0.5f};
  memory shared(5, 4096);
  for (int r = 0; r < 5; ++r) shared.write(r, 0, &inputs[r], sizeof inputs[r]);
  const auto sums = [&](sim::multicast order) {
    sim::set_multicast(order);
    std::set<float> found;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      sim::set_seed(seed);
      check_cuda(cudaSetDevice(0), "cudaSetDevice");
      test::device_array<float> out(1);
      REQUIRE(multimem_test::run_all(shared, add_all, 1, out.get()) == cudaSuccess);
      found.insert(out.read()[0]);
    }
    return found;
  };
  CHECK(sums(sim::multicast::in_any_order).size() > 2);
  CHECK(sums(sim::multicast::in_rank_order) == std::set<float>{5.5f});
  sim::set_multicast(sim::multicast::in_any_order);
  sim::set_seed(1);
}

TEST_CASE("a multimem store reaches members one by one, in any order") {
  bool first_alone = false;
  for (std::uint64_t seed = 1; seed <= 40 && !first_alone; ++seed) {
    sim::set_seed(seed);
    memory shared(3, 4096);
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    test::device_array<unsigned> split(3);
    REQUIRE(multimem_test::run_all(shared, watch_a_store, 1, split.get()) == cudaSuccess);
    for (const unsigned seen : split.read()) first_alone = first_alone || seen != 0;
  }
  CHECK(first_alone);
  sim::set_seed(1);
}

TEST_CASE("a multimem store of one element of 8 bytes is whole") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    sim::set_seed(seed);
    memory shared(3, 4096);
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    test::device_array<unsigned> torn(3);
    REQUIRE(multimem_test::run_all(shared, watch_an_element, 1, torn.get()) == cudaSuccess);
    for (const unsigned seen : torn.read()) CHECK(seen == 0);
  }
  sim::set_seed(1);
}

TEST_CASE("a multicast address of another number of ranks is refused") {
  memory shared(2, 4096);
  const multimem::window_record wrong{shared.record(0)->address, 3};
  for (int r = 0; r < 2; ++r)
    devcomm::host::detail::current_backend().copy(r, shared.record(r), &wrong, sizeof wrong, std::chrono::seconds(60));
  sim::clear_failure();
  CHECK(multimem_test::run_all(shared, make_mistake<multimem::automatic>, 1, mistake::none) != cudaSuccess);
  CHECK(contains(sim::last_failure(), "reaches another number of ranks than its LSA team has"));
  sim::clear_failure();
  cudaDeviceReset();
}

TEST_CASE("wrong multimem accesses are named in the caller's terms") {
  CHECK(contains(failure_of(mistake::misaligned), "must be aligned to its size"));
  CHECK(contains(failure_of(mistake::past_the_end), "past the window's end"));
  CHECK(contains(failure_of(mistake::no_record), "multimem was not asked of this window"));
  CHECK(contains(failure_of<multimem::hardware>(mistake::none, how::software), "has no multicast address"));
  CHECK(contains(failure_of(mistake::other_memory), "no multicast address"));
  CHECK(failure_of(mistake::none).empty());
  CHECK(failure_of<multimem::software>(mistake::no_record).empty());
}

TEST_CASE("an access to registered memory that a member has at no multiple of its size is misuse") {
  memory shared(2, 4096, how::software);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  for (const int off : {0, 4}) {  // of member 1
    const test::device_array<char*> table(std::vector<char*>{shared.at(0), shared.at(1) + off});
    const auto failure = [&](auto kernel) {
      sim::clear_failure();
      check_cuda(cudaSetDevice(0), "cudaSetDevice");
      launch(kernel, {.grid = 1, .block = 1, .stream = cudaStreamPerThread},
             window{nullptr, {table.get()}, shared.at(0), 0, 4080, 0, 2, 0, 78, nullptr});
      const std::string text = cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess ? "" : sim::last_failure();
      sim::clear_failure();
      return text;
    };
    CHECK(failure(store_one_float).empty());
    const std::string text = failure(store_four_floats);
    CHECK(contains(text, "register it at a multiple of 16 bytes") == (off != 0));
    CHECK(text.empty() == (off == 0));
    if (off != 0) cudaDeviceReset();
  }
}

TEST_CASE("a member without memory behind a multicast address, or with some that nobody maps, is reported") {
  namespace host = devcomm::host::detail;
  host::backend& devices = host::current_backend();
  for (const bool all_bound : {false, true}) {
    memory shared(2, 4096, how::software);
    const std::size_t granule = devices.multicast_granularity(2, host::handle_kind::none);
    const auto unmapped = devices.create_physical(1, granule, host::handle_kind::none);
    const auto object = devices.create_multicast(2, granule, host::handle_kind::none);
    object->add_device(0);
    object->add_device(1);
    object->bind(0, 0, shared.physical(0), granule);
    if (all_bound) object->bind(1, 0, *unmapped, granule);
    const auto range = devices.reserve(granule);
    const int all[] = {0, 1};
    range->map(0, *object, granule, all);
    const multimem::window_record record{range->base(), 2};
    for (int r = 0; r < 2; ++r) {
      devices.copy(r, shared.record(r), &record, sizeof record, std::chrono::seconds(60));
    }
    sim::clear_failure();
    CHECK(multimem_test::run_all(shared, make_mistake<multimem::hardware>, 1, mistake::none) != cudaSuccess);
    CHECK(contains(sim::last_failure(), all_bound ? "can reach the memory of 1 of the 2 members"
                                                  : "where 1 of the 2 members have bound memory"));
    sim::clear_failure();
    cudaDeviceReset();
  }
}

TEST_CASE("the simulated driver refuses what CUDA's does") {
  namespace host = devcomm::host::detail;
  host::backend& devices = host::current_backend();
  const auto granule = devices.multicast_granularity(2, host::handle_kind::none);
  const auto refusal = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const devcomm::host::error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(contains(refusal([&] { static_cast<void>(devices.create_multicast(2, granule + 1, host::handle_kind::none)); }),
                 "no multiple of the granularity"));
  const auto object = devices.create_multicast(2, 2 * granule, host::handle_kind::none);
  const auto part = devices.create_physical(0, granule, host::handle_kind::none);
  const auto other = devices.create_physical(1, granule, host::handle_kind::none);
  const auto range = devices.reserve(2 * granule);
  const int all[] = {0, 1};
  object->add_device(0);
  CHECK(contains(refusal([&] { object->add_device(0); }), "was added to the multicast object before"));
  CHECK(contains(refusal([&] { object->bind(0, 0, *part, granule); }), "1 of the 2 devices"));
  CHECK(contains(refusal([&] { range->map(0, *object, granule, all); }), "1 of the 2 devices"));
  object->add_device(1);
  CHECK(contains(refusal([&] { object->add_device(2); }), "all 2 of the 2 devices"));
  CHECK(contains(refusal([&] { object->bind(2, 0, *part, granule); }), "is none of the multicast object's"));
  CHECK(contains(refusal([&] { object->bind(0, 4096, *part, granule); }), "no multiples of the granularity"));
  CHECK(contains(refusal([&] { object->bind(0, 2 * granule, *part, granule); }), "are more than"));
  object->bind(0, 0, *part, granule);
  CHECK(contains(refusal([&] { object->bind(0, 0, *part, granule); }), "is bound there already"));
  object->bind(1, 0, *other, granule);

  sim::set_multicast(sim::multicast::none);
  CHECK_FALSE(devices.facts(0).multicast.available);
  CHECK(contains(refusal([&] { static_cast<void>(devices.create_multicast(2, granule, host::handle_kind::none)); }),
                 "no NVLink switch"));
  sim::set_multicast(sim::multicast::in_any_order);
  CHECK(devices.facts(0).multicast.available);
}

namespace {

enum class between { nothing, fence, sync };

__global__ void read_by_both(window place, between what, unsigned* out) {
  if (place.lsa_rank != 0) return;
  auto* const own = reinterpret_cast<unsigned*>(place.local);
  *own = 7;
  if (what == between::fence) multimem::fence_alias();
  if (what == between::sync) __syncthreads();
  *out = multimem::ptr<unsigned>(place).load_reduce<sum>();
}

enum class first_access { write, store_to_all, read };
enum class fence_by { nobody, first, second, other, other_between_two_barriers };

/// Thread 0 of rank 0 accesses a word by one address, and thread 1, after a barrier of the block, by the other.
__global__ void share_by_both(window place, first_access how, fence_by fence, unsigned* out) {
  if (place.lsa_rank != 0) return;
  auto* const own = reinterpret_cast<unsigned*>(place.local);
  const multimem::ptr<unsigned> all(place);
  if (threadIdx.x == 0) {
    if (how == first_access::write) *own = 7;
    if (how == first_access::store_to_all) all.store(7u);
    if (how == first_access::read) *out = *own;
    if (fence == fence_by::first) multimem::fence_alias();
  }
  if (threadIdx.x == 2 && fence == fence_by::other) multimem::fence_alias();
  __syncthreads();
  if (fence == fence_by::other_between_two_barriers) {
    if (threadIdx.x == 2) multimem::fence_alias();
    __syncthreads();
  }
  if (threadIdx.x == 1) {
    if (fence == fence_by::second) multimem::fence_alias();
    if (how == first_access::write) *out = all.load_reduce<sum>();
    if (how == first_access::store_to_all) *out = *own;
    if (how == first_access::read) all.store(8u);
  }
}

__global__ void add_and_overwrite(window place, unsigned* out) {
  out[place.lsa_rank] = multimem::ptr<unsigned>(place).load_reduce<sum>();
  *reinterpret_cast<unsigned*>(place.local) = 7;
}

__global__ void store_to_all(window place) {
  if (place.lsa_rank == 0) multimem::ptr<unsigned>(place).store(5u);
}
__global__ void read_own(window place, unsigned* out) {
  if (place.lsa_rank == 0) *out = *reinterpret_cast<const unsigned*>(place.local);
}

__global__ void meet_by_flag(window place, bool ordered, fence_by fence, unsigned* out) {
  auto* const flag = reinterpret_cast<unsigned*>(place.lsa_pointer(1, 128));
  if (place.lsa_rank == 0) {
    multimem::ptr<unsigned>(place).store(5u);
    if (fence == fence_by::first) multimem::fence_alias();
    if (ordered) {
      arch::store<memory_order::release, scope::system>(flag, 1u);
    } else {
      arch::store<memory_order::relaxed, scope::system>(flag, 1u);
    }
    return;
  }
  while (arch::load<memory_order::acquire, scope::system>(flag) == 0) {
  }
  if (fence == fence_by::second) multimem::fence_alias();
  *out = *reinterpret_cast<const unsigned*>(place.local);
}

std::string report_of_races(cudaError_t ended) {
  REQUIRE(ended == cudaSuccess);
  const std::string text = sim::race_reports() == 0 ? "" : sim::last_race();
  sim::clear_races();
  return text;
}

}  // namespace

TEST_CASE("the race detector sees each member's access, and aliases without a fence") {
  if (!sim::detects_races()) return;
  memory shared(2, 4096);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  test::device_array<unsigned> out(1);
  const auto alias = [&](between what) {
    return report_of_races(multimem_test::run_all(shared, read_by_both, 1, what, out.get()));
  };
  const std::string text = alias(between::nothing);
  CHECK(contains(text, "missing fence between two addresses of one memory"));
  CHECK(contains(text, "by a multicast address"));
  CHECK(contains(text, "window 'tensor' of rank 0"));
  CHECK(contains(text, "call multimem::fence_alias() between the two"));
  CHECK(alias(between::fence).empty());
  CHECK(contains(alias(between::sync), "missing fence between two addresses of one memory"));
  const auto flag = [&](bool ordered, fence_by fence) {
    const unsigned zero[64] = {};
    for (int r = 0; r < 2; ++r) shared.write(r, 0, zero, sizeof zero);
    return report_of_races(multimem_test::run_all(shared, meet_by_flag, 1, ordered, fence, out.get()));
  };
  CHECK(flag(true, fence_by::first).empty());
  CHECK(flag(true, fence_by::second).empty());
  CHECK(contains(flag(true, fence_by::nobody), "missing fence between two addresses of one memory"));
  const std::string race = flag(false, fence_by::first);
  CHECK(contains(race, "write of 4 bytes by a multicast address by device 0"));
  CHECK(contains(race, "call multimem::fence_alias() in one of the threads"));
}

TEST_CASE("two threads that use two addresses of one memory, with a barrier but no fence between them, are reported") {
  if (!sim::detects_races()) return;
  memory shared(2, 4096);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  test::device_array<unsigned> out(1);
  for (const first_access how : {first_access::write, first_access::store_to_all, first_access::read}) {
    const auto shared_by = [&](fence_by fence) {
      return report_of_races(multimem_test::run_all(shared, share_by_both, 3, how, fence, out.get()));
    };
    INFO("first access " << static_cast<int>(how));
    const std::string text = shared_by(fence_by::nobody);
    CHECK(contains(text, "missing fence between two addresses of one memory"));
    CHECK(contains(text, "by a multicast address"));
    CHECK(contains(text, "thread 1, kernel"));
    CHECK(contains(text, "thread 0, kernel"));
    CHECK(shared_by(fence_by::first).empty());
    CHECK(shared_by(fence_by::second).empty());
    CHECK(contains(shared_by(fence_by::other), "missing fence between two addresses of one memory"));
    CHECK(shared_by(fence_by::other_between_two_barriers).empty());
  }
}

TEST_CASE("a missing alias fence hides no data race at the same places") {
  if (!sim::detects_races()) return;
  memory shared(2, 4096);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  test::device_array<unsigned> out(2);
  REQUIRE(multimem_test::run_all(shared, add_and_overwrite, 1, out.get()) == cudaSuccess);
  CHECK(sim::race_reports() == 2);
  sim::clear_races();
}

TEST_CASE("the end of a launch stands for a fence between two addresses of one memory") {
  if (!sim::detects_races()) return;
  memory shared(2, 4096);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  test::device_array<unsigned> out(1);
  CHECK(report_of_races(multimem_test::run_all(shared, store_to_all, 1)).empty());
  CHECK(report_of_races(multimem_test::run_all(shared, read_own, 1, out.get())).empty());
  CHECK(report_of_races(multimem_test::run_all(shared, store_to_all, 1)).empty());
}
