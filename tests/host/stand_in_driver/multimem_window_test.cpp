// Windows with multimem, on the stand-in for the CUDA driver.
#include <devcomm/host/communicator.hpp>
#include <devcomm/multimem/window_record.hpp>

#include "communicator/context_of.hpp"
#include "memory/team_multicast.hpp"
#include "stand_in.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t bytes = 100003;
constexpr std::size_t multicast_granule = 256 << 10;

multimem::window_record record_of(const window& w) {
  require(w.base != nullptr && w.multicast != nullptr, "a window with multimem is strided and has a record");
  multimem::window_record record{};
  std::memcpy(&record, w.multicast, sizeof record);
  return record;
}

/// Every rank reads what every other wrote.
void exchange(host::communicator& comm, const window& w) {
  std::memset(w.local, comm.rank() + 1, w.bytes);
  comm.barrier();
  for (int member = 0; member < w.lsa_size; ++member) {
    const char expected = static_cast<char>(comm.lsa().world_rank(member) + 1);
    require(w.lsa_pointer(member)[0] == expected && w.lsa_pointer(member)[w.bytes - 1] == expected,
            "the bytes of a member are what it wrote");
  }
  comm.barrier();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// How `allocate` ended on this rank: "", or what it threw.
std::string try_to_allocate(host::communicator& comm) {
  try {
    const auto memory = comm.allocate(bytes, "tried", host::multimem_policy::required);
    comm.barrier();  // nobody frees what another has not yet seen made
    return {};
  } catch (const host::error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a window with multimem is bound by all members and has one multicast address in each process") {
  struct shape {
    int ranks;
    int inside;
    const char* handle;
  };
  const shape job =
      GENERATE(shape{2, 2, ""}, shape{3, 3, ""}, shape{4, 4, ""}, shape{2, 1, "file_descriptor"}, shape{2, 1, "fabric"},
               shape{4, 2, "file_descriptor"}, shape{4, 2, "fabric"}, shape{3, 1, "file_descriptor"});
  CAPTURE(job.ranks, job.inside, job.handle);
  static std::atomic<char*> address_here{nullptr};
  variables set;
  if (*job.handle != '\0') set.emplace_back("DEVCOMM_MEMORY_HANDLE", job.handle);
  const auto ends = on_stand_in(
      job.ranks, job.inside,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        const host::capability there = comm.properties().multicast;
        require(there.available, "there is multicast: " + there.reason);
        require(contains(there.reason, "teams of " + std::to_string(job.ranks)), "of the team: " + there.reason);
        comm.barrier();
        require(stand_in().held().multicast == 0, "finding that out made no multicast object");
        comm.barrier();
        {
          const auto memory = comm.allocate(bytes, "gradients", host::multimem_policy::required);
          const window& w = memory.window();
          require(memory.multimem().available, "the window says so: " + memory.multimem().reason);
          const multimem::window_record record = record_of(w);
          require(record.address != nullptr && record.members == static_cast<std::uint64_t>(job.ranks),
                  "the record has the address and the members");
          require(reinterpret_cast<std::uintptr_t>(record.address) % multicast_granule == 0, "the address is aligned");
          char* expected = nullptr;
          require(address_here.compare_exchange_strong(expected, record.address) || expected == record.address,
                  "it is the same for all ranks of a process");
          comm.barrier();
          const stand_in_held held = stand_in().held();
          require(held.memory == job.ranks, "handles of memory: " + std::to_string(held.memory));
          require(held.multicast == 1, "one object in each process: " + std::to_string(held.multicast));
          require(held.bindings == job.inside, "each member binds: " + std::to_string(held.bindings));
          require(held.reservations == 2 && held.mappings == job.ranks + 1, "all is mapped once");
          require(held.device_memory == job.inside, "a record for each device");
          exchange(comm, w);
          const auto plain = comm.allocate(64);
          require(plain.window().multicast == nullptr && !plain.multimem().available, "others have none");
          require(contains(plain.multimem().reason, "was not asked for"), "and say why: " + plain.multimem().reason);
          comm.barrier();
        }
        comm.barrier();
        require_nothing_held("after its end");
      },
      set);
  CHECK(ends == all_ok(job.ranks));
}

TEST_CASE("registered memory has a multicast address for the team and its parts, where all of it can be bound") {
  struct shape {
    int ranks;
    int inside;
    const char* handle;
  };
  const shape job =
      GENERATE(shape{4, 4, ""}, shape{4, 2, "file_descriptor"}, shape{4, 1, "fabric"}, shape{4, 1, "file_descriptor"});
  CAPTURE(job.ranks, job.inside, job.handle);
  variables set;
  if (*job.handle != '\0') set.emplace_back("DEVCOMM_MEMORY_HANDLE", job.handle);
  const auto ends = on_stand_in(
      job.ranks, job.inside,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        host::detail::rank_context& context = host::detail::context_of::get(comm);
        const int rank = comm.rank();
        {
          const auto memory = context.devices.create_physical(comm.device(), 2 * multicast_granule, context.handle);
          const auto range = context.devices.reserve(2 * multicast_granule);
          const int user = comm.device();
          range->map(0, *memory, std::span(&user, 1));
          const auto make = [&](std::size_t offset, const std::vector<int>& members) {
            return host::detail::team_multicast(context, range->base() + offset, 4096, members);
          };
          const std::vector<int> pair{rank / 2 * 2, rank / 2 * 2 + 1};
          const auto of_all = make(4096, {0, 1, 2, 3}), of_pair = make(0, pair);
          require(of_all.address() != nullptr, of_all.obstacle());
          require(reinterpret_cast<std::uintptr_t>(of_all.address()) % multicast_granule == 4096, "the place in it");
          require(of_pair.address() != nullptr && of_pair.address() != of_all.address(), "another one for the pair");
          comm.barrier();
          const int pairs = std::max(job.inside / 2, 1);
          const stand_in_held held = stand_in().held();
          require(held.multicast == 1 + pairs, "objects: " + std::to_string(held.multicast));
          require(held.bindings == 2 * job.inside, "bindings: " + std::to_string(held.bindings));
          const auto apart = make(rank == 3 ? 4096 : 0, {0, 1, 2, 3});
          require(apart.address() == nullptr && contains(apart.obstacle(), "rank 3's memory begins 4096 bytes into"),
                  "places that differ: " + apart.obstacle());
          const auto plain = context.devices.allocate_device(comm.device(), 4096);
          const host::detail::team_multicast refused(context, rank == 1 ? plain->data() : range->base(), 4096,
                                                     {0, 1, 2, 3});
          require(refused.address() == nullptr && contains(refused.obstacle(), "rank 1: its memory is not one piece"),
                  "memory of cudaMalloc: " + refused.obstacle());
          comm.barrier();
        }
        comm.barrier();
        require_nothing_held("after its end");
      },
      set);
  CHECK(ends == all_ok(job.ranks));
}

TEST_CASE(
    "each call of the driver that fails is told to every rank, leaves nothing, and the next allocation succeeds") {
  struct shape {
    int ranks;
    int inside;
    int victim;        // of whose process calls fail
    int min_failures;  // one of each function at least, and several of most
    const char* handle;
  };
  const shape job = GENERATE(shape{3, 3, 0, 30, "file_descriptor"}, shape{2, 1, 0, 14, "file_descriptor"},
                             shape{2, 1, 1, 12, "file_descriptor"}, shape{4, 2, 0, 24, "file_descriptor"},
                             shape{4, 2, 3, 20, "file_descriptor"}, shape{2, 1, 0, 14, "fabric"});
  CAPTURE(job.ranks, job.inside, job.victim, job.handle);
  const variables set = {{"DEVCOMM_MEMORY_HANDLE", job.handle}};
  const auto ends = on_stand_in(
      job.ranks, job.inside,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap), {.limit = 10s});
        const int first_victim = job.victim / job.inside * job.inside;
        const bool with_victim = comm.rank() / job.inside == job.victim / job.inside;
        // One rank counts: those who look have a descriptor open.
        const auto count_descriptors = [&] {
          comm.barrier();
          const std::size_t now = comm.rank() % job.inside == 0 ? count_holdings().descriptors : 0;
          comm.barrier();
          return now;
        };
        const auto arm = [&](const char* function, int nth) {
          comm.barrier();
          if (comm.rank() == job.victim) stand_in().fail(function, nth);
          comm.barrier();
        };
        arm(nullptr, 0);
        require(try_to_allocate(comm).empty(), "it succeeds where nothing fails");
        comm.barrier();
        const std::size_t descriptors = count_descriptors();
        int failures = 0;
        for (const char* function :
             {"cuMulticastGetGranularity", "cuMemCreate", "cuMemExportToShareableHandle",
              "cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuStreamCreate",
              "cuMemsetD8Async", "cuStreamSynchronize", "cuMulticastCreate", "cuMulticastAddDevice",
              "cuMulticastBindMem", "cuMemAlloc", "cuMemcpyHtoDAsync"}) {
          for (int nth = 1;; ++nth) {
            arm(function, nth);
            const std::string text = try_to_allocate(comm);
            const std::string what = "call " + std::to_string(nth) + " of " + function;
            comm.barrier();
            require_nothing_held("after failing " + what);
            if (text.empty()) break;  // there was no such call
            ++failures;
            require(contains(text, std::string(function) + " "), what + " is told: " + text);
            require(contains(text, "CUDA_ERROR_NOT_PERMITTED"), what + " is told with its error: " + text);
            if (contains(what, "cuMemImport")) {
              require(contains(text, "set DEVCOMM_LSA_SIZE to a smaller team"), what + " says what to do: " + text);
            }
            if (!with_victim) {
              bool named = false;
              for (int i = 0; i < job.inside; ++i) {
                named = named || contains(text, "rank " + std::to_string(first_victim + i) + " failed");
              }
              require(named, what + " names the rank: " + text);
            }
            arm(nullptr, 0);
            require(try_to_allocate(comm).empty(), "an allocation succeeds after failing " + what);
            comm.barrier();
            require_nothing_held("after the allocation that succeeds");
          }
        }
        const std::size_t left = count_descriptors();
        require(left == descriptors, "descriptors: " + std::to_string(descriptors) + ", then " + std::to_string(left));
        require(failures >= job.min_failures, "calls that failed: " + std::to_string(failures));
      },
      set);
  CHECK(ends == all_ok(job.ranks));
}

TEST_CASE("calls that give something back and fail stop nothing") {
  const auto ends = on_stand_in(2, 2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    for (const char* function : {"cuMemUnmap", "cuMulticastUnbind", "cuMemRelease", "cuMemAddressFree", "cuMemFree",
                                 "cuStreamDestroy", "cuCtxPopCurrent"}) {
      for (int nth = 1; nth <= 2; ++nth) {
        comm.barrier();
        if (comm.rank() == 0) stand_in().fail(function, nth);
        comm.barrier();
        require(try_to_allocate(comm).empty(), std::string("it succeeds although this fails: ") + function);
        comm.barrier();
        require(stand_in().calls(function) >= nth, std::string("it was called: ") + function);
        require_nothing_held(std::string("after a failure of ") + function);
      }
    }
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("without multicast, required fails by name on every rank, and or_software falls back and says so") {
  struct absence {
    variables set;
    int ranks;
    std::string reason;
  };
  const auto cause = GENERATE(
      absence{{{"DEVCOMM_NVLS_ENABLE", "0"}}, 2, "DEVCOMM_NVLS_ENABLE is 0"},
      absence{{{"NCCL_NVLS_ENABLE", "0"}}, 2, "NCCL_NVLS_ENABLE is 0"},
      absence{{{"STAND_IN_CUDA_MULTICAST", "0"}}, 2, "the driver offers none for this device"},
      absence{{{"STAND_IN_CUDA_VERSION", "11040"}}, 2, "the driver offers none for this device"},
      absence{
          {{"STAND_IN_CUDA_MISSING", "cuMulticastBindMem"}}, 2, "the driver is too old: it lacks cuMulticastBindMem"},
      absence{{{"STAND_IN_CUDA_DEVICES", "1"}}, 2, "ranks 0 and 1 share a GPU"},
      absence{{{"DEVCOMM_LSA_SIZE", "1"}}, 2, "the LSA team is one rank"}, absence{{}, 1, "the LSA team is one rank"});
  CAPTURE(cause.reason);
  const auto ends = on_stand_in(
      cause.ranks, cause.ranks,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        const host::capability there = comm.properties().multicast;
        require(!there.available && contains(there.reason, cause.reason), "properties say why: " + there.reason);
        const std::string text = text_of<host::not_supported>(
            [&] { (void)comm.allocate(bytes, "wanted", host::multimem_policy::required); });
        require(contains(text, "allocate (rank " + std::to_string(comm.rank())), "the call is named: " + text);
        require(contains(text, "multimem is required, and there is no multicast: ") && contains(text, cause.reason),
                "and why: " + text);
        require(contains(text, "ask for multimem_policy::or_software"), "and what to do: " + text);
        const std::string of_resources = text_of<host::not_supported>([&] {
          (void)comm.create_device_comm(comm.requirements().with(multimem::resources{host::multimem_policy::required}));
        });
        require(contains(of_resources, cause.reason), "resources too: " + of_resources);
        {
          const auto memory = comm.allocate(bytes, "wanted", host::multimem_policy::or_software);
          require(!memory.multimem().available && contains(memory.multimem().reason, "in software") &&
                      contains(memory.multimem().reason, cause.reason),
                  "the window says so: " + memory.multimem().reason);
          const multimem::window_record record = record_of(memory.window());
          require(record.address == nullptr, "there is no address");
          require(record.members == static_cast<std::uint64_t>(comm.lsa().size), "the members are those of the team");
          exchange(comm, memory.window());
        }
        comm.barrier();
        require(stand_in().calls("cuMulticastCreate") == 0, "no object was made");
        require(stand_in().calls("cuMulticastGetGranularity") == 0, "nothing was asked of multicast");
        require_nothing_held("in the end");
      },
      cause.set);
  CHECK(ends == all_ok(cause.ranks));
}

TEST_CASE("one device without multicast is named by the whole team, and another team has its own") {
  const auto ends = on_stand_in(
      4, 1,
      [](auto bootstrap) {
        host::communicator comm(std::move(bootstrap), {.lsa_size = 2});
        const host::capability there = comm.properties().multicast;
        require(there.available == (comm.rank() < 2), "each team has its own answer: " + there.reason);
        if (comm.rank() == 2) require(contains(there.reason, "rank 3: "), "the culprit is named: " + there.reason);
        const std::string text =
            text_of<host::error>([&] { (void)comm.allocate(64, {}, host::multimem_policy::required); });
        require(contains(text, "multimem is required"), "required fails on all ranks: " + text);
        const auto memory = comm.allocate(64, {}, host::multimem_policy::or_software);
        require((record_of(memory.window()).address != nullptr) == (comm.rank() < 2), "one team has multicast");
        exchange(comm, memory.window());
      },
      {{"STAND_IN_CUDA_MULTICAST", "3"}});
  CHECK(ends == all_ok(4));
}

TEST_CASE("ranks that ask for different things are told which") {
  const auto ends = on_stand_in(2, 2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto mine = comm.rank() == 0 ? host::multimem_policy::none : host::multimem_policy::or_software;
    const std::string text = text_of<host::invalid_argument>([&] { (void)comm.allocate(64, {}, mine); });
    require(contains(text, "rank 1 asked for multimem_policy::or_software and rank 0 for multimem_policy::none"), text);
    require(try_to_allocate(comm).empty(), "all can go on");
    comm.barrier();
    require_nothing_held("in the end");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("resources of a device communicator have multimem where it is asked for") {
  const int inside = GENERATE(1, 2);
  CAPTURE(inside);
  const auto ends = on_stand_in(2, inside, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    {
      auto needs = comm.requirements();
      needs.with(multimem::resources{host::multimem_policy::required});
      const auto device = comm.create_device_comm(needs);
      require(record_of(device.get().resources).address != nullptr, "resources have an address");
      const auto without = comm.create_device_comm(comm.requirements());
      require(without.get().resources.multicast == nullptr, "others have none");
      comm.barrier();
    }
    comm.barrier();
    require_nothing_held("in the end");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("registered memory says that it has no multimem, and why") {
  const auto ends = on_stand_in(2, 1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto allocate = reinterpret_cast<int (*)(std::uint64_t*, std::size_t)>(stand_in().find("cuMemAlloc"));
    std::uint64_t address = 0;
    require(allocate(&address, 4096) == 0, "device memory");
    const auto memory = comm.register_memory(reinterpret_cast<void*>(address), 4096);
    require(!memory.multimem().available, "there is none");
    require(contains(memory.multimem().reason, "cudaMalloc, which cannot be bound"), memory.multimem().reason);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}
