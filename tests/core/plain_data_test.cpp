#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/status.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/window.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

static_assert(std::is_trivially_copyable_v<window> && std::is_standard_layout_v<window>);
static_assert(std::is_trivially_copyable_v<sym_ptr<float>> && std::is_standard_layout_v<sym_ptr<float>>);
static_assert(std::is_trivially_copyable_v<device_comm> && std::is_standard_layout_v<device_comm>);
static_assert(std::is_trivially_copyable_v<failure_record> && std::is_standard_layout_v<failure_record>);

/// LSA ranks 4 to 7 of a larger world, seen by rank 5; 64 bytes on each.
struct four_slots {
  std::array<char, 4 * 128> memory{};
  std::array<char*, 4> table{memory.data() + 300, memory.data() + 200, memory.data(), memory.data() + 100};

  window strided() { return {memory.data(), nullptr, memory.data() + 128, 128, 64, 4, 4, 1, 7, nullptr}; }
  window tabled() { return {nullptr, table.data(), table[1], 0, 64, 4, 4, 1, 8, nullptr}; }
};

}  // namespace

TEST_CASE("a strided window finds peers by arithmetic") {
  four_slots slots;
  const window w = slots.strided();
  CHECK(w.lsa_pointer(0) == slots.memory.data());
  CHECK(w.lsa_pointer(3, 60) == slots.memory.data() + 3 * 128 + 60);
  CHECK(w.local_pointer(8) == w.lsa_pointer(w.lsa_rank, 8));
  CHECK(w.world_rank(3) == 7);
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

TEST_CASE("members of an LSA team that are no consecutive ranks are found by world rank") {
  four_slots slots;
  const std::array<std::int32_t, 4> ranks{1, 3, 6, 7};
  device_comm comm{};
  comm.rank = 6;
  comm.size = 9;
  comm.lsa_first = first_lsa_number + 5;
  comm.lsa_size = 4;
  comm.resources = slots.strided();
  comm.resources.lsa_first = comm.lsa_first;
  comm.resources.lsa_rank = 2;
  comm.resources.lsa_ranks = ranks.data();
  int members = 0;
  for (int rank = 0; rank < comm.size; ++rank) {
    const int member = comm.lsa_member(rank);
    CHECK((comm.resources.peer_pointer(rank) != nullptr) == (member >= 0));
    if (member < 0) continue;
    ++members;
    CHECK(comm.world_rank(comm.lsa(), member) == rank);
    CHECK(comm.resources.world_rank(member) == rank);
    CHECK(comm.resources.peer_pointer(rank) == comm.resources.lsa_pointer(member));
  }
  CHECK(members == 4);
  CHECK(comm.lsa() == team{2, 4, comm.lsa_first, 1});
  CHECK_FALSE(comm.lsa().has_world_ranks());
  CHECK(comm.world_rank(inner_factor(comm.lsa(), 2), 1) == 7);
  CHECK(comm.world_rank(comm.world(), 5) == 5);
  CHECK(comm.world_rank_of(-1) == -1);
  comm.flags = device_comm::round_robin;
  CHECK(comm.rail() == team{0, 2, 4, 1});
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
  comm.resources.lsa_rank = 2;
  CHECK(comm.world() == team{6, 8, 0, 1});
  CHECK(comm.lsa() == team{2, 4, 4, 1});
  CHECK(comm.rail() == team{1, 2, 2, 4});
  CHECK(comm.with_launch_key(9).launch_key == 9);
}
