// Secrets of jobs that torchrun starts on several hosts, from torchrun's store.
#include "many_addresses.hpp"
#include "stand_in_store.hpp"
#include "variable_table.hpp"

#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/torch_store.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>

using namespace devcomm_test;
namespace host = devcomm::host;
namespace detail = devcomm::host::detail;

namespace {

/// 127.0.0.1, in a spelling that start-up takes for an address that other hosts reach.
const std::string other_host = "0x7f000001";

detail::store_key key_in(const stand_in_store& store, std::chrono::milliseconds limit = 20s) {
  return detail::key_in_torch_store({"127.0.0.1", store.port()}, detail::random_value<detail::store_key>(), "call",
                                    detail::deadline(limit));
}

/// What `torchrun --nnodes=RANKS --nproc-per-node=1` sets.
void set_torchrun_variables(int rank, int ranks, const stand_in_store& store) {
  for (const char* const name : {"DEVCOMM_RANK", "DEVCOMM_SIZE", "DEVCOMM_ROOT", "DEVCOMM_SECRET", "DEVCOMM_PORTS"}) {
    ::unsetenv(name);
  }
  const table variables = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(ranks)},
                           {"LOCAL_RANK", "0"},
                           {"LOCAL_WORLD_SIZE", "1"},
                           {"MASTER_ADDR", other_host},
                           {"MASTER_PORT", std::to_string(store.port())},
                           {"TORCHELASTIC_RUN_ID", "none"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

/// What `body` writes to stderr.
template <class Body>
std::string stderr_of(const Body& body) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr || ::dup2(::fileno(file), STDERR_FILENO) < 0) throw std::runtime_error("cannot redirect stderr");
  body();
  std::rewind(file);
  std::array<char, 4096> text;
  const std::size_t bytes = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  return {text.data(), bytes};
}

}  // namespace

TEST_CASE("all who ask torchrun's store get one random key, however slowly it comes") {
  const auto kind = GENERATE(store_kind::honest, store_kind::trickling, store_kind::cut_once, store_kind::late,
                             store_kind::cut_at_first);
  CAPTURE(to_string(kind));
  const stand_in_store store(kind);
  std::array<detail::store_key, 6> keys{};
  const auto outcomes = on_threads(6, [&](int rank) { keys[static_cast<std::size_t>(rank)] = key_in(store); });
  REQUIRE(first_failure(outcomes) == "");
  CHECK(std::set(keys.begin(), keys.end()).size() == 1);
  CHECK(key_in(store) == keys[0]);
  CHECK(key_in(stand_in_store(store_kind::honest)) != keys[0]);
}

TEST_CASE("a store is found at each of the addresses of its host, whatever the others do") {
  struct course {
    const char* first;  ///< address of the name that is tried first
    const char* store;
    bool silent;  ///< somebody takes connections at the first one, and says nothing
  };
  const auto one =
      GENERATE(course{"127.0.0.1", "::1", false}, course{"127.0.0.2", "127.0.0.1", true}, course{"::1", "::1", false});
  CAPTURE(one.first, one.store, one.silent);
  const stand_in_store store(store_kind::honest, one.store);
  detail::unique_fd beside;
  if (one.silent) {
    beside = detail::bind_for(one.first, store.port(), "test");
    REQUIRE(::listen(beside.get(), 64) == 0);
  }
  const host_with_addresses named({one.first, one.store});
  const auto mine = detail::random_value<detail::store_key>();
  const outcome o = outcome_of([&] {
    const detail::endpoint place{host_with_addresses::name(), store.port()};
    if (detail::key_in_torch_store(place, mine, "call", detail::deadline(15s)) != mine) throw std::runtime_error("key");
  });
  CAPTURE(o.text);
  CHECK(o.ok());
  CHECK(o.took < 7s);
}

TEST_CASE("the rank that asks torchrun's store first gives the key") {
  const stand_in_store store(store_kind::honest);
  const auto mine = detail::random_value<detail::store_key>();
  CHECK(detail::key_in_torch_store({"localhost", store.port()}, mine, "call", detail::deadline(20s)) == mine);
  CHECK(key_in(store) == mine);
}

TEST_CASE("a store that cannot be reached or is silent is given up at the limit") {
  const auto kind = GENERATE(store_kind::absent, store_kind::silent);
  CAPTURE(to_string(kind));
  const stand_in_store store(kind);
  const outcome o = outcome_of([&] { static_cast<void>(key_in(store, 300ms)); });
  CAPTURE(o.text);
  CHECK(o.kind == "timeout_error");
  CHECK(o.took >= 300ms);
  CHECK(o.says("call: torchrun's store at 127.0.0.1:" + std::to_string(store.port()) + " (MASTER_ADDR, MASTER_PORT)"));
  CHECK(o.says(kind == store_kind::absent ? "cannot be reached: Connection refused" : "gives no answer"));
  CHECK(o.says("(for 300 ms)"));
  CHECK(o.says("set DEVCOMM_SECRET"));
}

TEST_CASE("a store that answers otherwise than torch's is refused soon and by name") {
  const auto kind = GENERATE(store_kind::old, store_kind::cut_always, store_kind::wrong_number, store_kind::greeting,
                             store_kind::short_value, store_kind::endless_value);
  CAPTURE(to_string(kind));
  const stand_in_store store(kind);
  const outcome o = outcome_of([&] { static_cast<void>(key_in(store, 60s)); });
  CAPTURE(o.text);
  CHECK(o.kind == "not_supported");
  CHECK(o.took < 30s);
  CHECK(o.says("set DEVCOMM_SECRET"));
  const bool cut = kind == store_kind::old || kind == store_kind::cut_always;
  const bool value = kind == store_kind::short_value || kind == store_kind::endless_value;
  CHECK(o.says(cut     ? "ends the connection without an answer"
               : value ? "has something under the name devcomm/key that is no key"
                       : "answers as no such store does"));
}

TEST_CASE("a store before torch 2.5 is named as such where its host has another address, at which nobody listens") {
  const stand_in_store store(store_kind::old, "127.0.0.1");
  const host_with_addresses named({"127.0.0.1", "::1"});
  const outcome o = outcome_of([&] {
    const detail::endpoint place{host_with_addresses::name(), store.port()};
    static_cast<void>(
        detail::key_in_torch_store(place, detail::random_value<detail::store_key>(), "call", detail::deadline(45s)));
  });
  CAPTURE(o.text);
  CHECK(o.kind == "not_supported");
  CHECK(o.says("as one before torch 2.5 does"));
}

TEST_CASE("ranks of torchrun on several hosts start with a secret from its store, and again") {
  const stand_in_store store(GENERATE(store_kind::honest, store_kind::trickling));
  constexpr int ranks = 3;
  const auto outcomes = on_processes(ranks, [&](int rank) {
    set_torchrun_variables(rank, ranks, store);
    const std::string said = stderr_of([&] {
      for (unsigned round = 0; round < 2; ++round) gather_and_check(*host::environment_bootstrap(20s), 10, round);
    });
    if (said.find("guess") != std::string::npos) throw std::runtime_error(said);
  });
  CHECK(first_failure(outcomes) == "");
  CHECK(store.asked() == 2 * ranks);
}

TEST_CASE("ranks of torchrun join where each host has a name of its own for that of rank 0") {
  const std::string agent_store = GENERATE("True", "False");
  CAPTURE(agent_store);
  const stand_in_store store(store_kind::honest);
  const auto outcomes = on_processes(3, [&](int rank) {
    set_torchrun_variables(rank, 3, store);
    ::setenv("MASTER_ADDR", rank < 2 ? "localhost" : other_host.c_str(), 1);
    ::setenv("TORCHELASTIC_USE_AGENT_STORE", agent_store.c_str(), 1);
    gather_and_check(*host::environment_bootstrap(20s), 10, 1);
  });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("where torchrun's store fails all ranks fail, and none takes a secret that can be guessed") {
  const stand_in_store store(
      GENERATE(store_kind::absent, store_kind::silent, store_kind::old, store_kind::short_value));
  const auto outcomes = on_processes(2, [&](int rank) {
    set_torchrun_variables(rank, 2, store);
    static_cast<void>(host::environment_bootstrap(500ms));
  });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    CAPTURE(outcomes[rank].text);
    CHECK((outcomes[rank].kind == "timeout_error" || outcomes[rank].kind == "not_supported"));
    CHECK(outcomes[rank].says("environment_bootstrap on rank " + std::to_string(rank) + " of 2: torchrun's store"));
    CHECK(outcomes[rank].says("set DEVCOMM_SECRET"));
  }
}

TEST_CASE("with DEVCOMM_SECRET torchrun's store is not asked") {
  const stand_in_store store(store_kind::silent);
  const auto outcomes = on_processes(2, [&](int rank) {
    set_torchrun_variables(rank, 2, store);
    ::setenv("DEVCOMM_SECRET", "00112233445566778899aabbccddeeff", 1);
    gather_and_check(*host::environment_bootstrap(20s), 10, 1);
  });
  CHECK(first_failure(outcomes) == "");
}
