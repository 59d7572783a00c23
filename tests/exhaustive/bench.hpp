/// \file bench.hpp
/// Ranks whose kernels one host thread launches again and again from the same state.
#pragma once

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>
#include <devcomm/simulator/explore.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

namespace exhaustive {

using namespace devcomm;
namespace sim = devcomm::simulator;

constexpr std::uint64_t board_words = 512;

/// All ranks of a communicator as one thread sees them.
class bench {
 public:
  explicit bench(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const device_comm& comm(int rank) const { return at(rank).comm; }
  /// Words of each rank that all can reach; zeros as an execution begins.
  [[nodiscard]] sym_ptr<std::uint32_t> board(int rank) const { return at(rank).board; }
  /// Words that belong to the rank alone; zeros as an execution begins.
  [[nodiscard]] std::uint32_t* result(int rank) const { return at(rank).board.local() + board_words / 2; }

  /// Launches `kernel` with the arguments that `arguments(rank)` calls it with.
  template <class Launch>
  void on_each_rank(Launch launch) const {
    for (int rank = 0; rank < size(); ++rank) {
      check_cuda(cudaSetDevice(at(rank).device), "cudaSetDevice");
      launch(rank);
    }
  }
  void finish() const {
    on_each_rank([](int) { check_cuda(cudaDeviceSynchronize(), "kernel"); });
  }
  void require(bool condition, const std::string& what) const {
    if (!condition) throw std::runtime_error(what);
  }

  // How it is made: by each rank in turn.
  struct of_rank {
    device_comm comm{};
    sym_ptr<std::uint32_t> board;
    int device = 0;
    std::vector<char> resources;  ///< as an execution begins
    failure_log failures{};
  };
  [[nodiscard]] of_rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const of_rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  /// Everything as it was at first.
  void restore() const {
    for (const of_rank& r : ranks_) {
      std::memcpy(r.comm.resources.local, r.resources.data(), r.resources.size());
      std::memcpy(r.comm.failures, &r.failures, sizeof r.failures);
      std::memset(r.board.local(), 0, board_words * sizeof(std::uint32_t));
    }
  }

 private:
  std::vector<of_rank> ranks_;
};

/// Makes `ranks` ranks with what `needs` asks for, and calls `body` with them. Launches are compared across ranks if
/// `check_launch`. The board has the same multimem as the resources.
template <class Needs, class Body>
void on_bench(int ranks, bool check_launch, Needs needs, Body body) {
  bench all(ranks);
  std::promise<void> done;
  const std::shared_future<void> end = done.get_future().share();
  host::run_options run;
  run.ranks = ranks;
  host::run_ranks(run, [&](host::communicator& comm) {
    requirements wants = comm.requirements();
    needs(wants);
    const auto device = comm.create_device_comm(wants);
    const auto board = comm.allocate(board_words * sizeof(std::uint32_t), "board", multimem::policy_of(wants));
    bench::of_rank& mine = all.at(comm.rank());
    mine.comm = device.get();
    if (!check_launch) mine.comm.flags &= ~device_comm::check_launch;
    mine.board = board.pointer<std::uint32_t>();
    mine.device = comm.device();
    mine.resources.assign(mine.comm.resources.local, mine.comm.resources.local + mine.comm.resources.bytes);
    mine.failures = *mine.comm.failures;
    comm.barrier();
    if (comm.rank() != 0) return end.wait();
    try {
      body(all);
      done.set_value();
    } catch (...) {
      done.set_value();
      throw;
    }
    check_cuda(cudaSetDevice(comm.device()), "cudaSetDevice");
  });
}

/// The same, exploring `body`, which finds everything as it was at first.
template <class Needs, class Body>
sim::exploration_result explore(int ranks, const sim::explore_options& options, bool check_launch, Needs needs,
                                Body body) {
  sim::exploration_result result;
  on_bench(ranks, check_launch, needs, [&](const bench& all) {
    result = sim::explore(options, [&] {
      all.restore();
      body(all);
    });
  });
  return result;
}

}  // namespace exhaustive
