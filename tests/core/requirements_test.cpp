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
    return needs.multimem();
  };
  CHECK(requirements(world_team(0, 4)).multimem() == policy::none);
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
    return {needs.add(std::uint64_t{64} * count, 64, {count}), count, static_cast<std::uint32_t>(needs.lsa().size)};
  }
};

}  // namespace

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
