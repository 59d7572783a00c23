/// Groups of random messages one after the other: `random_messages ROUNDS [MESSAGES] [SEED]`. Of each message the two
/// ranks, its size, its places and whether it goes into a window are random, and so is the order of each rank's list;
/// all that was received, and what lies around it, is compared. `DEVCOMM_RANKS` sets the ranks, which may share GPUs.
#include "channel/post_office.hpp"

#include <devcomm/host/run_ranks.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>

using namespace devcomm;

namespace {

void move_rounds(host::communicator& comm, int rounds, int messages, unsigned seed) {
  constexpr std::uint32_t lanes = 3;
  test::post_office office(comm, lanes, 4);
  std::mt19937 all(seed);
  std::mt19937 own(seed * 7919 + static_cast<unsigned>(comm.rank()));
  for (int round = 0; round < rounds; ++round) {
    const auto plan = test::random_plan(comm.size(), messages, all);
    const unsigned blocks = 1 + static_cast<unsigned>(round) % lanes;
    try {
      office.move(plan, own, blocks, round % 4 == 3 ? 32 : 64);
    } catch (const host::remote_error&) {
      throw;  // the rank that failed says more
    } catch (const std::exception& error) {
      throw std::runtime_error("round " + std::to_string(round) + ", " + std::to_string(blocks) +
                               " blocks: " + error.what());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count >= 2 ? std::atoi(arguments[1]) : 0;
  const int messages = count >= 3 ? std::atoi(arguments[2]) : 100;
  const int seed = count == 4 ? std::atoi(arguments[3]) : 1;
  if (count > 4 || rounds <= 0 || messages <= 0 || seed <= 0) {
    std::fprintf(stderr, "usage: %s ROUNDS [MESSAGES] [SEED], numbers from 1 on\n", arguments[0]);
    return 2;
  }
  try {
    const auto start = std::chrono::steady_clock::now();
    int ranks = 0;
    host::run_ranks({}, [&](host::communicator& comm) {
      if (comm.rank() == 0) ranks = comm.size();
      move_rounds(comm, rounds, messages, static_cast<unsigned>(seed));
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%d rounds of %d messages on %d ranks: all arrived, in %.1f s\n", rounds, messages, ranks,
                took.count());
    return 0;
  } catch (const std::exception& error) {
    std::printf("seed %d: %s\n", seed, error.what());
    return 1;
  }
}
