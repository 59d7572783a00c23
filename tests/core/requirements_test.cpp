#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/collective/all_reduce/rail_rings.hpp>
#include <devcomm/collective/network_slots.hpp>
#include <devcomm/gin/contexts.hpp>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/signals.hpp>
#include <devcomm/lsa/whole_world.hpp>
#include <devcomm/multimem/resources.hpp>
#include <devcomm/requirements.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

using namespace devcomm;

static_assert(std::is_trivially_copyable_v<resource_handle> && std::is_trivially_copyable_v<buffer_handle<int>>);

TEST_CASE("requirements never overlap and are aligned") {
  requirements needs(world_team(0, 7));
  needs.lsa_barriers(3);
  const auto small = needs.add_buffer<char>(5);
  const auto barriers = needs.add(lsa::barriers{team{0, 2, 0, 3}, 9});
  const auto large = needs.add_buffer<double>(1000);

  std::uint64_t end = resource_header_bytes;
  const auto take = [&](std::uint64_t offset, std::uint64_t bytes) {
    CHECK(offset >= end);
    CHECK(offset % 128 == 0);
    end = offset + bytes;
  };
  const implicit_handle own = needs.implicit(implicit_resource::lsa_barriers);
  take(own.offset, lsa::barrier_layout{3, 7}.bytes());
  take(small.offset, 5);
  take(barriers.offset, lsa::barrier_layout{9, 2}.bytes());
  take(large.offset, 8000);
  CHECK(needs.bytes() == end);
  CHECK(own.count == 3);
  CHECK(own.members == 7);
}

TEST_CASE("requirements that differ in any number have different fingerprints") {
  const auto fingerprint_of = [](auto&& ask) {
    requirements needs(world_team(0, 4));
    ask(needs);
    return needs.fingerprint();
  };
  const std::set<std::uint64_t> all = {
      fingerprint_of([](requirements&) {}),
      fingerprint_of([](requirements& needs) { needs.lsa_barriers(1); }),
      fingerprint_of([](requirements& needs) { needs.lsa_barriers(2); }),
      fingerprint_of([](requirements& needs) {
        static_cast<void>(needs.add(lsa::barriers{team{0, 2, 0, 1}, 2}));
      }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_buffer<float>(2)); }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_buffer<double>(1)); }),
      fingerprint_of([](requirements& needs) {
        static_cast<void>(needs.add(lsa::ll_mailboxes{needs.lsa(), 1, 64}));
      }),
      fingerprint_of([](requirements& needs) {
        static_cast<void>(needs.add(lsa::ll_mailboxes{needs.lsa(), 2, 32}));
      }),
      fingerprint_of([](requirements& needs) {
        static_cast<void>(needs.add(lsa::signals{needs.lsa(), 1}));
      }),
      fingerprint_of([](requirements& needs) {
        static_cast<void>(needs.add(lsa::signals{needs.lsa(), 2}));
      }),
      fingerprint_of([](requirements& needs) { needs.with(lsa::whole_world{}); }),
      fingerprint_of([](requirements& needs) { needs.with(multimem::resources{multimem::policy::required}); }),
      fingerprint_of([](requirements& needs) { needs.with(multimem::resources{multimem::policy::or_software}); }),
  };
  CHECK(all.size() == 13);
}

TEST_CASE("the strictest request for multimem wins") {
  using multimem::policy;
  const auto asked = [](policy first, policy second) {
    requirements needs(world_team(0, 4));
    needs.with(multimem::resources{first}).with(multimem::resources{second});
    return multimem::policy_of(needs);
  };
  CHECK(multimem::policy_of(requirements(world_team(0, 4))) == policy::none);
  CHECK(asked(policy::none, policy::or_software) == policy::or_software);
  CHECK(asked(policy::or_software, policy::none) == policy::or_software);
  CHECK(asked(policy::or_software, policy::required) == policy::required);
  CHECK(asked(policy::required, policy::or_software) == policy::required);
}

TEST_CASE("requirements past any memory stay past it") {
  requirements needs(world_team(0, 4));
  static_cast<void>(needs.add_buffer<double>((std::uint64_t{1} << 61) + 1));
  const std::uint64_t huge = std::uint64_t{1} << 60;
  CHECK(needs.bytes() == huge);
  static_cast<void>(needs.add_buffer<char>(100));
  CHECK(needs.bytes() == huge);
}

TEST_CASE("the fingerprint tells any two sets of requirements apart") {
  const auto of = [](auto ask) {
    requirements needs(world_team(0, 4));
    ask(needs);
    return needs.fingerprint();
  };
  const auto nothing = of([](requirements&) {});
  const auto barriers = of([](requirements& needs) { needs.lsa_barriers(4); });
  const auto more = of([](requirements& needs) { needs.lsa_barriers(5); });
  const auto buffer = of([](requirements& needs) { needs.add_buffer<float>(64); });
  const auto doubles = of([](requirements& needs) { needs.add_buffer<double>(32); });
  CHECK(nothing != barriers);
  CHECK(barriers != more);
  CHECK(buffer != doubles);
  CHECK(buffer == of([](requirements& needs) { needs.add_buffer<float>(64); }));
}

namespace {

/// A feature of a user's own: a counter for each of `count` things, 64 bytes apart.
struct counters {
  std::uint32_t count;

  constexpr resource_handle add_to(requirements& needs) const {
    return needs.add_items(std::uint64_t{64} * count, 64, {count}, count, static_cast<std::uint32_t>(needs.lsa().size));
  }
};

}  // namespace

TEST_CASE("handles name the requirements that made them") {
  requirements needs(world_team(0, 4), 7);
  CHECK(needs.add(counters{3}).owner == 7);
  CHECK(needs.add_buffer<int>(3).owner == 7);
  requirements copy = needs;
  CHECK(copy.add(counters{3}).owner == 7);
  CHECK(requirements(world_team(0, 4)).add(counters{3}).owner == 0);
}

TEST_CASE("a team of more members than a handle can hold makes requirements that no memory meets") {
  requirements needs(world_team(0, 1 << 17));
  static_cast<void>(needs.add(counters{1}));
  CHECK(needs.bytes() >= std::uint64_t{1} << 60);
}

TEST_CASE("users add features of their own, with a handle or without") {
  requirements needs(world_team(0, 4));
  const std::uint64_t before = needs.add_buffer<char>(1).offset;
  const resource_handle own = needs.add(counters{3});
  CHECK(own.offset == before + 64);
  CHECK(own.members == 4);
  const std::uint64_t one = needs.fingerprint();
  CHECK(needs.with(counters{5}).bytes() == own.offset + 8 * 64);
  CHECK(needs.fingerprint() != one);
  CHECK(needs.implicit(implicit_resource::lsa_barriers).count == 0);
}

namespace {

/// A feature of a user's own, with signals.
struct bells {
  std::uint32_t count;

  constexpr signal_range add_to(requirements& needs) const { return needs.add_signals(count); }
};

/// Requires that features' signals, the kernel's own and those of barriers are all that there are, and do not overlap.
void check_parts(const requirements& needs, const gin::context_handle& contexts, std::uint32_t own,
                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& parts) {
  std::set<std::uint32_t> taken;
  for (std::uint32_t signal = 0; signal < own; ++signal) taken.insert(signal);
  std::size_t all = own;
  for (const auto& [first, count] : parts) {
    all += count;
    for (std::uint32_t signal = first; signal < first + count; ++signal) taken.insert(signal);
  }
  CHECK(taken.size() == all);
  CHECK(*taken.rbegin() == all - 1);
  CHECK(contexts.signals == all);
  CHECK(contexts.arrivals(0, false, 0) == all);
  CHECK(needs.network().signals == contexts.all_signals());
  CHECK(needs.network().asked == 1);
}

}  // namespace

TEST_CASE("each feature has signals of its own, behind those of the kernel and before those of barriers") {
  constexpr team world = world_team(0, 5);
  for (const std::uint32_t own : {0u, 3u}) {
    requirements needs(world);
    const auto rings = needs.add(collective::rail_rings{.groups = 3, .slots = 4});
    const auto more = needs.add(collective::rail_rings{.groups = 1, .slots = 1});  // taken as 2
    const auto slots = needs.add(collective::network_slots{.members = world, .groups = 2});
    const signal_range mine = needs.add(bells{7});
    const auto contexts = needs.add(gin::contexts{.world = world, .count = 2, .signals = own, .barriers = 2});
    for (const signal_range each : {rings.signals, more.signals, slots.signals, mine}) CHECK(contexts.has(each));
    check_parts(needs, contexts, own,
                {{contexts.first_signal(rings.signals), 15},
                 {contexts.first_signal(more.signals), 3},
                 {contexts.first_signal(slots.signals), 20},
                 {contexts.first_signal(mine), 7}});
    CHECK(needs.network().signals == own + 45 + 2 * 2 * 5);

    requirements with_fifos(world);
    const auto of_fifos = with_fifos.add(collective::rail_rings{.groups = 2, .slots = 2});
    const auto fifos = with_fifos.add(
        channel::network_fifos{.contexts = {.world = world, .count = 3, .signals = own, .barriers = 1}, .count = 7});
    check_parts(with_fifos, fifos.contexts, own,
                {{fifos.first_signal, 6}, {fifos.contexts.first_signal(of_fifos.signals), 6}});
  }
  requirements alone(world);
  const auto without = alone.add(gin::contexts{.world = world, .signals = 4});
  CHECK_FALSE(without.has(signal_range{5}));
  CHECK(without.has(signal_range{4}));
}

TEST_CASE("signals that no number holds are too many, not too few") {
  constexpr team world = world_team(0, 4);
  const auto asked = [&](auto ask) {
    requirements needs(world);
    ask(needs);
    static_cast<void>(needs.add(gin::contexts{.world = world, .signals = 5}));
    return needs.network().signals;
  };
  CHECK(asked([](requirements& needs) { needs.add_signals(~std::uint64_t{0}); }) == ~0u);
  CHECK(asked([](requirements& needs) { needs.add_signals(std::uint64_t{1} << 32); }) == ~0u);
  CHECK(asked([](requirements& needs) { needs.add_signals(~0u - 4); }) == ~0u);
  CHECK(asked([](requirements& needs) { needs.add_signals(~0u - 6); }) == ~0u - 1);
  CHECK(asked([](requirements& needs) {
          needs.add_signals(~0u - 1);
          needs.add_signals(7);
        }) == ~0u);
  CHECK(asked([](requirements& needs) { needs.add(collective::rail_rings{.groups = 2, .slots = ~0u}); }) == ~0u);
  CHECK(asked([](requirements& needs) {
          needs.add(collective::network_slots{.members = {0, 1 << 30, 0, 1}, .groups = 1u << 31});
        }) == ~0u);
}

TEST_CASE("signals are in the fingerprint, and those that are asked for after contexts are marked") {
  constexpr team world = world_team(0, 4);
  requirements one(world);
  requirements two(world);
  static_cast<void>(one.add(bells{1}));
  static_cast<void>(two.add(bells{2}));
  CHECK(one.fingerprint() != two.fingerprint());
  CHECK(one.network().asked == 0);
  const auto contexts = one.add(gin::contexts{.world = world, .signals = 5});
  CHECK(contexts.signals == 6);
  static_cast<void>(one.add(collective::rail_rings{.groups = 1}));
  CHECK(one.network().asked == 3);
  CHECK(one.network().signals == 6);
}
