/// Litmus tests of the library's protocols: what their rules forbid must not be seen, however often they run and
/// whatever else the memory system has to do.
///
///     litmus [-n ROUNDS] [--shape NAME] [--controls required|reported|left_out] [--seed NUMBER]
///
/// Runs each shape ROUNDS times, a million unless given, and as often each control, which is the shape with one thing
/// taken away. Prints how often the forbidden outcome was seen: a wrong value, or a wait for something that was
/// overwritten before it was read. The exit status is 1 where a shape showed it, or where no control of a shape did:
/// then the run says nothing. `reported` lets that pass. One process, a thread a rank; without DEVCOMM_RANKS there are
/// as many ranks as GPUs, and two on one GPU.
#include "litmus/actor.cuh"
#include "litmus/shapes.cuh"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/prepare.hpp>
#include <devcomm/host/run_ranks.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace devcomm;

namespace {

struct control {
  const char* name;
  bool is_broken;  ///< shows the outcome even where memory is sequentially consistent
};

struct shape {
  const char* name;
  void (*kernel)(litmus::test);
  unsigned roles;
  bool on_one_gpu;
  std::vector<control> controls;  ///< in the order of their numbers, from 1 on
  bool needs_bulk_copies = false;
};

const std::vector<shape>& all_shapes() {
  using namespace litmus;
  static const std::vector<shape> all = {
      {"message_passing_pushed",
       play<message_passing<false>>,
       2,
       false,
       {{"relaxed_arrival", false}, {"relaxed_wait", false}, {"no_sync", true}}},
      {"message_passing_pulled",
       play<message_passing<true>>,
       2,
       false,
       {{"relaxed_arrival", false}, {"relaxed_wait", false}, {"no_sync", true}}},
      {"ll", play<ll>, 2, false, {{"flag_apart", false}, {"flag_first", true}}},
      {"ll128", play<ll128>, 2, false, {{"split", false}, {"split_flag_first", true}}},
      {"lamport", play<lamport>, 2, false, {{"no_fence", false}, {"one_row", true}}},
      {"chunk_reuse", play<chunk_reuse>, 2, false, {{"relaxed_credit", false}, {"early_credit", true}}},
      {"row_reuse", play<row_reuse>, 3, false, {{"before_all_looked", true}, {"unheard", true}}},
      {"bulk_load_pushed",
       play<bulk_load<false>>,
       2,
       false,
       {{"no_proxy_fence", false}, {"relaxed_wait", false}, {"no_sync", true}},
       true},
      {"bulk_load_pulled",
       play<bulk_load<true>>,
       2,
       false,
       {{"no_proxy_fence", false}, {"relaxed_wait", false}, {"no_sync", true}},
       true},
      {"bulk_store",
       play<bulk_store<false>>,
       2,
       false,
       {{"read_only_wait", false}, {"no_proxy_fence", false}, {"early_flag", true}},
       true},
      {"bulk_add",
       play<bulk_store<true>>,
       2,
       false,
       {{"read_only_wait", false}, {"no_proxy_fence", false}, {"early_flag", true}},
       true},
      {"abort_word", play<abort_word>, 2, true, {{"no_fence", false}, {"told_first", true}}},
      {"store_buffering", play<store_buffering>, 2, false, {{"acq_rel_fence", false}, {"no_fence", false}}},
  };
  return all;
}

enum class controls_are { required, reported, left_out };

struct options {
  std::uint64_t rounds = 0;  ///< 0: a million on GPUs, and few in the simulator
  std::string shape;         ///< empty: all
  controls_are controls = controls_are::required;
  unsigned seed = 1;
};

/// How a test is spread over launches and blocks; a simulated GPU only shows that it works.
struct plan {
  std::uint64_t rounds = 1000000;
  unsigned instances = 16;
  unsigned threads = litmus::max_threads;
  unsigned launches = 8;
  unsigned stress_blocks = 48;
  unsigned bursts = 0;
  std::uint64_t scratch_bytes = 64 << 20;

  static plan simulated() {
    plan small;
    small.rounds = 24;
    small.instances = 2;
    small.threads = 32;
    small.launches = 2;
    small.stress_blocks = 1;
    small.bursts = 2;
    small.scratch_bytes = 4 << 10;
    return small;
  }
};

/// What each rank has counted, at its own place; read between two host barriers.
std::vector<litmus::counts> latest(1024);

litmus::counts sum_of_ranks(host::communicator& comm, const litmus::counts& mine) {
  latest[static_cast<std::size_t>(comm.rank())] = mine;
  comm.barrier();
  litmus::counts sum{};
  for (int rank = 0; rank < comm.size(); ++rank) {
    const litmus::counts& one = latest[static_cast<std::size_t>(rank)];
    sum.rounds += one.rounds;
    sum.looks += one.looks;
    sum.forbidden += one.forbidden;
    sum.lost += one.lost;
  }
  comm.barrier();
  return sum;
}

/// One rank's part.
class runner {
 public:
  runner(host::communicator& comm, const options& chosen)
      : comm_(comm),
        plan_(comm.properties().timing.available ? plan{} : plan::simulated()),
        seed_(chosen.seed),
        device_comm_(comm.create_device_comm(comm.requirements().with(lsa::whole_world{}))),
        cells_(comm.allocate(cell_bytes())),
        scratch_(comm.allocate(plan_.scratch_bytes)) {
    if (chosen.rounds != 0) plan_.rounds = chosen.rounds;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&counted_), sizeof(litmus::counts) + sizeof(std::uint32_t)),
               "cudaMalloc");
  }
  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;
  ~runner() { cudaFree(counted_); }

  /// Whether the outcome of `tested` is as it must be. *Collective*.
  bool run(const shape& tested, controls_are controls) {
    host::prepare(comm_, tested.kernel);
    const bool is_right = count(tested, 0) == 0;
    if (controls == controls_are::left_out) return is_right;
    bool is_seen = false;
    for (unsigned i = 1; i <= tested.controls.size(); ++i) is_seen = count(tested, i) != 0 || is_seen;
    if (!is_seen && comm_.rank() == 0)
      std::printf("%s: no control showed the outcome, so a shape that shows none says nothing\n", tested.name);
    return is_right && (is_seen || controls == controls_are::reported);
  }

 private:
  litmus::test describe(const shape& tested, unsigned control, unsigned launch) {
    litmus::test all{};
    all.comm = device_comm_.get();
    all.cells = cells_.pointer<char>();
    all.scratch = scratch_.pointer<char>();
    all.scratch_bytes = plan_.scratch_bytes;
    all.counted = counted_;
    all.busy = reinterpret_cast<std::uint32_t*>(counted_ + 1);
    all.instances = plan_.instances;
    all.roles = tested.roles;
    all.on_one_gpu = tested.on_one_gpu;
    all.control = control;
    const std::uint64_t parts = std::uint64_t{plan_.instances} * plan_.launches;
    all.rounds = static_cast<unsigned>((plan_.rounds + parts - 1) / parts);
    all.seed = seed_ * 1000 + launch;
    constexpr unsigned spacings[] = {128, 4, 32, 16};
    all.spacing = spacings[(launch + launch / 4) % 4];
    all.stress = launch % 4;
    all.bursts = plan_.bursts;
    all.limit = control == 0 ? 2000000000 : 20000000;
    return all;
  }

  /// Runs `tested` as it is, or a control, prints a line, and returns how often the outcome was seen.
  std::uint64_t count(const shape& tested, unsigned control) {
    litmus::counts sum{};
    for (unsigned i = 0; i < plan_.launches; ++i) {
      const litmus::counts of_launch = sum_of_ranks(comm_, run_launch(tested, control, i));
      sum.rounds += of_launch.rounds;
      sum.looks += of_launch.looks;
      sum.forbidden += of_launch.forbidden;
      sum.lost += of_launch.lost;
    }
    const std::uint64_t seen = sum.forbidden + sum.lost;
    if (comm_.rank() == 0) {
      const char* name = control == 0 ? "as it is" : tested.controls[control - 1].name;
      const char* kind = control == 0 ? "" : tested.controls[control - 1].is_broken ? "broken" : "weakened";
      std::printf("%-24s %-18s %-9s %12llu %14llu %12llu %8llu  %s\n", tested.name, name, kind,
                  static_cast<unsigned long long>(sum.rounds / tested.roles),
                  static_cast<unsigned long long>(sum.looks), static_cast<unsigned long long>(sum.forbidden),
                  static_cast<unsigned long long>(sum.lost), verdict(control, seen));
      std::fflush(stdout);
    }
    return seen;
  }
  static const char* verdict(unsigned control, std::uint64_t seen) {
    if (control == 0) return seen == 0 ? "ok" : "WRONG";
    return seen == 0 ? "not seen" : "seen";
  }

  [[nodiscard]] std::uint64_t cell_bytes() const {
    return plan_.instances * litmus::max_roles * litmus::cell_layout::bytes;
  }

  litmus::counts run_launch(const shape& tested, unsigned control, unsigned number) {
    const litmus::test all = describe(tested, control, number);
    std::uint32_t busy = 0;
    for (unsigned instance = 0; instance < all.instances; ++instance)
      for (unsigned role = 0; role < all.roles; ++role) busy += all.rank_of(instance, role) == comm_.lsa().rank ? 1 : 0;
    check_cuda(cudaMemset(cells_.data(), 0, cell_bytes()), "cudaMemset");
    check_cuda(cudaMemset(counted_, 0, sizeof(litmus::counts)), "cudaMemset");
    check_cuda(cudaMemcpy(all.busy, &busy, sizeof busy, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
    comm_.barrier();
    const unsigned blocks = all.instances * all.roles + plan_.stress_blocks;
    launch(tested.kernel, {.grid = blocks, .block = plan_.threads, .stream = cudaStreamPerThread}, all);
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), tested.name);
    device_comm_.check();
    litmus::counts mine{};
    check_cuda(cudaMemcpy(&mine, counted_, sizeof mine, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return mine;
  }

  host::communicator& comm_;
  plan plan_;
  unsigned seed_;
  host::device_communicator device_comm_;
  host::symmetric_memory cells_;
  host::symmetric_memory scratch_;
  litmus::counts* counted_ = nullptr;
};

template <class Number>
Number parse(std::string_view option, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0)
    throw std::runtime_error(std::string(option) + " takes a number from 1 on; it has '" + std::string(text) + "'");
  return value;
}

options parse_all(int count, char** arguments) {
  options chosen;
  for (int i = 1; i < count; i += 2) {
    const std::string_view option = arguments[i];
    if (i + 1 == count) throw std::runtime_error("nothing follows " + std::string(option));
    const std::string_view value = arguments[i + 1];
    if (option == "-n") {
      chosen.rounds = parse<std::uint64_t>(option, value);
    } else if (option == "--seed") {
      chosen.seed = parse<unsigned>(option, value);
    } else if (option == "--controls" && value == "required") {
      chosen.controls = controls_are::required;
    } else if (option == "--controls" && value == "reported") {
      chosen.controls = controls_are::reported;
    } else if (option == "--controls" && value == "left_out") {
      chosen.controls = controls_are::left_out;
    } else if (option == "--controls") {
      throw std::runtime_error("--controls is required, reported or left_out; it is '" + std::string(value) + "'");
    } else if (option == "--shape") {
      chosen.shape = value;
    } else {
      throw std::runtime_error("unknown option '" + std::string(option) +
                               "'; they are -n, --shape, --controls and --seed");
    }
  }
  if (chosen.shape.empty()) return chosen;
  std::string names;
  for (const shape& one : all_shapes()) {
    if (chosen.shape == one.name) return chosen;
    names += std::string(" ") + one.name;
  }
  throw std::runtime_error("unknown shape '" + chosen.shape + "'; they are" + names);
}

/// Runs the chosen shapes; whether all is as it must be. *Collective*.
bool run_shapes(host::communicator& comm, const options& chosen) {
  runner all(comm, chosen);
  if (comm.rank() == 0) {
    std::printf("%d ranks on %s\n", comm.size(), comm.properties().device_name.c_str());
    std::printf("%-24s %-18s %-9s %12s %14s %12s %8s\n", "shape", "run", "", "rounds", "looks", "forbidden", "lost");
  }
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, comm.device()),
             "cudaDeviceGetAttribute");
  bool is_right = true;
  for (const shape& one : all_shapes()) {
    if (!chosen.shape.empty() && chosen.shape != one.name) continue;
    const host::capability& lines = comm.properties().ll128;
    if (std::strcmp(one.name, "ll128") == 0 && !lines.available) {
      if (comm.rank() == 0) std::printf("%-24s left out: %s\n", one.name, lines.reason.c_str());
      continue;
    }
    if (one.needs_bulk_copies && major < 9) {
      if (comm.rank() == 0) std::printf("%-24s left out: compute capability below 9.0\n", one.name);
      continue;
    }
    is_right = all.run(one, chosen.controls) && is_right;
  }
  return is_right;
}

}  // namespace

int main(int count, char** arguments) {
  if (host::launched_by_environment()) {
    std::fprintf(stderr, "%s holds all ranks in one process; start it alone\n", arguments[0]);
    return 2;
  }
  try {
    const options chosen = parse_all(count, arguments);
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    bool is_right = true;
    host::run_ranks({.ranks = std::max(devices, 2)}, [&](host::communicator& comm) {
      const bool mine = run_shapes(comm, chosen);
      if (comm.rank() == 0) is_right = mine;
    });
    return is_right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
