// GIN on GPUs, on the stand-in for the CUDA driver: threads post what kernels would, and copies take their time.
#include <devcomm/gin/contexts.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "../../support/post_descriptor.hpp"
#include "stand_in.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

/// What a kernel does with a context, by a thread: the stand-in's device memory is within its reach.
class kernel_end {
 public:
  kernel_end(const device_comm& comm, const gin::context_handle& contexts)
      : layout_{contexts.members, contexts.signals, contexts.counters},
        depth_(contexts.depth),
        record_(*reinterpret_cast<gin::context_record*>(comm.resources.local + contexts.offset)) {}

  /// After another such object of the same context.
  void go_on() { posted_ = load(layout_.consumed()); }
  /// Returns the operation's number.
  std::uint64_t post(const gin::descriptor& what, const gin::descriptor_head& head) {
    const std::uint64_t number = posted_++;
    wait(layout_.consumed(), number + 1 < depth_ ? 0 : number + 1 - depth_);
    test::post_descriptor(record_.ring, number, depth_, what, head);
    return number;
  }
  void put(std::uint32_t peer, const window& to, const window& from, std::uint64_t bytes, std::uint64_t signal) {
    gin::descriptor what{};
    what.windows = std::uint64_t{to.id} << 32 | from.id;
    what.bytes = bytes;
    what.signal_value = signal;
    const auto change = signal == 0 ? gin::signal_change::none : gin::signal_change::add;
    static_cast<void>(post(what, {gin::operation_kind::put, change, gin::strength::weak, false, 0, peer}));
  }
  /// Until word `index` is at least `least`.
  void wait(std::uint32_t index, std::uint64_t least) {
    const auto begun = std::chrono::steady_clock::now();
    while (load(index) < least) {
      require(std::chrono::steady_clock::now() - begun < 20s, "word " + std::to_string(index) + " comes");
      std::this_thread::yield();
    }
  }
  std::uint64_t load(std::uint32_t index) {
    return std::atomic_ref(record_.words[index]).load(std::memory_order_acquire);
  }
  [[nodiscard]] const gin::queue_layout& layout() const { return layout_; }

 private:
  gin::queue_layout layout_;
  std::uint32_t depth_;
  gin::context_record& record_;
  std::uint64_t posted_ = 0;
};

std::byte byte_of(int rank, std::uint64_t round, std::uint64_t i) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(rank) * 41 + round * 13 + i * 7 + i / 251);
}

constexpr std::uint64_t most = (std::uint64_t{9} << 20) + 13;  // more than there is pinned memory for at once

}  // namespace

TEST_CASE("puts between GPUs arrive whole before their signals, however late copies are") {
  const int devices = GENERATE(1, 2);
  const int delay = GENERATE(0, 3);
  const int inside = GENERATE(2, 1);  // one process, or two
  const bool writes_values = GENERATE(true, false);
  CAPTURE(devices, delay, inside, writes_values);
  if (!writes_values && devices == 2) return;  // as with one
#ifndef DEVCOMM_TEST_LIBFABRIC
  if (inside == 1) SKIP("built without libfabric");
#endif
  const auto body = [&](auto bootstrap) {
    {
      host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
      stand_in().delay_copies(delay);
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
      const auto device_comm = comm.create_device_comm(needs);
      const auto in = comm.allocate(most);
      const auto out = comm.allocate(most);
      kernel_end net(device_comm.get(), contexts);
      const auto peer = static_cast<std::uint32_t>(1 - comm.rank());
      std::uint64_t round = 0;
      for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{300001}, most}) {
        for (std::uint64_t i = 0; i < bytes; ++i) {
          reinterpret_cast<std::byte*>(in.window().local)[i] = byte_of(comm.rank(), round, i);
        }
        net.put(peer, out.window(), in.window(), bytes, 1);
        net.wait(net.layout().signal(0), ++round);
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i < bytes; ++i) {
          const auto came = reinterpret_cast<const std::byte*>(out.window().local)[i];
          wrong += came == byte_of(static_cast<int>(peer), round - 1, i) ? 0 : 1;
        }
        require(wrong == 0, std::to_string(wrong) + " of " + std::to_string(bytes) + " bytes are wrong");
        net.wait(net.layout().done(), round);
        comm.barrier();
      }
      device_comm.check();
      require((stand_in().calls("cuStreamWriteValue64") != 0) == writes_values, "streams write values where they can");
    }
  };
  const variables set = {{"STAND_IN_CUDA_DEVICES", std::to_string(devices)},
                         {"STAND_IN_CUDA_WRITES_VALUES", writes_values ? "1" : "0"}};
  CHECK(on_stand_in(2, inside, body, set) == all_ok(2));
}

#ifdef STAND_IN_LIBFABRIC

namespace {

/// Two ranks, each a process of its own, on cards that reach the stand-in's devices as `set` says: rank 0's way, and
/// whether it is straight, is told to `said`; puts and gets arrive, and no copy engine is used where it is.
outcomes on_cards(const variables& set, const std::function<void(const host::capability&)>& said, bool straight) {
  variables all = set;
  all.emplace_back("DEVCOMM_GIN_PROVIDER", "verbs;ofi_rxm");
  return on_stand_in(
      2, 1,
      [&](auto bootstrap) {
        require(::dlopen(STAND_IN_LIBFABRIC, RTLD_NOW | RTLD_LOCAL) != nullptr, "the stand-in is loaded first");
        const auto registered = reinterpret_cast<int (*)()>(
            ::dlsym(::dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD), "stand_in_registered_devices"));
        require(registered != nullptr, "the library would find the stand-in");
        {
          host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
          auto needs = comm.requirements();
          const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
          const auto device_comm = comm.create_device_comm(needs);
          said(device_comm.network());
          const int before = registered();
          const auto in = comm.allocate(most);
          const auto out = comm.allocate(most);
          for (std::uint64_t i = 0; i < most; ++i) {
            reinterpret_cast<std::byte*>(in.window().local)[i] = byte_of(comm.rank(), 0, i);
          }
          stand_in().fail(nullptr, 0);  // counts from here on
          comm.barrier();
          kernel_end net(device_comm.get(), contexts);
          const auto peer = static_cast<std::uint32_t>(1 - comm.rank());
          net.put(peer, out.window(), in.window(), most, 1);
          net.wait(net.layout().signal(0), 1);
          net.wait(net.layout().done(), 1);
          comm.barrier();
          std::uint64_t wrong = 0;
          for (std::uint64_t i = 0; i < most; ++i) {
            const auto came = reinterpret_cast<const std::byte*>(out.window().local)[i];
            wrong += came == byte_of(static_cast<int>(peer), 0, i) ? 0 : 1;
          }
          require(wrong == 0, std::to_string(wrong) + " bytes are wrong");
          require((registered() - before == 2) == straight, "both windows are registered as memory of devices");
          require((stand_in().calls("cuMemcpyDtoHAsync") == 0) == straight, "copy engines read only what is staged");
          require((stand_in().calls("cuMemcpyHtoDAsync") == 0) == straight, "copy engines write only what is staged");
          device_comm.check();
          comm.barrier();
        }
        require_nothing_held("at the end");
      },
      all);
}

}  // namespace

TEST_CASE("payload goes straight from and to GPU memory where driver and provider reach it") {
  const auto straight = [](const host::capability& way) {
    require(way.available && way.reason.find("payload goes straight from and to GPU memory: libfabric's provider "
                                             "verbs;ofi_rxm reaches it (FI_HMEM)") != std::string::npos,
            way.reason);
  };
  CHECK(on_cards({{"STAND_IN_CUDA_CARDS", "2"}}, straight, true) == all_ok(2));
  CHECK(on_cards({{"STAND_IN_CUDA_CARDS", "2"}, {"DEVCOMM_GIN_PAYLOAD", "direct"}}, straight, true) == all_ok(2));
}

TEST_CASE("payload is staged where driver or provider do not reach GPU memory, and network() says why") {
  const std::vector<std::pair<variables, std::string>> causes = {
      {{}, "the driver has no GPUDirect RDMA for this device"},
      {{{"STAND_IN_CUDA_CARDS", "1"}}, "the device does not order the writes of network cards"},
      {{{"STAND_IN_CUDA_CARDS", "3"}}, "a signal may overtake what a card writes"},
      {{{"STAND_IN_CUDA_CARDS", "2"}, {"DEVCOMM_GIN_PAYLOAD", "staged"}}, "DEVCOMM_GIN_PAYLOAD is staged"},
      {{{"STAND_IN_CUDA_CARDS", "2"}, {"STAND_IN_HMEM", "none"}}, "does not reach it (FI_HMEM: "},
      {{{"STAND_IN_CUDA_CARDS", "2"}, {"STAND_IN_HMEM", "by_threads"}}, "reaches it by threads of the host only"},
      {{{"STAND_IN_CUDA_CARDS", "2"}, {"STAND_IN_HMEM", "refused"}}, "cannot register 65536 bytes"},
  };
  for (const auto& [set, why] : causes) {
    const auto staged = [&why = why](const host::capability& way) {
      require(way.available && way.reason.find("payload goes through pinned host memory: ") != std::string::npos &&
                  way.reason.find(why) != std::string::npos,
              way.reason);
    };
    CHECK(on_cards(set, staged, false) == all_ok(2));
  }
  const auto refused = on_cards(
      {{"STAND_IN_CUDA_CARDS", "2"}, {"STAND_IN_HMEM", "none"}, {"DEVCOMM_GIN_PAYLOAD", "direct"}},
      [](const host::capability&) {}, false);
  for (const std::string& each : refused) {
    CHECK_THAT(each,
               Catch::Matchers::ContainsSubstring("DEVCOMM_GIN_PAYLOAD is direct, and payload cannot go straight"));
  }
}

#endif

TEST_CASE("puts between windows in pinned host memory need no copy engine") {
  const int inside = GENERATE(2, 1);
  const bool from_device = GENERATE(false, true);
  const bool to_device = GENERATE(false, true);
  CAPTURE(inside, from_device, to_device);
#ifndef DEVCOMM_TEST_LIBFABRIC
  if (inside == 1) SKIP("built without libfabric");
#endif
  const auto ends = on_stand_in(2, inside, [&](auto bootstrap) {
    {
      host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
      const auto place = [](bool device) {
        return device ? host::memory_place::device : host::memory_place::pinned_host;
      };
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
      const auto device_comm = comm.create_device_comm(needs);
      constexpr std::uint64_t bytes = 700001;
      const auto in = comm.allocate(bytes, place(from_device));
      const auto out = comm.allocate(bytes, place(to_device));
      for (std::uint64_t i = 0; i < bytes; ++i) {
        reinterpret_cast<std::byte*>(in.window().local)[i] = byte_of(comm.rank(), 0, i);
      }
      comm.barrier();
      stand_in().fail(nullptr, 0);  // counts from here on
      stand_in().delay_copies(2);
      comm.barrier();
      kernel_end net(device_comm.get(), contexts);
      const auto peer = static_cast<std::uint32_t>(1 - comm.rank());
      net.put(peer, out.window(), in.window(), bytes, 1);
      net.wait(net.layout().signal(0), 1);
      net.wait(net.layout().done(), 1);
      comm.barrier();
      const bool reads = stand_in().calls("cuMemcpyDtoHAsync") != 0;
      const bool writes = stand_in().calls("cuMemcpyHtoDAsync") != 0;
      require(reads == from_device, "a copy engine reads what lies in device memory, and nothing else");
      require(writes == to_device, "a copy engine writes what lies in device memory, and nothing else");
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < bytes; ++i) {
        const auto came = reinterpret_cast<const std::byte*>(out.window().local)[i];
        wrong += came == byte_of(static_cast<int>(peer), 0, i) ? 0 : 1;
      }
      require(wrong == 0, std::to_string(wrong) + " bytes are wrong");
      device_comm.check();
      comm.barrier();
    }
    stand_in().delay_copies(0);
    if (inside == 1) require_nothing_held("at the end");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("windows in pinned host memory are registered with devices, shared by processes and given back") {
  const auto ends = on_stand_in(4, 2, [](auto bootstrap) {
    {
      host::communicator comm(std::move(bootstrap));
      require(comm.lsa().size == 4, "the ranks are one LSA team");
      const auto memory = comm.allocate(5000, host::memory_place::pinned_host);
      const window w = memory.window();
      w.local[4999] = static_cast<char>(10 + comm.rank());
      comm.barrier();
      for (int peer = 0; peer < 4; ++peer) require(w.lsa_pointer(peer)[4999] == 10 + peer, "peers are reached");
      require(stand_in().held().registered == 4, "each slot is registered once in a process");
      comm.barrier();
    }
  });
  CHECK(ends == all_ok(4));
  const auto alone = on_stand_in(1, 1, [](auto bootstrap) {
    {
      host::communicator comm(std::move(bootstrap));
      stand_in().fail("cuMemHostRegister", 1);
      const std::string said =
          text_of<host::system_error>([&] { static_cast<void>(comm.allocate(5000, host::memory_place::pinned_host)); });
      require(said.find("cuMemHostRegister failed") != std::string::npos, "allocate said: " + said);
      const auto memory = comm.allocate(5000, host::memory_place::pinned_host);
      require(stand_in().held().registered == 1, "another one can be had");
    }
    require_nothing_held("at the end");
  });
  CHECK(alone == all_ok(1));
}

TEST_CASE("windows in pinned host memory are refused where devices have other addresses for it") {
  const auto ends = on_stand_in(2, 2,
                                [](auto bootstrap) {
                                  host::communicator comm(std::move(bootstrap));
                                  static_cast<void>(comm.allocate(64, host::memory_place::pinned_host));
                                },
                                {{"STAND_IN_CUDA_REGISTERS", "0"}});
  for (const std::string& end : ends) {
    CHECK(end.find("there are no windows in pinned host memory: the device has other addresses") != std::string::npos);
  }
}

TEST_CASE("values go to GPUs in order with signals, and gets come from them") {
  const int inside = GENERATE(2, 1);
  CAPTURE(inside);
#ifndef DEVCOMM_TEST_LIBFABRIC
  if (inside == 1) SKIP("built without libfabric");
#endif
  const auto ends = on_stand_in(2, inside, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    stand_in().delay_copies(2);
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 64});
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::uint64_t values = 300;  // more than may be on their way
    const auto out = comm.allocate(values * sizeof(std::uint64_t));
    const auto got = comm.allocate(values * sizeof(std::uint64_t));
    const auto me = static_cast<std::uint64_t>(comm.rank());
    for (const std::uint64_t to : {1 - me, me}) {  // the peer, and this rank itself
      kernel_end net(device_comm.get(), contexts);
      net.go_on();
      const auto peer = static_cast<std::uint32_t>(to);
      for (std::uint64_t i = 0; i < values; ++i) {
        gin::descriptor what{};
        what.windows = std::uint64_t{out.window().id} << 32;
        what.remote = i * sizeof(std::uint64_t);
        what.bytes = sizeof(std::uint64_t);
        what.value = 1000 * (to + 1) + i;
        what.signal_value = 1;
        static_cast<void>(net.post(
            what, {gin::operation_kind::put_value, gin::signal_change::add, gin::strength::strong, false, 8, peer}));
      }
      net.wait(net.layout().signal(0), to == me ? 2 * values : values);
      const auto* const mine = reinterpret_cast<const std::uint64_t*>(out.window().local);
      for (std::uint64_t i = 0; i < values; ++i) require(mine[i] == 1000 * (me + 1) + i, "the values have come");
      comm.barrier();
      gin::descriptor what{};
      what.windows = std::uint64_t{out.window().id} << 32 | got.window().id;
      what.bytes = values * sizeof(std::uint64_t);
      const std::uint64_t number =
          net.post(what, {gin::operation_kind::get, gin::signal_change::none, gin::strength::weak, false, 0, peer});
      net.wait(net.layout().done(), number + 1);
      const auto* const theirs = reinterpret_cast<const std::uint64_t*>(got.window().local);
      for (std::uint64_t i = 0; i < values; ++i) require(theirs[i] == 1000 * (to + 1) + i, "the get has come");
      comm.barrier();
    }
    device_comm.check();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a window is not freed while a copy reaches it, and puts to it fail from then on") {
  const auto ends = on_stand_in(2, 2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(most);
    std::optional<host::symmetric_memory> out = comm.allocate(most);
    const window gone = out->window();
    comm.barrier();
    stand_in().delay_copies(100);
    if (comm.rank() == 0) {
      kernel_end net(device_comm.get(), contexts);
      net.put(1, gone, in.window(), most, 1);
      net.wait(net.layout().consumed(), 1);
      std::this_thread::sleep_for(20ms);
    }
    comm.barrier();
    out.reset();  // copies to it would fault from here on
    comm.barrier();
    stand_in().delay_copies(0);
    std::string said;
    for (int i = 0; i < 5000 && said.empty() && comm.rank() == 0; ++i) {
      std::this_thread::sleep_for(1ms);
      try {
        device_comm.check();
      } catch (const host::error& problem) {
        said = problem.what();
      }
    }
    comm.barrier();  // rank 1's device communicator is there until then
    if (comm.rank() == 1) return;
    require(said.find("put to rank 1 in context 0: rank 1 has no window") != std::string::npos, "check said: " + said);
  });
  CHECK(ends == all_ok(2));
}

namespace {

constexpr int never = 1 << 30;

/// Whether `work` ends within `limit`. Copies go on after that, so that it ends.
bool ends_within(std::chrono::seconds limit, const std::function<void()>& work) {
  std::future<void> done = std::async(std::launch::async, work);
  const bool in_time = done.wait_for(limit) == std::future_status::ready;
  stand_in().delay_copies(0);
  done.get();
  return in_time;
}

}  // namespace

TEST_CASE("windows can be freed while more copies than are watched for do not end") {
#ifndef DEVCOMM_TEST_LIBFABRIC
  SKIP("built without libfabric");
#endif
  const auto ends = on_stand_in(3, 1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 128});
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::uint64_t values = 64;  // that a peer sends without an answer
    const auto out = comm.allocate(2 * values * sizeof(std::uint64_t));
    std::optional<host::symmetric_memory> other = comm.allocate(100);
    kernel_end net(device_comm.get(), contexts);
    stand_in().fail(nullptr, 0);  // counts from here on
    if (comm.rank() == 2) stand_in().delay_copies(never);
    comm.barrier();
    const auto me = static_cast<std::uint64_t>(comm.rank());
    for (std::uint64_t i = 0; i < values && me != 2; ++i) {
      gin::descriptor what{};
      what.windows = std::uint64_t{out.window().id} << 32;
      what.remote = (me * values + i) * sizeof(std::uint64_t);
      what.bytes = sizeof(std::uint64_t);
      what.value = 1000 * me + i;
      what.signal_value = 1;
      static_cast<void>(net.post(
          what, {gin::operation_kind::put_value, gin::signal_change::add, gin::strength::strong, false, 8, 2}));
    }
    bool freed = true;
    if (me == 2) {
      const auto begun = std::chrono::steady_clock::now();
      while (stand_in().calls("cuMemcpyHtoDAsync") < 65) {
        require(std::chrono::steady_clock::now() - begun < 20s, "copies begin");
        std::this_thread::sleep_for(1ms);
      }
      freed = ends_within(5s, [&] { other.reset(); });
      net.wait(net.layout().signal(0), 2 * values);
      const auto* const mine = reinterpret_cast<const std::uint64_t*>(out.window().local);
      for (std::uint64_t i = 0; i < 2 * values; ++i) {
        require(mine[i] == 1000 * (i / values) + i % values, "each value has come before its signal");
      }
    }
    comm.barrier();
    device_comm.check();
    require(freed, "a window that no copy reaches is freed at once");
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a device communicator of one process ends although a copy does not") {
  const auto ends = on_stand_in(2, 2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
    std::optional<host::device_communicator> device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(1000);
    const auto out = comm.allocate(1000);
    stand_in().delay_copies(never);
    comm.barrier();
    {
      kernel_end net(device_comm->get(), contexts);
      net.put(static_cast<std::uint32_t>(1 - comm.rank()), out.window(), in.window(), 1000, 1);
      net.wait(net.layout().consumed(), 1);
    }
    const bool ended = ends_within(15s, [&] { device_comm.reset(); });
    require(ended, "it ends");
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a copy that the driver refuses ends the waits of its rank, and nothing is left behind") {
  const std::string call = GENERATE("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamWriteValue64");
  CAPTURE(call);
  const auto ends = on_stand_in(1, 1, [&](auto bootstrap) {
    {
      host::communicator comm(std::move(bootstrap));
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
      const auto device_comm = comm.create_device_comm(needs);
      const auto both = comm.allocate(1000);
      stand_in().fail(call.c_str(), 1);
      kernel_end net(device_comm.get(), contexts);
      net.put(0, both.window(), both.window(), 500, 1);
      const failure_log& log = *device_comm.get().failures;
      for (int i = 0; i < 5000 && std::atomic_ref(const_cast<std::uint32_t&>(log.abort)).load() == 0; ++i) {
        std::this_thread::sleep_for(1ms);
      }
      const std::string said = text_of<host::kernel_error>([&] { device_comm.check(); });
      require(said.find("the network's proxy failed: " + call + " failed") != std::string::npos, "check said: " + said);
      require(net.load(net.layout().signal(0)) == 0, "no signal comes");
    }
    require_nothing_held("at the end");
  });
  CHECK(ends == all_ok(1));
}
