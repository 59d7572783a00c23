#include <devcomm/host/communicator.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <unistd.h>

using namespace devcomm;
using namespace devcomm_test;

namespace {

constexpr std::size_t odd_bytes = 100003;

unsigned char pattern(int rank, std::size_t i) {
  return static_cast<unsigned char>(rank * 37 + static_cast<int>(i % 251) + 1);
}

void fill_own(const window& w, int rank) {
  for (std::size_t i = 0; i < w.bytes; ++i) w.local_pointer()[i] = static_cast<char>(pattern(rank, i));
}

void require_pattern(const char* at, std::size_t bytes, int rank) {
  for (std::size_t i = 0; i < bytes; ++i) {
    require(static_cast<unsigned char>(at[i]) == pattern(rank, i), [&] {
      return "byte " + std::to_string(i) + " of rank " + std::to_string(rank) + " is not what that rank wrote";
    });
  }
}

}  // namespace

TEST_CASE("what a rank writes to its slot is what every LSA peer reads at that rank's place") {
  const int ranks = GENERATE(1, 2, 3, 4, 7, 8);
  CAPTURE(ranks);
  const auto ends = on_threads(ranks, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const host::symmetric_memory memory = comm.allocate(odd_bytes);
    const window w = memory.window();
    require(w.lsa_size == ranks && w.lsa_rank == comm.rank(), "one process of ranks is one LSA team");
    require(memory.bytes() == odd_bytes && w.bytes == odd_bytes, "a window has the size that was asked for");
    require(memory.data() == w.local && w.local == w.lsa_pointer(w.lsa_rank), "a rank's own slot is its local memory");
    for (std::size_t i = 0; i < w.bytes; ++i) require(w.local[i] == 0, [] { return "a new window holds zeros"; });
    comm.barrier();
    fill_own(w, comm.rank());
    comm.barrier();
    for (int peer = 0; peer < ranks; ++peer) {
      require_pattern(w.lsa_pointer(peer), w.bytes, peer);
      require(w.peer_pointer(peer) == w.lsa_pointer(peer), "with one LSA team world ranks and members are the same");
    }
    require(w.peer_pointer(ranks) == nullptr && w.peer_pointer(-1) == nullptr, "a rank of another team has no address");
    comm.barrier();
  });
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("a window in pinned host memory is zeroed, reached by every LSA peer and says that it has no multimem") {
  const int ranks = GENERATE(1, 3);
  CAPTURE(ranks);
  const auto ends = on_threads(ranks, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    require(comm.properties().pinned_host.available, "the simulator has pinned host memory");
    const host::symmetric_memory memory = comm.allocate(odd_bytes, host::memory_place::pinned_host, "mailbox");
    const window w = memory.window();
    require(w.bytes == odd_bytes && w.local == w.lsa_pointer(w.lsa_rank), "it is a window like others");
    require(memory.name() == "window 'mailbox'", "it has its name: " + memory.name());
    for (std::size_t i = 0; i < w.bytes; ++i) require(w.local[i] == 0, [] { return "a new window holds zeros"; });
    require(!memory.multimem().available, "there is no multicast to memory of the host");
    require(memory.multimem().reason.find("pinned host memory, which cannot be bound to a multicast object") !=
                std::string::npos,
            "the reason is given: " + memory.multimem().reason);
    comm.barrier();
    fill_own(w, comm.rank());
    comm.barrier();
    for (int peer = 0; peer < ranks; ++peer) require_pattern(w.lsa_pointer(peer), w.bytes, peer);
    comm.barrier();
  });
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("places that differ fail on all ranks and name the one that differs") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto place = comm.rank() == 2 ? host::memory_place::pinned_host : host::memory_place::device;
    static_cast<void>(comm.allocate(64, place));
  });
  for (const std::string& end : ends) {
    CHECK(end.find("invalid_argument: allocate") == 0);
    CHECK(end.find("rank 2 asked for memory_place::pinned_host and rank 0 for memory_place::device") !=
          std::string::npos);
  }
}

TEST_CASE("ranks of one process see a window at one address") {
  std::vector<window> seen(4);
  const auto ends = on_threads(4, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const host::symmetric_memory memory = comm.allocate(1);
    require(memory.handle_type() == "same process", "ranks of one process say so");
    seen[static_cast<std::size_t>(comm.rank())] = memory.window();
    comm.barrier();
  });
  REQUIRE(ends == all_ok(4));
  for (const window& w : seen) {
    CHECK(w.base == seen[0].base);
    CHECK(w.stride == seen[0].stride);
    CHECK(w.id == seen[0].id);
  }
}

TEST_CASE("windows differ in id and do not overlap") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto a = comm.allocate(4096);
    const auto b = comm.allocate(4096);
    require(a.window().id != b.window().id, "ids are distinct");
    fill_own(a.window(), comm.rank());
    comm.barrier();
    for (int i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < 4096; ++k) require(b.window().lsa_pointer(i)[k] == 0, "a write stays in its window");
    }
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("memory far past the end of a slot is not mapped") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto memory = comm.allocate(5000);
    int pipe[2];
    require(::pipe(pipe) == 0, "a pipe");
    const auto readable = [&](const char* at) { return ::write(pipe[1], at, 1) == 1; };
    for (int member = 0; member < 2; ++member) {
      const char* const slot = memory.window().lsa_pointer(member);
      require(readable(slot) && readable(slot + 4999), "a slot is there from its first to its last byte");
      require(!readable(slot + memory.window().stride - 1), "before the next slot there is nothing");
    }
    ::close(pipe[0]);
    ::close(pipe[1]);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("sizes that differ fail on all ranks and name the one that differs") {
  const auto ends = on_threads(4, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    static_cast<void>(comm.allocate(comm.rank() == 2 ? 64 : 128));
  });
  for (const std::string& end : ends) {
    CHECK(end.find("invalid_argument: allocate") == 0);
    CHECK(end.find("rank 2 asked for 64 bytes and rank 0 for 128") != std::string::npos);
  }
}

TEST_CASE("one rank's bad size is its own error and a remote error to the others, and all can go on") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    std::string got = "nothing";
    try {
      static_cast<void>(comm.allocate(comm.rank() == 1 ? 0 : 128));
    } catch (const host::invalid_argument& e) {
      require(comm.rank() == 1, "only the culprit gets its own error");
      got = e.what();
    } catch (const host::remote_error& e) {
      require(comm.rank() != 1 && e.rank() == 1, "the others learn who it was");
      got = e.what();
    }
    require(got.find("0 bytes; ask for at least 1") != std::string::npos, "the text says what to do: " + got);
    const auto memory = comm.allocate(128);
    fill_own(memory.window(), comm.rank());
    comm.barrier();
    for (int peer = 0; peer < 3; ++peer) require_pattern(memory.window().lsa_pointer(peer), 128, peer);
    comm.barrier();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a window too large for an address space is refused on every rank") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    static_cast<void>(comm.allocate(~std::size_t{0} / 2));
  });
  for (const std::string& end : ends) CHECK(end.find("invalid_argument: allocate") == 0);
}

TEST_CASE("a window outlives the communicator that made it") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    std::unique_ptr<host::symmetric_memory> memory;
    int rank = 0;
    {
      host::communicator comm(std::move(bootstrap));
      memory = std::make_unique<host::symmetric_memory>(comm.allocate(512));
      rank = comm.rank();
      fill_own(memory->window(), rank);
      comm.barrier();
    }
    for (int peer = 0; peer < 3; ++peer) require_pattern(memory->window().lsa_pointer(peer), 512, peer);
  });
  CHECK(ends == all_ok(3));
}
