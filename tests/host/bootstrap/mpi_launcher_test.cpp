// MPICH's, Intel MPI's and HPE's launchers, and launchers that are not understood.
#include "variable_table.hpp"

#include "bootstrap/launching_process.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

using namespace devcomm_test;
namespace host = devcomm::host;
namespace detail = devcomm::host::detail;

namespace {

const table mpich = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};
const table pals = {{"PALS_RANKID", "3"}, {"PALS_LOCAL_RANKID", "3"}, {"PALS_APID", "5f3c"},   {"PALS_NODEID", "0"},
                    {"PMI_RANK", "3"},    {"PMI_SIZE", "4"},          {"PMI_LOCAL_RANK", "3"}, {"PMI_LOCAL_SIZE", "4"}};
const table slurm_task = {{"SLURM_PROCID", "1"},  {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                          {"SLURM_JOB_ID", "7"},  {"SLURM_NTASKS", "2"},  {"SLURM_STEP_NODELIST", "n[1-2]"}};

/// What `program`, run by a shell, prints, in lines.
std::vector<std::string> lines_of(const std::string& program) {
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(program.c_str(), "r"), close);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) text += static_cast<char>(c);
  std::istringstream all(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with("started by ")) lines.push_back(line);
  }
  return lines;
}

std::string own_path() {
  std::vector<char> path(4096);
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  REQUIRE(length > 0);
  return std::string(path.data(), static_cast<std::size_t>(length));
}

}  // namespace

TEST_CASE("the mpiexec of MPICH and Intel MPI gives all on one host") {
  const auto p = read(mpich);
  CHECK(p.launcher == "hydra");
  CHECK(p.rank == 2);
  CHECK(p.size == 4);
  CHECK(p.local_rank == 2);
  CHECK(p.local_size == 4);
  CHECK(p.root.starts_with("127.0.0.1:"));
  CHECK(read(with(mpich, {{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "0"}, {"PMI_FD", "8"}})).root == p.root);
}

TEST_CASE("the mpiexec of MPICH asks for a root on several hosts, and names mistakes") {
  const table two_hosts = with(mpich, {{"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}});
  CHECK(why_refused(two_hosts).starts_with("DEVCOMM_ROOT is not set, and hydra started 4 ranks on more than one"));
  CHECK(why_refused(two_hosts).find("-genv DEVCOMM_ROOT host:port") != std::string::npos);
  CHECK(read(with(two_hosts, {{"DEVCOMM_ROOT", "h:9"}})).root == "h:9");
  CHECK(refuses(mpich, "PMI_RANK", "4"));
  CHECK(refuses(mpich, "PMI_SIZE", "many"));
  CHECK(refuses(mpich, "MPI_LOCALRANKID", "4"));
}

TEST_CASE("PALS gives all on one host, and asks for a root on several") {
  const auto p = read(pals);
  CHECK(p.launcher == "pals");
  CHECK(p.rank == 3);
  CHECK(p.size == 4);
  CHECK(p.local_rank == 3);
  CHECK(p.local_size == 4);
  CHECK(p.root.starts_with("127.0.0.1:"));
  CHECK(read(with(pals, {{"PALS_APID", "5f3d"}})).root != p.root);
  CHECK(why_refused(without(pals, "PALS_APID")).find("none of PALS_APID") != std::string::npos);
  CHECK(why_refused(with(pals, {{"PMI_LOCAL_SIZE", "2"}, {"PALS_LOCAL_RANKID", "1"}})).starts_with("DEVCOMM_ROOT"));
}

TEST_CASE("srun with a plugin for PMI is srun, and mpiexec inside of an srun is mpiexec") {
  const table by_plugin = with(slurm_task, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PALS_RANKID", "1"}});
  CHECK(read(by_plugin).launcher == "srun");
  CHECK(read(with(slurm_task, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}})).launcher == "srun");
  // mpiexec starts its daemons, one a node, by srun, and their ranks inherit srun's variables.
  CHECK(read(with(with(slurm_task, mpich), {{"DEVCOMM_ROOT", "h:9"}})).rank == 2);
}

TEST_CASE("what looks like a launcher and is not understood is refused with what to set") {
  const table signs = {{"PMIX_RANK", "1"},      {"PMI_RANK", "1"},           {"PMI_ID", "1"},
                       {"PALS_RANKID", "1"},    {"MPI_LOCALRANKID", "0"},    {"MV2_COMM_WORLD_RANK", "1"},
                       {"FLUX_TASK_RANK", "1"}, {"JSM_NAMESPACE_RANK", "1"}, {"ALPS_APP_PE", "1"}};
  for (const auto& [name, value] : signs) {
    CAPTURE(name);
    const std::string why = why_refused({{name, value}});
    CHECK(why.starts_with(name + " is set"));
    CHECK(why.find("DEVCOMM_RANK=$" + name) != std::string::npos);
    CHECK(why.find("unset " + name) != std::string::npos);
    const auto p = read({{name, value}, {"DEVCOMM_RANK", "1"}, {"DEVCOMM_SIZE", "2"}, {"DEVCOMM_ROOT", "h:9"}});
    CHECK(p.launcher == "shell");
  }
}

TEST_CASE("a process of a launcher that is not understood is no job of its own") {
  const auto outcomes = on_processes(1, [](int) {
    ::setenv("PMIX_RANK", "0", 1);
    static_cast<void>(host::launched_by_environment());
  });
  CHECK(outcomes[0].kind == "invalid_argument");
  CHECK(outcomes[0].says("PMIX_RANK is set"));
}

TEST_CASE("ranks of MPICH's mpiexec find each other on one host") {
  const auto outcomes = on_processes(3, [](int rank) {
    ::setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("PMI_SIZE", "3", 1);
    ::setenv("MPI_LOCALRANKID", std::to_string(rank).c_str(), 1);
    ::setenv("MPI_LOCALNRANKS", "3", 1);
    if (!host::launched_by_environment()) throw std::runtime_error("not launched");
    const auto job = host::environment_bootstrap(20s);
    if (job->rank() != rank || job->size() != 3) throw std::runtime_error("wrong place");
    gather_and_check(*job, 10, 1);
  });
  CHECK(first_failure(outcomes) == "");
}

// Run by the next case.
TEST_CASE("prints who started this process", "[.started]") {
  std::printf("started by %s\n", detail::launching_process("DEVCOMM_TEST_RANK").value_or("nobody").c_str());
}

TEST_CASE("the process that started all ranks is found behind the shells between") {
  const std::string self = "'" + own_path() + "' '[.started]'";
  const auto lines = lines_of("DEVCOMM_TEST_RANK=0 " + self + "; DEVCOMM_TEST_RANK=1 sh -c \"" + self + "; sh -c \\\"" +
                              self + "; true\\\"; true\"; true");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] != "started by nobody");
  CHECK(lines[1] == lines[0]);
  CHECK(lines[2] == lines[0]);
  // Another start has another name.
  const auto others = lines_of("DEVCOMM_TEST_RANK=0 " + self + "; true");
  REQUIRE(others.size() == 1);
  CHECK(others[0] != lines[0]);
}
