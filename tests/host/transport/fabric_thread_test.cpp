// The proxy's thread: that it ends, also where the fabric does not let it.
#include <device/backend.hpp>
#include <rank/settings.hpp>
#include <transport/fabric_thread.hpp>
#include <transport/shared_file.hpp>

#include "fake_fabric.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace devcomm;
using namespace devcomm::host::detail;
using namespace devcomm_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

struct no_region final : fabric_region {
  [[nodiscard]] std::uint64_t key() const override { return 0; }
  [[nodiscard]] std::uint64_t base() const override { return 0; }
};

/// Calls `poll` for ever once it is told to; what it does otherwise is nothing.
class stuck_fabric final : public fabric {
 public:
  explicit stuck_fabric(const std::atomic<bool>& stuck) : stuck_(stuck) {}
  [[nodiscard]] std::string name() const override { return "a fabric that sticks"; }
  [[nodiscard]] fabric_address address() const override { return {}; }
  void connect(std::span<const fabric_address>) override {}
  [[nodiscard]] host::capability to_devices() const override { return {}; }
  [[nodiscard]] std::unique_ptr<fabric_region> add_memory(char*, std::size_t, std::optional<int>) override {
    return std::make_unique<no_region>();
  }
  [[nodiscard]] std::unique_ptr<fabric_region> add_buffers(std::span<std::byte>) override {
    return std::make_unique<no_region>();
  }
  [[nodiscard]] bool names_writes() const override { return true; }
  [[nodiscard]] std::uint64_t largest_transfer() const override { return 1; }
  [[nodiscard]] std::uint64_t largest_message() const override { return 1 << 20; }
  [[nodiscard]] std::string text_of(int) const override { return {}; }
  [[nodiscard]] bool send(int, std::span<const std::byte>, const fabric_region&, std::uint64_t) override {
    return false;
  }
  [[nodiscard]] bool receive(std::span<std::byte>, const fabric_region&, std::uint64_t) override { return true; }
  [[nodiscard]] bool write(int, std::span<const char>, const fabric_region&, remote_address, std::uint64_t,
                           std::optional<std::uint32_t>) override {
    return false;
  }
  [[nodiscard]] bool read(int, std::span<char>, const fabric_region&, remote_address, std::uint64_t) override {
    return false;
  }
  [[nodiscard]] std::size_t poll(std::span<fabric_completion>) override {
    while (stuck_) std::this_thread::sleep_for(1ms);
    return 0;
  }

 private:
  const std::atomic<bool>& stuck_;
};

/// Fails once it is told to.
class failing_fabric final : public fabric {
 public:
  failing_fabric(const std::atomic<bool>& fails, std::atomic<bool>& closed) : fails_(fails), closed_(closed) {}
  ~failing_fabric() override { closed_ = true; }
  [[nodiscard]] std::string name() const override { return "a fabric that fails"; }
  [[nodiscard]] fabric_address address() const override { return {}; }
  void connect(std::span<const fabric_address>) override {}
  [[nodiscard]] host::capability to_devices() const override { return {}; }
  [[nodiscard]] std::unique_ptr<fabric_region> add_memory(char*, std::size_t, std::optional<int>) override {
    return std::make_unique<no_region>();
  }
  [[nodiscard]] std::unique_ptr<fabric_region> add_buffers(std::span<std::byte>) override {
    return std::make_unique<no_region>();
  }
  [[nodiscard]] bool names_writes() const override { return true; }
  [[nodiscard]] std::uint64_t largest_transfer() const override { return 1; }
  [[nodiscard]] std::uint64_t largest_message() const override { return 1 << 20; }
  [[nodiscard]] std::string text_of(int) const override { return {}; }
  [[nodiscard]] bool send(int, std::span<const std::byte>, const fabric_region&, std::uint64_t) override {
    return false;
  }
  [[nodiscard]] bool receive(std::span<std::byte>, const fabric_region&, std::uint64_t) override { return true; }
  [[nodiscard]] bool write(int, std::span<const char>, const fabric_region&, remote_address, std::uint64_t,
                           std::optional<std::uint32_t>) override {
    return false;
  }
  [[nodiscard]] bool read(int, std::span<char>, const fabric_region&, remote_address, std::uint64_t) override {
    return false;
  }
  [[nodiscard]] std::size_t poll(std::span<fabric_completion>) override {
    if (fails_) throw host::system_error("the endpoint is in a bad state");
    return 0;
  }

 private:
  const std::atomic<bool>& fails_;
  std::atomic<bool>& closed_;
};

network_request one_context() {
  network_request asked{};
  asked.contexts = 1;
  asked.peers = 2;
  asked.depth = 4;
  return asked;
}

/// A thread that serves a device communicator.
struct served {
  served(const std::shared_ptr<window_table>& windows, std::unique_ptr<fabric> reached, std::chrono::milliseconds limit,
         const std::function<void(const std::string&)>& fail, const std::function<bool()>& ended)
      : thread(current_backend(), {0, 0, {}, 2, false}, windows, std::move(reached)) {
    thread.connect({thread.own_card(), {}}, limit);
    service = thread.serve({0, one_context(), 0, limit, fail, false, ended});
  }
  ~served() { thread.end(service); }
  served(const served&) = delete;
  served& operator=(const served&) = delete;

  fabric_thread thread;
  std::shared_ptr<fabric_thread::service> service;
};

constexpr auto nobody_is_told = [](const std::string&) {};
constexpr auto never = [] { return false; };

}  // namespace

TEST_CASE("a proxy ends although its fabric does not come back, and so do windows, once no kernel waits") {
  static std::atomic<bool> stuck = false;  // outlives the thread that is left
  static std::atomic<bool> ended = false;
  const auto windows = std::make_shared<window_table>();
  std::vector<char> memory(64);
  auto listing = windows->list(1, {memory.data(), memory.size(), "window 'test'"});
  auto proxy = std::make_unique<served>(windows, std::make_unique<stuck_fabric>(stuck), 10s, nobody_is_told,
                                        [] { return ended.load(); });
  stuck = true;
  std::this_thread::sleep_for(20ms);
  ended = true;  // a peer was lost
  const auto begun = std::chrono::steady_clock::now();
  listing.reset();
  proxy.reset();
  CHECK(std::chrono::steady_clock::now() - begun < 10s);
  CHECK(windows.use_count() > 1);  // the thread keeps what it uses
  stuck = false;
  for (int i = 0; i < 500 && windows.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  CHECK(windows.use_count() == 1);
}

TEST_CASE("freeing a window ends although the fabric does not come back, and fails the device communicator by name") {
  static std::atomic<bool> stuck = false;  // outlives the thread that is left
  static std::string failure;
  const auto windows = std::make_shared<window_table>();
  std::vector<char> memory(64);
  auto listing = windows->list(1, {memory.data(), memory.size(), "window 'test'"});
  auto proxy = std::make_unique<served>(
      windows, std::make_unique<stuck_fabric>(stuck), 2100ms, [](const std::string& text) { failure = text; },
      never);  // nobody has been told
  stuck = true;
  std::this_thread::sleep_for(20ms);
  const auto begun = std::chrono::steady_clock::now();
  listing.reset();
  CHECK(std::chrono::steady_clock::now() - begun < 10s);
  CHECK_THAT(failure, ContainsSubstring("rank 0: window 1 is freed, and a fabric that sticks has not come back from a "
                                        "call for 2100 ms"));
  stuck = false;
  proxy.reset();  // of a thread that came back
  CHECK(windows.use_count() == 1);
}

TEST_CASE("a fabric that fails is closed at once, so that peers learn of it, and the rank's waits end") {
  std::atomic<bool> fails = false;
  std::atomic<bool> closed = false;
  std::mutex mutex;
  std::string failure;
  const auto windows = std::make_shared<window_table>();
  std::vector<char> memory(64);
  auto listing = windows->list(1, {memory.data(), memory.size(), "window 'test'"});
  auto proxy = std::make_unique<served>(
      windows, std::make_unique<failing_fabric>(fails, closed), 10s,
      [&](const std::string& text) {
        const std::lock_guard lock(mutex);
        failure = text;
      },
      never);
  std::this_thread::sleep_for(5ms);
  CHECK(!closed);
  fails = true;
  for (int i = 0; i < 500 && !closed; ++i) std::this_thread::sleep_for(10ms);
  CHECK(closed);
  {
    const std::lock_guard lock(mutex);
    CHECK_THAT(failure, ContainsSubstring("rank 0: the network's proxy failed: the endpoint is in a bad state"));
  }
  CHECK_THROWS_WITH(
      proxy->thread.serve({1, one_context(), 0, 10s, nobody_is_told, false, never}),
      ContainsSubstring("the network of this communicator has been closed by an earlier failure; make a new "
                        "communicator"));
  listing.reset();
  proxy.reset();
  CHECK(windows.use_count() == 1);
}

TEST_CASE("device communicators come and go beside one that stays, and windows outlive the thread") {
  static std::atomic<bool> sticks_never = false;
  const auto windows = std::make_shared<window_table>();
  std::vector<char> memory(64);
  auto listing = windows->list(1, {memory.data(), memory.size(), "window 'test'"});
  auto proxy =
      std::make_unique<served>(windows, std::make_unique<stuck_fabric>(sticks_never), 10s, nobody_is_told, never);
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint32_t number = 1; number < 20; ++number) {
    const auto other = proxy->thread.serve({number, one_context(), 0, 10s, nobody_is_told, false, never});
    CHECK(fabric_thread::queues_of(*other).size() == 1);
    proxy->thread.end(other);
  }
  CHECK(std::chrono::steady_clock::now() - begun < 2s);
  proxy.reset();
  listing.reset();  // of which no thread hears any more
  CHECK(windows.use_count() == 1);
}

TEST_CASE("a proxy's thread takes no signals, and ends at once where nothing was posted") {
  fake_network net(1);
  const auto windows = std::make_shared<window_table>();
  static std::atomic<bool> sticks_never = false;
  auto proxy =
      std::make_unique<served>(windows, std::make_unique<stuck_fabric>(sticks_never), 10s, nobody_is_told, never);
  // Blocked in this thread too, a signal to the process stays pending: no thread takes it.
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &one, nullptr) == 0);
  static std::atomic<bool> taken = false;
  struct sigaction action {};
  action.sa_handler = [](int) { taken = true; };
  REQUIRE(::sigaction(SIGUSR2, &action, nullptr) == 0);
  REQUIRE(::kill(::getpid(), SIGUSR2) == 0);
  std::this_thread::sleep_for(50ms);
  CHECK(!taken);
  const timespec at_once{};
  CHECK(::sigtimedwait(&one, nullptr, &at_once) == SIGUSR2);
  const auto begun = std::chrono::steady_clock::now();
  proxy.reset();
  CHECK(std::chrono::steady_clock::now() - begun < 1s);
}

// 2 ranks on 16 processors, as for which four were measured; many ranks on few.
static_assert(default_proxies(16, 2) == 4 && default_proxies(64, 8) == 4 && default_proxies(256, 8) == 4);
static_assert(default_proxies(12, 2) == 3 && default_proxies(8, 2) == 2 && default_proxies(6, 2) == 1);
static_assert(default_proxies(2, 2) == 1 && default_proxies(1, 8) == 1);

TEST_CASE("files that killed processes have left in /dev/shm are deleted, and no others") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / name_of_shared_file();
  std::filesystem::create_directory(folder);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const std::string of_dead = start_of_shared_files() + std::to_string(child) + "-7";
  const std::string kept[] = {name_of_shared_file(), "devcomm-1-" + std::to_string(child) + "-7",
                              start_of_shared_files() + "x", "another"};
  for (const std::string& name : kept) std::ofstream(folder / name) << "data";
  std::ofstream(folder / of_dead) << "data";
  sweep_shared_files(folder);
  for (const std::string& name : kept) CHECK(std::filesystem::exists(folder / name));
  CHECK(!std::filesystem::exists(folder / of_dead));
  sweep_shared_files(folder / "no such folder");
  std::filesystem::remove_all(folder);
}
