// What launchers set, read from tables instead of the process's environment.
#include "job_harness.hpp"
#include "variable_table.hpp"

#include "bootstrap/ports.hpp"
#include "bootstrap/slurm.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstdlib>

#include <unistd.h>

using namespace devcomm_test;
namespace host = devcomm::host;
namespace detail = devcomm::host::detail;

namespace {

const table shell = {{"DEVCOMM_RANK", "2"}, {"DEVCOMM_SIZE", "4"}, {"DEVCOMM_ROOT", "10.0.0.1:4000"}};
const table torchrun = {{"RANK", "9"},
                        {"WORLD_SIZE", "16"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "8"},
                        {"MASTER_ADDR", "node0"},
                        {"MASTER_PORT", "29500"},
                        {"TORCHELASTIC_RUN_ID", "none"}};
const table mpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "1234567"}};
const table srun = {{"SLURM_PROCID", "5"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_STEP_NUM_TASKS", "7"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_NODEID", "1"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                    {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                    {"SLURM_JOB_ID", "77"},
                    {"SLURM_STEP_ID", "0"}};

std::uint16_t port_in(const std::string& root) { return detail::parse_endpoint(root, "root").port; }

}  // namespace

TEST_CASE("without a launcher's variables there is no launcher") {
  CHECK_FALSE(detail::read_launcher(from({})));
  CHECK_FALSE(detail::read_launcher(from({{"DEVCOMM_ROOT", "a:1"}, {"MASTER_ADDR", "x"}})));
  // RANK alone is a name for many things, and the script of sbatch is no step.
  CHECK_FALSE(detail::read_launcher(from({{"RANK", "1"}})));
  CHECK_FALSE(detail::read_launcher(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}})));
}

TEST_CASE("a plain shell gives rank, size and root") {
  const auto p = read(shell);
  CHECK(p.launcher == "shell");
  CHECK(p.rank == 2);
  CHECK(p.size == 4);
  CHECK(p.root == "10.0.0.1:4000");
  const auto local = read(with(shell, {{"DEVCOMM_LOCAL_RANK", "1"}, {"DEVCOMM_LOCAL_SIZE", "2"}}));
  CHECK(local.local_rank == 1);
  CHECK(local.local_size == 2);
  CHECK(read(with(shell, {{"DEVCOMM_ROOT", "[::1]:80"}})).root == "[::1]:80");
}

TEST_CASE("one rank of a plain shell needs no root") {
  const auto p = read({{"DEVCOMM_RANK", "0"}, {"DEVCOMM_SIZE", "1"}});
  CHECK(p.root.starts_with("127.0.0.1:"));
}

TEST_CASE("a plain shell's mistakes are named") {
  CHECK(why_refused(without(shell, "DEVCOMM_ROOT")).starts_with("DEVCOMM_ROOT is not set"));
  CHECK(why_refused(without(shell, "DEVCOMM_SIZE")).starts_with("DEVCOMM_SIZE is not set"));
  CHECK(why_refused(without(shell, "DEVCOMM_RANK")).starts_with("DEVCOMM_RANK is not set"));
  for (const std::string bad : {"", "-1", "4", "two", "1 ", "+1", "0x1", "99999999999"}) {
    CAPTURE(bad);
    CHECK(refuses(shell, "DEVCOMM_RANK", bad));
  }
  for (const std::string bad : {"0", "-4", "", "4.0", "1048577"}) {
    CAPTURE(bad);
    CHECK(refuses(shell, "DEVCOMM_SIZE", bad));
  }
  for (const std::string bad : {"", "host", "host:", "host:0", "host:70000", ":80", "::1:80", "a b:80"}) {
    CAPTURE(bad);
    CHECK(refuses(shell, "DEVCOMM_ROOT", bad));
  }
  CHECK(refuses(with(shell, {{"DEVCOMM_LOCAL_SIZE", "2"}}), "DEVCOMM_LOCAL_RANK", "2"));
  CHECK(refuses(shell, "DEVCOMM_LOCAL_SIZE", "5"));
}

TEST_CASE("torchrun's variables give all, and a port beside torch's own") {
  const auto p = read(torchrun);
  CHECK(p.launcher == "torchrun");
  CHECK(p.rank == 9);
  CHECK(p.size == 16);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 8);
  CHECK(p.root.starts_with("node0:"));
  CHECK(port_in(p.root) != 29500);
  // The same for all ranks of the job, another for another job.
  CHECK(read(with(torchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).root == p.root);
  CHECK(read(with(torchrun, {{"TORCHELASTIC_RUN_ID", "other"}})).root != p.root);
  CHECK(read(with(torchrun, {{"MASTER_ADDR", "::1"}})).root.starts_with("[::1]:"));
  CHECK(read(with(torchrun, {{"DEVCOMM_ROOT", "h:9"}})).root == "h:9");
}

TEST_CASE("each host may have a name of its own for that of torchrun's rank 0") {
  const auto p = read(torchrun);
  for (const std::string name : {"localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "127.1", "node0.cluster",
                                 "10.0.0.7", "127.cluster", "127host", "::ffff:10.0.0.7"}) {
    CAPTURE(name);
    const auto other = read(with(torchrun, {{"MASTER_ADDR", name}}));
    CHECK(port_in(other.root) == port_in(p.root));
    CHECK(other.job == p.job);
    // Other hosts do not reach its loopback interface.
    const auto root = read(with(torchrun, {{"MASTER_ADDR", name}, {"RANK", "0"}, {"LOCAL_RANK", "0"}})).root;
    const bool everywhere =
        name == "localhost" || name == "127.0.0.1" || name == "::1" || name == "::ffff:127.0.0.1" || name == "127.1";
    CHECK(root == (everywhere ? detail::endpoint_text("::", port_in(p.root)) : other.root));
  }
  const table given = with(torchrun, {{"DEVCOMM_ROOT", "localhost:9"}});
  CHECK(read(given).root == "localhost:9");
  CHECK(read(with(given, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).root == "localhost:9");  // as it was given
  // As far as is known, this is one host.
  for (const table& one : {with(torchrun, {{"LOCAL_WORLD_SIZE", "16"}}), without(torchrun, "LOCAL_WORLD_SIZE")}) {
    CHECK(read(with(one, {{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}})).root.find("::") ==
          std::string::npos);
  }
}

TEST_CASE("a loopback address in DEVCOMM_ROOT is refused where the launcher has several hosts") {
  const table mpi_hosts = with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  for (const table& each : {mpi_hosts, srun}) {
    for (const std::string root : {"localhost:9", "127.0.0.1:9", "127.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"}) {
      CAPTURE(root);
      const std::string why = why_refused(with(each, {{"DEVCOMM_ROOT", root}}));
      CHECK(why.starts_with("DEVCOMM_ROOT is \"" + root + "\"; expected"));
      CHECK(why.find("by which other hosts reach it") != std::string::npos);
    }
    for (const std::string root : {"h:9", "127host:9", "127.cluster:9", "[::ffff:10.0.0.7]:9"}) {
      CAPTURE(root);
      CHECK(read(with(each, {{"DEVCOMM_ROOT", root}})).root == root);
    }
  }
  CHECK(read(with(mpirun, {{"DEVCOMM_ROOT", "localhost:9"}})).root == "localhost:9");
}

TEST_CASE("torchrun's derived port is never torch's own") {
  for (int port = 20000; port <= 32767; ++port) {
    const table variables = with(torchrun, {{"MASTER_PORT", std::to_string(port)}});
    REQUIRE(port_in(read(variables).root) != port);
  }
}

TEST_CASE("torch's variables without local ones count as alone on the host") {
  const auto p = read(without(without(torchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"));
  CHECK(p.local_rank == 0);
  CHECK(p.local_size == 1);
}

TEST_CASE("torchrun's mistakes are named") {
  CHECK(why_refused(without(torchrun, "MASTER_ADDR")).starts_with("MASTER_ADDR is not set"));
  CHECK(why_refused(without(torchrun, "MASTER_PORT")).starts_with("MASTER_PORT is not set"));
  CHECK(refuses(torchrun, "MASTER_ADDR", "a b"));
  CHECK(refuses(torchrun, "MASTER_PORT", "0"));
  CHECK(refuses(torchrun, "RANK", "16"));
  CHECK(refuses(torchrun, "WORLD_SIZE", "many"));
  CHECK(refuses(torchrun, "LOCAL_RANK", "8"));
  CHECK(refuses(torchrun, "LOCAL_WORLD_SIZE", "17"));
  // The store is at these, wherever rank 0 listens.
  const table stored = with(torchrun, {{"DEVCOMM_ROOT", "h:9"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(read(stored).store == "node0:29500");
  CHECK(why_refused(without(stored, "MASTER_ADDR")).starts_with("MASTER_ADDR is not set"));
  CHECK(refuses(stored, "MASTER_PORT", "0"));
  CHECK(refuses(stored, "MASTER_ADDR", "a b"));
}

TEST_CASE("mpirun's variables give all on one host") {
  const auto p = read(mpirun);
  CHECK(p.launcher == "mpirun");
  CHECK(p.rank == 3);
  CHECK(p.size == 4);
  CHECK(p.local_rank == 3);
  CHECK(p.local_size == 4);
  CHECK(p.root.starts_with("127.0.0.1:"));
  CHECK(read(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}})).root == p.root);
  CHECK(read(with(mpirun, {{"PMIX_NAMESPACE", "7654321"}})).root != p.root);
  CHECK(
      read(with(without(mpirun, "PMIX_NAMESPACE"), {{"OMPI_MCA_ess_base_jobid", "5"}})).root.starts_with("127.0.0.1:"));
}

TEST_CASE("mpirun on several hosts asks for a root") {
  const table two_hosts = with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  CHECK(why_refused(two_hosts).starts_with("DEVCOMM_ROOT is not set, and mpirun started 4 ranks on more than one"));
  CHECK(read(with(two_hosts, {{"DEVCOMM_ROOT", "h:9"}})).root == "h:9");
  CHECK(why_refused(without(mpirun, "PMIX_NAMESPACE")).starts_with("DEVCOMM_ROOT is not set"));
  CHECK(why_refused(without(mpirun, "OMPI_COMM_WORLD_SIZE")).starts_with("OMPI_COMM_WORLD_SIZE is not set"));
  CHECK(refuses(mpirun, "OMPI_COMM_WORLD_RANK", "4"));
  CHECK(refuses(mpirun, "OMPI_COMM_WORLD_LOCAL_RANK", "x"));
}

TEST_CASE("srun's variables give all, and the first node is the root") {
  const auto p = read(srun);
  CHECK(p.launcher == "srun");
  CHECK(p.rank == 5);
  CHECK(p.size == 7);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 3);
  CHECK(p.root.starts_with("gpu07:"));
  CHECK(read(with(srun, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).root == p.root);
  CHECK(read(with(srun, {{"SLURM_STEP_ID", "1"}})).root != p.root);
  const auto one =
      read(with(srun, {{"SLURM_STEP_NODELIST", "gpu3"}, {"SLURM_STEP_TASKS_PER_NODE", "7"}, {"SLURM_NODEID", "0"}}));
  CHECK(one.root.starts_with("127.0.0.1:"));
  CHECK(one.local_size == 7);
  CHECK(read(with(srun, {{"DEVCOMM_ROOT", "h:9"}})).root == "h:9");
}

TEST_CASE("a step's own size goes before the allocation's") {
  CHECK(read(with(srun, {{"SLURM_NTASKS", "100"}})).size == 7);
  CHECK(read(without(srun, "SLURM_STEP_NUM_TASKS")).size == 7);
}

TEST_CASE("srun falls back to what older Slurms set") {
  const table old = without(srun, "SLURM_STEP_TASKS_PER_NODE");
  CHECK(read(with(old, {{"SLURM_NTASKS_PER_NODE", "4"}})).local_size == 4);
  CHECK(read(old).local_size == 7);
  const table no_list = without(srun, "SLURM_STEP_NODELIST");
  CHECK(read(with(no_list, {{"SLURM_JOB_NODELIST", "a,b"}})).root.starts_with("a:"));
  CHECK(read(with(no_list, {{"SLURM_LAUNCH_NODE_IPADDR", "10.1.1.1"}})).root.starts_with("10.1.1.1:"));
  CHECK(why_refused(no_list).starts_with("DEVCOMM_ROOT is not set"));
}

TEST_CASE("srun's mistakes are named") {
  CHECK(refuses(srun, "SLURM_PROCID", "7"));
  CHECK(refuses(srun, "SLURM_STEP_NUM_TASKS", "0"));
  CHECK(refuses(srun, "SLURM_NODEID", "2"));
  CHECK(refuses(srun, "SLURM_LOCALID", "3"));
  for (const std::string bad :
       {"", ",", "x", "0", "2(x", "2(x)", "2(x0)", "2(y3)", "1,,1", "1(x99999999)", "-1", "2)"}) {
    CAPTURE(bad);
    CHECK(refuses(srun, "SLURM_STEP_TASKS_PER_NODE", bad));
  }
  for (const std::string bad : {"", "gpu[", "gpu]", "gpu[[1]]", "gpu[1", "gpu[a-b]", "a b", "[", ","}) {
    CAPTURE(bad);
    CHECK(refuses(srun, "SLURM_STEP_NODELIST", bad));
  }
}

TEST_CASE("first_node reads Slurm's lists") {
  const struct {
    std::string list;
    std::string first;
  } cases[] = {{"a", "a"},
               {"a,b", "a"},
               {"gpu[1-3]", "gpu1"},
               {"gpu[007,009-011]", "gpu007"},
               {"gpu[3,1]-ib", "gpu3-ib"},
               {"rack[2-3]n[05-09]", "rack2n05"},
               {"login,gpu[1-2]", "login"},
               {"a.b-c_d[9]", "a.b-c_d9"}};
  for (const auto& c : cases) {
    CAPTURE(c.list);
    CHECK(detail::first_node(c.list, "X") == c.first);
  }
  CHECK(detail::single_node("gpu3"));
  CHECK_FALSE(detail::single_node("gpu[3-4]"));
  CHECK_FALSE(detail::single_node("a,b"));
}

TEST_CASE("tasks_per_node reads Slurm's lists") {
  CHECK(detail::tasks_per_node("4", "X") == std::vector<int>{4});
  CHECK(detail::tasks_per_node("2(x3),1", "X") == std::vector<int>{2, 2, 2, 1});
  CHECK(detail::tasks_per_node("1,2,3(x2)", "X") == std::vector<int>{1, 2, 3, 3});
}

TEST_CASE("the launcher closest to the process speaks for it") {
  CHECK(read(with(with(srun, mpirun), torchrun)).launcher == "torchrun");
  CHECK(read(with(srun, mpirun)).launcher == "mpirun");
  CHECK(read(with(with(srun, torchrun), shell)).launcher == "shell");
}

TEST_CASE("derived ports keep clear of the kernel's and the well-known ones") {
  for (int i = 0; i < 2000; ++i) {
    const std::uint16_t port = detail::port_of_job(std::to_string(i));
    REQUIRE(port >= 20000);
    REQUIRE(port <= 32767);
  }
}

TEST_CASE("DEVCOMM_PORTS has the derived ports, and is refused where it is no range") {
  for (const table& each : {torchrun, mpirun, srun, table{{"DEVCOMM_RANK", "0"}, {"DEVCOMM_SIZE", "1"}}}) {
    const std::uint16_t port = port_in(read(with(each, {{"DEVCOMM_PORTS", "40000-40003"}})).root);
    CHECK(port >= 40000);
    CHECK(port <= 40003);
    CHECK(port_in(read(with(each, {{"DEVCOMM_PORTS", "65535"}})).root) == 65535);
  }
  for (const std::string bad : {"", "-", "0", "1-", "-5", "5-4", "1-65536", "a-b", "1-2-3", "1 - 2"}) {
    CAPTURE(bad);
    CHECK(refuses(torchrun, "DEVCOMM_PORTS", bad));
  }
  // MASTER_PORT is torch's.
  CHECK(port_in(read(with(torchrun, {{"DEVCOMM_PORTS", "29500-29501"}})).root) == 29501);
  CHECK(refuses(torchrun, "DEVCOMM_PORTS", "29500-29500"));
}

TEST_CASE("torchrun on one host uses its loopback address") {
  CHECK(read(with(torchrun, {{"LOCAL_WORLD_SIZE", "16"}})).root.starts_with("127.0.0.1:"));
}

TEST_CASE("environment_bootstrap starts a job from the process's variables") {
  const auto outcomes = on_processes(3, [](int rank) {
    ::setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
    ::setenv("PMIX_NAMESPACE", std::to_string(::getppid()).c_str(), 1);
    if (!host::launched_by_environment()) throw std::runtime_error("not launched");
    // Twice: a program may make more than one.
    for (int i = 0; i < 2; ++i) {
      const auto job = host::environment_bootstrap(10s);
      if (job->rank() != rank || job->size() != 3) throw std::runtime_error("wrong place");
      gather_and_check(*job, 10, 1);
    }
  });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("processes that a plain shell started with different sizes are told both at once") {
  const host::unique_id place = host::unique_id::create();  // reserves the port
  const auto outcomes = on_processes(2, [&](int rank) {
    ::setenv("DEVCOMM_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("DEVCOMM_SIZE", rank == 0 ? "2" : "3", 1);
    ::setenv("DEVCOMM_ROOT", (place.host() + ":" + std::to_string(place.port())).c_str(), 1);
    ::unsetenv("DEVCOMM_SECRET");
    static_cast<void>(host::environment_bootstrap(20s));
  });
  for (const outcome& o : outcomes) {
    CAPTURE(o.text);
    CHECK(o.kind == "invalid_argument");
    CHECK(o.says("rank 1 of 3, but rank 0"));
    CHECK(o.says("start all ranks with one size"));
    CHECK(o.took < 3s);
  }
}

TEST_CASE("ranks of a plain shell that name the host of rank 0 differently join, or are told") {
  struct course {
    const char* root;   ///< host of DEVCOMM_ROOT on rank 0
    const char* other;  ///< and on rank 1
    const char* said;   ///< by rank 1
    const char* hint;   ///< of rank 0, which says more where no other host reaches it
  };
  // localhost in a spelling that start-up takes for a name by which other hosts reach it.
  const char* const from_outside = "LocalHost";
  const auto one = GENERATE_COPY(course{"127.0.0.1", "localhost", "", ""}, course{"0x7f000001", "localhost", "", ""},
                                 course{from_outside, "127.0.0.1", "as localhost", "it has another secret"},
                                 course{"localhost", from_outside, "as localhost", "the same DEVCOMM_ROOT"},
                                 course{"127.0.0.1", "127.0.0.2", "as localhost", "the same DEVCOMM_ROOT"});
  CAPTURE(one.root, one.other);
  const host::unique_id place = host::unique_id::create();  // reserves the port
  const auto outcomes = on_processes(2, [&](int rank) {
    ::setenv("DEVCOMM_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("DEVCOMM_SIZE", "2", 1);
    ::setenv("DEVCOMM_ROOT", ((rank == 0 ? one.root : one.other) + (":" + std::to_string(place.port()))).c_str(), 1);
    ::unsetenv("DEVCOMM_SECRET");
    gather_and_check(*host::environment_bootstrap(rank == 0 ? 8s : 7s), 10, 1);
  });
  const std::string said = one.said;
  if (said.empty()) {
    CHECK(first_failure(outcomes).empty());
    return;
  }
  CAPTURE(outcomes[0].text, outcomes[1].text);
  CHECK(outcomes[1].says("the same DEVCOMM_ROOT on all ranks"));
  CHECK(outcomes[1].says(said));
  CHECK(outcomes[0].says("waiting for rank 1 to join"));
  CHECK(outcomes[0].says(one.hint));
}

TEST_CASE("without a launcher environment_bootstrap says how to start") {
  const auto outcomes = on_processes(1, [](int) {
    for (const char* const name : {"DEVCOMM_RANK", "DEVCOMM_SIZE", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID"}) {
      ::unsetenv(name);
    }
    if (host::launched_by_environment()) throw std::runtime_error("launched");
    static_cast<void>(host::environment_bootstrap(1s));
  });
  CHECK(outcomes[0].kind == "invalid_argument");
  CHECK(outcomes[0].says("torchrun"));
}
