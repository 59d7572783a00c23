#include <devcomm/device_comm.hpp>
#include <devcomm/failure.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/status.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/window.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

static_assert(std::is_trivially_copyable_v<window> && std::is_standard_layout_v<window>);
static_assert(std::is_trivially_copyable_v<sym_ptr<float>> && std::is_standard_layout_v<sym_ptr<float>>);
static_assert(std::is_trivially_copyable_v<device_comm> && std::is_standard_layout_v<device_comm>);
static_assert(std::is_trivially_copyable_v<failure_record> && std::is_standard_layout_v<failure_record>);
static_assert(std::is_trivially_copyable_v<barrier_handle> && std::is_trivially_copyable_v<buffer_handle<int>>);

/// LSA ranks 4 to 7 of a larger world, seen by rank 5; 64 bytes on each.
struct four_slots {
  std::array<char, 4 * 128> memory{};
  std::array<char*, 4> table{memory.data() + 300, memory.data() + 200, memory.data(), memory.data() + 100};

  window strided() { return {memory.data(), nullptr, memory.data() + 128, 128, 64, 4, 4, 1, 7}; }
  window tabled() { return {nullptr, table.data(), table[1], 0, 64, 4, 4, 1, 8}; }
};

}  // namespace

TEST_CASE("a strided window finds peers by arithmetic") {
  four_slots slots;
  const window w = slots.strided();
  CHECK(w.lsa_pointer(0) == slots.memory.data());
  CHECK(w.lsa_pointer(3, 60) == slots.memory.data() + 3 * 128 + 60);
  CHECK(w.local_pointer(8) == w.lsa_pointer(w.lsa_rank, 8));
}

TEST_CASE("a registered window finds peers in its table") {
  four_slots slots;
  const window w = slots.tabled();
  for (int member = 0; member < 4; ++member) {
    CHECK(w.lsa_pointer(member, 5) == slots.table[static_cast<std::size_t>(member)] + 5);
  }
  CHECK(w.local_pointer(3) == w.lsa_pointer(1, 3));
}

TEST_CASE("a peer outside the LSA team has no address") {
  four_slots slots;
  for (const window w : {slots.strided(), slots.tabled()}) {
    CHECK(w.peer_pointer(3) == nullptr);
    CHECK(w.peer_pointer(8) == nullptr);
    CHECK(w.peer_pointer(4, 16) == w.lsa_pointer(0, 16));
    CHECK(w.peer_pointer(7) == w.lsa_pointer(3));
    const sym_ptr<int> p{w, 0};
    CHECK(p.peer(0) == nullptr);
    CHECK(p.peer(5) == p.local());
  }
}

TEST_CASE("sym_ptr arithmetic is that of pointers") {
  four_slots slots;
  const sym_ptr<double> p{slots.strided(), 8};
  CHECK((p + 3).local() == p.local() + 3);
  CHECK((p + 3 - 2).lsa(2) == p.lsa(2) + 1);
  CHECK((p + 5) - p == 5);
  CHECK(p - (p + 5) == -5);
  sym_ptr<double> q = p;
  ++q;
  q += 2;
  --q;
  CHECK(q == p + 2);
  CHECK(q != p);
  CHECK(q.as<char>() - p.as<char>() == 16);
}

TEST_CASE("requirements never overlap and are aligned") {
  requirements needs(world_team(0, 7));
  needs.lsa_barriers(3);
  const auto small = needs.add_buffer<char>(5);
  const auto barriers = needs.add_barriers(team{0, 2, 0, 3}, 9);
  const auto large = needs.add_buffer<double>(1000);

  std::uint64_t end = resource_header_bytes;
  const auto take = [&](std::uint64_t offset, std::uint64_t bytes) {
    CHECK(offset >= end);
    CHECK(offset % 128 == 0);
    end = offset + bytes;
  };
  take(needs.lsa_barriers().offset, barrier_layout{3, 7}.bytes());
  take(small.offset, 5);
  take(barriers.offset, barrier_layout{9, 2}.bytes());
  take(large.offset, 8000);
  CHECK(needs.bytes() == end);
  CHECK(needs.lsa_barriers().members == 7);
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
        static_cast<void>(needs.add_barriers(team{0, 2, 0, 1}, 2));
      }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_buffer<float>(2)); }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_buffer<double>(1)); }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_ll_channels(needs.lsa(), 1, 64)); }),
      fingerprint_of([](requirements& needs) { static_cast<void>(needs.add_ll_channels(needs.lsa(), 2, 32)); }),
  };
  CHECK(all.size() == 8);
}

namespace {

/// What `add_channels` takes of a session.
template <packet_protocol Protocol>
struct session_of_pairs {
  using handle = packet_handle<Protocol>;
  static constexpr std::uint32_t packets_for(std::uint32_t packs) { return 2 * packs; }
};

}  // namespace

TEST_CASE("a session's channels are those of its protocol") {
  const team members{1, 3, 1, 1};
  requirements by_name(world_team(0, 4));
  requirements by_session(world_team(0, 4));
  const auto same = [](const auto& a, const auto& b) {
    return a.offset == b.offset && a.count == b.count && a.members == b.members && a.packets == b.packets;
  };
  CHECK(same(by_name.add_ll_channels(members, 2, 10),
             by_session.add_channels<session_of_pairs<packet_protocol::ll>>(members, 2, 5)));
  CHECK(same(by_name.add_lamport_channels(members, 2, 10),
             by_session.add_channels<session_of_pairs<packet_protocol::lamport>>(members, 2, 5)));
  CHECK_FALSE(by_session.whole_lines());
  CHECK(same(by_name.add_ll128_channels(members, 2, 34),
             by_session.add_channels<session_of_pairs<packet_protocol::ll128>>(members, 2, 17)));
  CHECK(by_session.whole_lines());
  CHECK(by_name.fingerprint() == by_session.fingerprint());
}

TEST_CASE("requirements past any memory stay past it") {
  requirements needs(world_team(0, 4));
  static_cast<void>(needs.add_buffer<double>((std::uint64_t{1} << 61) + 1));
  const std::uint64_t huge = std::uint64_t{1} << 60;
  CHECK(needs.bytes() == huge);
  static_cast<void>(needs.add_buffer<char>(100));
  CHECK(needs.bytes() == huge);
}

TEST_CASE("the words of a set of barriers are apart and within its bytes") {
  for (std::uint32_t members = 1; members <= 72; members += 7) {
    for (std::uint32_t count = 1; count <= 33; count += 8) {
      const barrier_layout layout{count, members};
      std::map<std::uint64_t, std::uint64_t> taken;  // offset to end
      const auto take = [&](std::uint64_t offset, std::uint64_t bytes, std::uint64_t alignment) {
        const auto next = taken.lower_bound(offset);
        bool free = next == taken.end() || offset + bytes <= next->first;
        free = free && (next == taken.begin() || std::prev(next)->second <= offset);
        if (!free || offset % alignment != 0 || offset + bytes > layout.bytes()) {
          FAIL(members << " members, " << count << " barriers: " << bytes << " bytes at " << offset);
        }
        taken[offset] = offset + bytes;
      };
      for (std::uint32_t index = 0; index < count; ++index) {
        take(layout.epoch(index), 4, 4);
        take(layout.outcome(index), 4, 4);
        for (std::uint32_t member = 0; member < members; ++member) {
          take(layout.flag(index, member), 4, 4);
          take(layout.contract(index, member, 6), sizeof(launch_contract), alignof(launch_contract));
          take(layout.contract(index, member, 7), sizeof(launch_contract), alignof(launch_contract));
        }
      }
      CHECK(layout.bytes() % 128 == 0);
    }
  }
}

TEST_CASE("the rows and contracts of a set of packet channels are apart and within its bytes") {
  for (const std::uint32_t members : {1u, 3u, 8u, 72u}) {
    const packet_layout layout{3, members, 5};
    std::uint64_t end = 0;  // of what lies before
    const auto take = [&](std::uint64_t offset, std::uint64_t bytes, std::uint64_t alignment) {
      if (offset < end || offset % alignment != 0 || offset + bytes > layout.bytes())
        FAIL(members << " members: " << bytes << " bytes at " << offset);
      end = offset + bytes;
    };
    for (std::uint32_t index = 0; index < layout.count; ++index) {
      take(layout.epoch(index), 4, 4);
      take(layout.outcome(index), 4, 4);
    }
    const auto for_each_sender = [&](auto action) {
      for (std::uint32_t index = 0; index < layout.count; ++index) {
        for (const std::uint32_t epoch : {6u, 7u}) {
          for (std::uint32_t sender = 0; sender < members; ++sender) action(index, epoch, sender);
        }
      }
    };
    for_each_sender([&](std::uint32_t index, std::uint32_t epoch, std::uint32_t sender) {
      take(layout.row(index, epoch, sender), layout.packets * packet_layout::packet_bytes, 16);
    });
    for_each_sender([&](std::uint32_t index, std::uint32_t epoch, std::uint32_t sender) {
      take(layout.contract(index, epoch, sender), sizeof(packet_contract), alignof(packet_contract));
    });
    CHECK(end == layout.bytes());
  }
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

TEST_CASE("every status and operation has a name") {
  CHECK(std::string(to_string(status::timeout)) == "timeout");
  CHECK(std::string(to_string(status::mismatch)) == "mismatch");
  CHECK(std::string(to_string(static_cast<status>(99))) == "unknown status");
  CHECK(std::string(to_string(operation::lsa_barrier)) == "LSA barrier");
  CHECK(std::string(to_string(static_cast<operation>(99))) == "unknown operation");
}

TEST_CASE("a device communicator gives the teams of its rank") {
  device_comm comm{};
  comm.rank = 6;
  comm.size = 8;
  comm.lsa_first = 4;
  comm.lsa_size = 4;
  CHECK(comm.world() == team{6, 8, 0, 1});
  CHECK(comm.lsa() == team{2, 4, 4, 1});
  CHECK(comm.rail() == team{1, 2, 2, 4});
  CHECK(comm.with_launch_key(9).launch_key == 9);
}
