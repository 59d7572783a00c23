// Secrets of jobs that launchers start.
#include "variable_table.hpp"

#include "bootstrap/launcher_secret.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>

using namespace devcomm_test;
namespace host = devcomm::host;
namespace detail = devcomm::host::detail;

namespace {

/// Gone with its content at the end.
class folder {
 public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "devcomm-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  [[nodiscard]] std::string key_file() const { return path + "/devcomm-" + std::to_string(::geteuid()) + ".key"; }

  std::string path;
};

const table outside = {{"DEVCOMM_RANK", "2"}, {"DEVCOMM_SIZE", "4"}, {"DEVCOMM_ROOT", "10.0.0.1:4000"}};
const table inside = with(outside, {{"DEVCOMM_ROOT", "127.0.0.1:4000"}});
const table torchrun = {{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", "0"},
                        {"MASTER_ADDR", "n1"},
                        {"MASTER_PORT", "29500"},
                        {"LOCAL_WORLD_SIZE", "1"},
                        {"TORCHELASTIC_RUN_ID", "none"}};
const table mpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"DEVCOMM_ROOT", "n1:9"},
                      {"PMIX_NAMESPACE", "1234567"},
                      {"OMPI_MCA_orte_precondition_transports", "c75d65765e76b875-14d5026f250602e8"}};
const table srun = {{"SLURM_PROCID", "1"},
                    {"SLURM_STEP_NUM_TASKS", "2"},
                    {"SLURM_STEP_NODELIST", "n[1-2]"},
                    {"SLURM_JOB_ID", "7"},
                    {"SLURM_STEP_ID", "0"}};

detail::launcher_secret chosen(const table& variables, const folder& keys) {
  const auto no_store = [](const detail::endpoint& store) -> detail::user_key {
    throw std::logic_error("a store is asked at " + detail::endpoint_text(store.host, store.port));
  };
  return detail::choose_secret(from(variables), read(variables), no_store, keys.path);
}

/// With a key in the store, and where it was asked.
detail::launcher_secret chosen_with_store(const table& variables, const folder& keys, std::byte key,
                                          std::string& address) {
  const auto store = [&](const detail::endpoint& place) {
    address = detail::endpoint_text(place.host, place.port);
    return detail::user_key{key};
  };
  return detail::choose_secret(from(variables), read(variables), store, keys.path);
}

}  // namespace

TEST_CASE("a given secret is taken, and a malformed one refused without being shown") {
  const folder keys;
  const auto given = chosen(with(outside, {{"DEVCOMM_SECRET", "00112233445566778899AABBccddeeff"}}), keys);
  CHECK(given.secret[15] == std::byte{0xff});
  CHECK(given.secret[10] == std::byte{0xaa});
  CHECK(given.warning.empty());
  for (const std::string bad : {"", "0011", "zz112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff0"}) {
    CAPTURE(bad);
    const outcome o = outcome_of([&] { static_cast<void>(chosen(with(outside, {{"DEVCOMM_SECRET", bad}}), keys)); });
    CHECK(o.kind == "invalid_argument");
    CHECK(o.says("DEVCOMM_SECRET"));
    CHECK((bad.empty() || !o.says(bad)));
  }
}

TEST_CASE("a secret that can be guessed is one for each job and comes with a warning") {
  const folder keys;
  for (const table& each : {outside, torchrun, srun, without(mpirun, "OMPI_MCA_orte_precondition_transports")}) {
    const auto one = chosen(each, keys);
    CHECK(one.warning.find("DEVCOMM_SECRET") != std::string::npos);
    CHECK(one.warning.find(read(each).root) != std::string::npos);
  }
  CHECK(chosen(outside, keys).secret == chosen(with(outside, {{"DEVCOMM_RANK", "0"}}), keys).secret);
  CHECK(chosen(outside, keys).secret == chosen(with(outside, {{"DEVCOMM_SIZE", "5"}}), keys).secret);
  CHECK(chosen(torchrun, keys).secret != chosen(with(torchrun, {{"TORCHELASTIC_RUN_ID", "x"}}), keys).secret);
  CHECK(chosen(srun, keys).secret != chosen(with(srun, {{"SLURM_JOB_ID", "8"}}), keys).secret);
  CHECK(std::filesystem::is_empty(keys.path));
}

TEST_CASE("a random key that the launcher gives all ranks makes the secret") {
  const folder keys;
  const auto one = chosen(mpirun, keys);
  CHECK(one.warning.empty());
  CHECK(one.secret == chosen(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}), keys).secret);
  CHECK(one.secret !=
        chosen(with(mpirun, {{"OMPI_MCA_orte_precondition_transports", "c75d65765e76b875-14d5026f250602e9"}}), keys)
            .secret);
  CHECK(one.secret != chosen(with(mpirun, {{"PMIX_NAMESPACE", "x"}}), keys).secret);
  CHECK(chosen(with(srun, {{"PMI_SHARED_SECRET", "8273645"}}), keys).warning.empty());
  // One that another launcher left is not the job's.
  CHECK_FALSE(chosen(with(torchrun, {{"PMI_SHARED_SECRET", "8273645"}}), keys).warning.empty());
}

TEST_CASE("numbers of a job in the place of a random key do not pass for one") {
  const folder keys;
  // Slurm's number of the job, the numbers that Open MPI's library takes where mpirun has set none, and what is no key.
  for (const std::string key :
       {"0107632700000000-0107632700000000", "0000000000009c43-0000000000000001", "0000000000000000-0000000000000000",
        "c75d65765e76b875-c75d65765e76b875", "c75d65765e76b875", "c75d65765e76b875_14d5026f250602e8",
        "c75d65765e76b87x-14d5026f250602e8", "none", ""}) {
    CAPTURE(key);
    const table counted = with(mpirun, {{"OMPI_MCA_orte_precondition_transports", key}});
    CHECK(chosen(counted, keys).warning.find("(mpirun)") != std::string::npos);
    CHECK(chosen(with(counted, {{"DEVCOMM_ROOT", "127.0.0.1:9"}}), keys).warning.empty());
  }
}

TEST_CASE("PMIx takes part in no secret: with its variables too a warning says what to export") {
  const folder keys;
  const table pmix = {
      {"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}, {"PMIX_SERVER_URI4", "x;tcp4://127.0.0.1:1"}};
  const auto one = chosen(with(srun, pmix), keys);
  CHECK(one.secret == chosen(srun, keys).secret);
  CHECK(one.warning.find("export DEVCOMM_SECRET=$(openssl rand -hex 16)") != std::string::npos);
  CHECK(chosen(with(mpirun, pmix), keys).warning.empty());
}

TEST_CASE("torchrun on several hosts has the secret from its store, where it has one") {
  const folder keys;
  const table stored = with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  std::string address;
  const auto one = chosen_with_store(stored, keys, std::byte{1}, address);
  CHECK(address == "n1:29500");
  CHECK(one.warning.empty());
  CHECK(one.secret != chosen(torchrun, keys).secret);
  CHECK(one.secret == chosen_with_store(with(stored, {{"RANK", "0"}}), keys, std::byte{1}, address).secret);
  CHECK(one.secret != chosen_with_store(stored, keys, std::byte{2}, address).secret);
  // Jobs that share a store.
  const table another = with(stored, {{"TORCHELASTIC_RUN_ID", "x"}});
  CHECK(one.secret != chosen_with_store(another, keys, std::byte{1}, address).secret);
  const table elsewhere = with(stored, {{"DEVCOMM_ROOT", "n2:9"}, {"MASTER_ADDR", "::1"}});
  CHECK(chosen_with_store(elsewhere, keys, std::byte{1}, address).warning.empty());
  CHECK(address == "[::1]:29500");

  // Nobody listens yet where rank 0 of torch.distributed makes the store.
  for (const std::string none : {"False", "", "1", "true"}) {
    CAPTURE(none);
    CHECK_FALSE(chosen(with(stored, {{"TORCHELASTIC_USE_AGENT_STORE", none}}), keys).warning.empty());
  }
  CHECK(std::filesystem::is_empty(keys.path));
  // Other sources go first, and other launchers do not ask a store that torchrun left.
  CHECK(chosen(with(stored, {{"DEVCOMM_SECRET", "00112233445566778899aabbccddeeff"}}), keys).warning.empty());
  CHECK(chosen(with(stored, {{"WORLD_SIZE", "1"}, {"RANK", "0"}}), keys).warning.empty());
  CHECK(chosen(with(stored, {{"LOCAL_WORLD_SIZE", "2"}}), keys).warning.empty());
  CHECK(chosen(with(inside, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), keys).warning.empty());
  CHECK_FALSE(chosen(with(srun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), keys).warning.empty());
}

TEST_CASE("torchrun's ranks have one secret however each host names that of rank 0") {
  const folder keys;
  std::string address;
  const table stored = with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const auto named = chosen(torchrun, keys);
  const auto kept = chosen_with_store(stored, keys, std::byte{1}, address);
  for (const std::string name : {"localhost", "127.0.0.1", "n1.cluster"}) {
    for (const std::string rank : {"0", "1"}) {
      CAPTURE(name, rank);
      const table other = {{"MASTER_ADDR", name}, {"RANK", rank}};
      CHECK(chosen(with(torchrun, other), keys).secret == named.secret);
      CHECK_FALSE(chosen(with(torchrun, other), keys).warning.empty());
      CHECK(chosen_with_store(with(stored, other), keys, std::byte{1}, address).secret == kept.secret);
      CHECK(address == name + ":29500");
    }
  }
  CHECK(std::filesystem::is_empty(keys.path));
}

TEST_CASE("on one host the secret comes from a file that only its user can read") {
  const folder keys;
  const auto one = chosen(inside, keys);
  CHECK(one.warning.empty());
  struct stat facts {};
  REQUIRE(::stat(keys.key_file().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  CHECK(facts.st_uid == ::geteuid());
  CHECK(chosen(with(inside, {{"DEVCOMM_RANK", "0"}}), keys).secret == one.secret);
  CHECK(chosen(with(inside, {{"DEVCOMM_ROOT", "127.0.0.1:4001"}}), keys).secret != one.secret);
  for (const std::string address : {"[::1]:4000", "localhost:4000"}) {
    const auto alike = chosen(with(inside, {{"DEVCOMM_ROOT", address}}), keys);
    CHECK(alike.warning.empty());
    CHECK(alike.secret == one.secret);
  }
  const folder others;
  CHECK(chosen(inside, others).secret != one.secret);  // random
  // Nothing but the key is left.
  CHECK(std::distance(std::filesystem::directory_iterator(keys.path), {}) == 1);
}

TEST_CASE("a single rank has a secret that nobody else knows") {
  const folder keys;
  const table alone = {{"DEVCOMM_RANK", "0"}, {"DEVCOMM_SIZE", "1"}};
  CHECK(chosen(alone, keys).secret != chosen(alone, keys).secret);
  CHECK(std::filesystem::is_empty(keys.path));
}

TEST_CASE("ranks that make the key at the same moment agree on one") {
  for (int round = 0; round < 20; ++round) {
    const folder keys;
    std::mutex mutex;
    std::set<detail::user_key> seen;
    const auto outcomes = on_threads(8, [&](int) {
      const auto key = detail::key_of_user(keys.path);
      const std::lock_guard lock(mutex);
      seen.insert(key);
    });
    REQUIRE(first_failure(outcomes) == "");
    REQUIRE(seen.size() == 1);
    REQUIRE(std::distance(std::filesystem::directory_iterator(keys.path), {}) == 1);
  }
}

TEST_CASE("a key that others can read, planted or cut short is refused by name") {
  const folder keys;
  const auto why = [&] {
    const outcome o = outcome_of([&] { static_cast<void>(detail::key_of_user(keys.path)); });
    CHECK(o.kind == "system_error");
    CHECK(o.says(keys.key_file()));
    CHECK(o.says("DEVCOMM_SECRET"));
    return o.text;
  };
  SECTION("open to other users") {
    static_cast<void>(detail::key_of_user(keys.path));
    REQUIRE(::chmod(keys.key_file().c_str(), 0640) == 0);
    CHECK(why().find("open to other users") != std::string::npos);
  }
  SECTION("a link to somewhere else") {
    std::ofstream(keys.path + "/elsewhere") << std::string(32, 'x');
    std::filesystem::create_symlink(keys.path + "/elsewhere", keys.key_file());
    CHECK(why().find("cannot be read") != std::string::npos);
  }
  SECTION("another user's") {
    if (::geteuid() != 0) SKIP("only root gives files away");
    static_cast<void>(detail::key_of_user(keys.path));
    REQUIRE(::chown(keys.key_file().c_str(), 12345, 12345) == 0);
    CHECK(why().find("made by user 12345") != std::string::npos);
  }
  SECTION("empty") {
    std::ofstream(keys.key_file()).flush();
    REQUIRE(::chmod(keys.key_file().c_str(), 0600) == 0);
    CHECK(why().find("does not hold a key") != std::string::npos);
  }
  SECTION("in a folder that is not there") {
    std::filesystem::remove_all(keys.path);
    CHECK(why().find("cannot be made") != std::string::npos);
  }
}
