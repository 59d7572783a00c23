#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/signals.hpp>
#include <devcomm/requirements.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <iterator>
#include <map>
#include <type_traits>

using namespace devcomm;

static_assert(std::is_trivially_copyable_v<lsa::barrier_handle> && std::is_trivially_copyable_v<lsa::ll_handle>);
static_assert(sizeof(lsa::barrier_handle) == 16 && sizeof(lsa::ll_handle) == 24);

namespace {

/// What `mailboxes_for` takes of a session.
template <packet_protocol Protocol>
struct session_of_pairs {
  using handle = lsa::mailbox_handle<Protocol>;
  static constexpr std::uint32_t packets_for(std::uint32_t packs) { return 2 * packs; }
};

}  // namespace

TEST_CASE("a session's mailboxes are those of its protocol") {
  const team members{1, 3, 1, 1};
  requirements by_name(world_team(0, 4));
  requirements by_session(world_team(0, 4));
  const auto same = [](const auto& a, const auto& b) {
    return a.offset == b.offset && a.count == b.count && a.members == b.members && a.packets == b.packets;
  };
  CHECK(same(by_name.add(lsa::ll_mailboxes{members, 2, 10}),
             by_session.add(lsa::mailboxes_for<session_of_pairs<packet_protocol::ll>>(members, 2, 5))));
  CHECK(same(by_name.add(lsa::lamport_mailboxes{members, 2, 10}),
             by_session.add(lsa::mailboxes_for<session_of_pairs<packet_protocol::lamport>>(members, 2, 5))));
  CHECK(by_session.required(demand::ll128) == 0);
  CHECK(same(by_name.add(lsa::ll128_mailboxes{members, 2, 34}),
             by_session.add(lsa::mailboxes_for<session_of_pairs<packet_protocol::ll128>>(members, 2, 17))));
  CHECK(by_session.required(demand::ll128) == 1);
  CHECK(by_name.fingerprint() == by_session.fingerprint());
}

TEST_CASE("the words of a set of barriers are apart and within its bytes") {
  for (std::uint32_t members = 1; members <= 72; members += 7) {
    for (std::uint32_t count = 1; count <= 33; count += 8) {
      const lsa::barrier_layout layout{count, members};
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

TEST_CASE("the rows and contracts of a set of mailboxes are apart and within its bytes") {
  for (const std::uint32_t members : {1u, 3u, 8u, 72u}) {
    const lsa::mailbox_layout layout{3, members, 5};
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
      take(layout.row(index, epoch, sender), layout.packets * lsa::mailbox_layout::packet_bytes, 16);
    });
    for_each_sender([&](std::uint32_t index, std::uint32_t epoch, std::uint32_t sender) {
      take(layout.contract(index, epoch, sender), sizeof(lsa::packet_contract), alignof(lsa::packet_contract));
    });
    CHECK(end == layout.bytes());
  }
}

TEST_CASE("words of signals overlap nothing and lie at multiples of their size") {
  for (const std::uint32_t count : {1u, 3u, 16u, 17u, 1000u}) {
    CAPTURE(count);
    const lsa::signal_layout layout{count};
    std::map<std::uint64_t, std::uint64_t> taken;  // first byte, end
    const auto take = [&](std::uint64_t first, std::uint64_t bytes) {
      CHECK(first % bytes == 0);
      CHECK(taken.try_emplace(first, first + bytes).second);
    };
    for (std::uint32_t i = 0; i < count; ++i) {
      take(layout.word(i), 8);
      take(layout.taken(i), 8);
      take(layout.outcome(i), 4);
    }
    std::uint64_t end = 0;
    for (const auto& [first, past] : taken) {
      CHECK(first >= end);
      end = past;
    }
    CHECK(end <= layout.bytes());
  }
}
