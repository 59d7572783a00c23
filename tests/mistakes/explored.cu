/// Small kernels with a mistake that shows in few interleavings, each explored until one fails:
///
///     explored NAME [right]        status 0 if none does
///     explored NAME sample RUNS    prints how many of so many seeds show the mistake
#include "exhaustive/bench.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

using namespace exhaustive;
namespace arch = devcomm::arch;

namespace {

__device__ std::uint32_t load(const std::uint32_t* word) {
  return arch::load<memory_order::acquire, scope::system>(word);
}
__device__ void store(std::uint32_t* word, std::uint32_t value) {
  arch::store<memory_order::release, scope::system>(word, value);
}

/// All lanes of a warp poll until `arrived` returns true.
template <class Arrived>
__device__ void wait_for_lines(const device_comm& comm, Arrived arrived) {
  auto* const home = reinterpret_cast<resource_header*>(comm.resources.local);
  const auto label = [&] {
    return detail::wait_label{
        {operation::ll128_mailbox, 0, (comm.rank + 1) % comm.size, 1}, comm.rank, comm.timeout, false};
  };
  detail::poll<1, detail::whole_warp>(home, detail::communicator_timeout(), label, arrived, [](status) {});
}

/// Three ranks count themselves in; a load and a store are no addition. Wrong only if all three load first.
__global__ void add(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, bool wrong) {
  std::uint32_t* const count = board.lsa(0);
  if (wrong) {
    store(count, load(count) + 1);
  } else {
    arch::fetch_add<memory_order::acq_rel, scope::system>(count, 1u);
  }
  result[0] = 1 + static_cast<std::uint32_t>(comm.rank);
}
bool none_lost(const bench& b) { return b.board(0).local()[0] > 1; }

/// Rank 1 sleeps unless it sees the news, and rank 0 wakes it if it sees that it sleeps.
__global__ void notify(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, bool wrong) {
  std::uint32_t* const news = board.lsa(0);
  std::uint32_t* const sleeps = news + 1;
  std::uint32_t* const wake = news + 2;
  if (comm.rank == 0) {
    store(news, 1);
    if (load(sleeps) == 1) store(wake, 1);
  } else if (comm.rank == 1) {
    if (wrong) {
      if (load(news) == 0) {
        store(sleeps, 1);
        while (load(wake) == 0) {
        }
      }
    } else {
      store(sleeps, 1);
      if (load(news) == 0) {
        while (load(wake) == 0) {
        }
      }
    }
  }
  result[0] = 1;
}

/// Each rank sends a packet to its neighbor in every round, into one row, or by turns into two.
__global__ void send_in_rounds(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, bool wrong) {
  std::uint32_t lost = 0;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    const std::uint32_t row = wrong ? 0 : round % 2;
    store(board.lsa((comm.rank + 1) % comm.size) + row, round);
    std::uint32_t seen = 0;
    while ((seen = load(board.local() + row)) < round) {
    }
    lost += seen != round ? 1u : 0u;
  }
  result[0] = 1 + lost;
}
bool all_came(const bench& b) {
  for (int rank = 0; rank < b.size(); ++rank) {
    if (b.result(rank)[0] != 1) return false;
  }
  return true;
}

/// Rank 0 publishes epochs by a counter that wraps around; rank 1 takes two equal values for the same epoch.
__global__ void count_epochs(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, bool wrong) {
  std::uint32_t* const epoch = board.lsa(0);
  std::uint32_t* const data = epoch + 1;
  if (comm.rank == 0) {
    for (std::uint32_t e = 1; e <= 4; ++e) {
      store(data, e);
      store(epoch, wrong ? e % 4 : e);
    }
  } else if (comm.rank == 1) {
    const std::uint32_t before = load(epoch);
    const std::uint32_t first = load(data);
    const std::uint32_t second = load(data);
    // Had the epoch not changed, at most one store of data could have come between.
    if (load(epoch) == before && second > first + 1) result[1] = 1;
  }
  result[0] = 1;
}
enum class line_mistake { torn, flag_without_epoch, row_reused, one_flag };

/// Each rank, a warp, sends a unit of four lines to its neighbor in every round, by turns into two rows.
template <line_mistake Mistake>
__global__ void send_lines(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* result, bool wrong) {
  constexpr std::uint32_t unit = 4 * 32;
  const bool torn = wrong && Mistake == line_mistake::torn;
  const bool without_epoch = wrong && Mistake == line_mistake::flag_without_epoch;
  const bool one_row = wrong && Mistake == line_mistake::row_reused;
  const bool one_flag = wrong && Mistake == line_mistake::one_flag;
  const std::uint32_t lane = arch::lane();
  const bool has_flag = lane % 8 == 7;
  std::uint32_t lost = 0;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    const std::uint32_t place = (one_row ? 0 : round % 2 * unit) + 4 * lane;
    const std::uint32_t flag = without_epoch ? 1 : round;
    const arch::vec16 words{round, lane, has_flag ? flag : round, 0};
    std::uint32_t* const there = board.lsa((comm.rank + 1) % comm.size) + place;
    if (torn) {  // nothing says which part of a line comes first
      arch::store_halves(there, {words.x | std::uint64_t{words.y} << 32, words.z});
    } else {
      arch::store_lines(there, words);
    }
    arch::vec16 got{};
    wait_for_lines(comm, [&] {
      got = arch::load_lines(board.local() + place);
      const bool checks = has_flag && (!one_flag || lane == 31);
      return !arch::any(arch::full_mask, checks && (without_epoch ? got.z == 0 : got.z < flag));
    });
    lost += got.x != round || got.y != lane || got.z != words.z ? 1u : 0u;
    arch::sync_warp(arch::full_mask);
  }
  result[lane] = 1 + lost;
}
bool all_lines_came(const bench& b) {
  for (int rank = 0; rank < b.size(); ++rank) {
    for (int lane = 0; lane < 32; ++lane) {
      if (b.result(rank)[lane] != 1) return false;
    }
  }
  return true;
}

bool same_epoch(const bench& b) { return b.result(1)[1] == 0; }

// --- the network: rank 0 sends to rank 1 ---

constexpr std::uint32_t source = 32;  // the words that are sent; what is received has the first words of the board

struct network {
  device_comm comm;
  gin::context_handle contexts;
  sym_ptr<std::uint32_t> board;
  std::uint32_t* result;
  bool wrong;
};

__device__ void put_word(gin::context<thread>& net, const network& n, std::uint32_t word) {
  net.put(1, n.board + word, n.board + (source + word), 1);
}
template <class Signal>
__device__ void put_word(gin::context<thread>& net, const network& n, std::uint32_t word, Signal signal) {
  net.put(1, n.board + word, n.board + (source + word), 1, signal);
}
/// Keeps what rank 1 finds in its first two words.
__device__ void look(const network& n) {
  n.result[1] = load(n.board.local());
  n.result[2] = load(n.board.local() + 1);
}

/// The source is written again; wrong before a flush.
__global__ void rewrite_source(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  std::uint32_t* const own = n.board.local();
  if (n.comm.rank == 0) {
    store(own + source, 1);
    put_word(net, n, 0, gin::signal_add{0});
    if (!n.wrong) net.flush();
    store(own + source, 99);
  } else {
    net.wait_signal(0, 1);
    look(n);
  }
  n.result[0] = 1;
}

/// Two puts, and a signal with the second; wrong if it is weak.
__global__ void signal_two_puts(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  std::uint32_t* const own = n.board.local();
  if (n.comm.rank == 0) {
    store(own + source, 1);
    store(own + source + 1, 2);
    put_word(net, n, 0);
    put_word(net, n, 1, gin::signal_add{0, 1, n.wrong ? gin::strength::weak : gin::strength::strong});
  } else {
    net.wait_signal(0, 1);
    look(n);
  }
  n.result[0] = 1;
}

/// What was put is read; wrong without a wait.
__global__ void read_put(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  if (n.comm.rank == 0) {
    store(n.board.local() + source, 1);
    put_word(net, n, 0, gin::signal_add{0, 1, gin::strength::weak});
  } else {
    if (!n.wrong) net.wait_signal(0, 1);
    look(n);
  }
  n.result[0] = 1;
}

/// Rank 1 gets a word that rank 0 has told it of; wrong before a flush.
__global__ void read_got(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  if (n.comm.rank == 0) {
    store(n.board.local() + source, 1);
    net.signal(1, gin::signal_add{0});
  } else {
    net.wait_signal(0, 1);
    net.get(0, n.board, n.board + source, 1);
    if (!n.wrong) net.flush();
    look(n);
  }
  n.result[0] = 1;
}

/// A barrier is between a put and its reader; wrong if it does not fence puts.
__global__ void put_and_meet(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  gin::barrier_session barrier{thread{}, n.comm, n.comm.world(), n.contexts, gin::one_context(0), 0};
  if (n.comm.rank == 0) {
    store(n.board.local() + source, 1);
    put_word(net, n, 0);
  }
  barrier.sync(n.wrong ? gin::fence_level::none : gin::fence_level::put);
  if (n.comm.rank == 1) look(n);
  n.result[0] = 1;
}

/// A barrier is between a signal and its reader, which does not wait; wrong if it does not fence puts.
__global__ void signal_and_meet(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  gin::barrier_session barrier{thread{}, n.comm, n.comm.world(), n.contexts, gin::one_context(0), 0};
  if (n.comm.rank == 0) net.signal(1, gin::signal_add{0});
  barrier.sync(n.wrong ? gin::fence_level::none : gin::fence_level::put);
  if (n.comm.rank == 1) n.result[1] = static_cast<std::uint32_t>(net.read_signal(0));
  n.result[0] = 1;
}

/// The signal is of another context than the put; wrong without a fence.
__global__ void signal_elsewhere(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  gin::context other{thread{}, n.comm, n.contexts, 1};
  if (n.comm.rank == 0) {
    store(n.board.local() + source, 1);
    put_word(net, n, 0);
    if (!n.wrong) net.fence(1);
    other.signal(1, gin::signal_add{0});
  } else {
    other.wait_signal(0, 1);
    look(n);
  }
  n.result[0] = 1;
}

/// Two rounds through one word; wrong if the second does not wait until the first has been read.
__global__ void put_twice(network n) {
  gin::context net{thread{}, n.comm, n.contexts, 0};
  for (std::uint32_t round = 1; round <= 2; ++round) {
    if (n.comm.rank == 0) {
      if (round == 2 && !n.wrong) net.wait_signal(0, 1);
      net.put_value(1, n.board, round, gin::signal_add{0, 1, gin::strength::weak});
    } else {
      net.wait_signal(0, round);
      if (load(n.board.local()) == round) n.result[1] = round == 1 ? 1 : n.result[1];
      if (round == 1) net.signal(0, gin::signal_add{0});
    }
  }
  n.result[0] = 1;
}

bool one_came(const bench& b) { return b.result(1)[1] == 1; }
bool two_came(const bench& b) { return one_came(b) && b.result(1)[2] == 2; }

struct bug {
  const char* name;
  int ranks;
  void (*kernel)(device_comm, sym_ptr<std::uint32_t>, std::uint32_t*, bool);
  bool (*holds)(const bench&);
  unsigned threads = 1;
  void (*of_network)(network) = nullptr;
};
const bug bugs[] = {{"lost_update", 3, add, none_lost},
                    {"lost_wake_up", 3, notify, nullptr},
                    {"row_reused", 2, send_in_rounds, all_came},
                    {"epoch_reused", 3, count_epochs, same_epoch},
                    {"line_torn", 2, send_lines<line_mistake::torn>, all_lines_came, 32},
                    {"line_flag_without_epoch", 2, send_lines<line_mistake::flag_without_epoch>, all_lines_came, 32},
                    {"line_row_reused", 2, send_lines<line_mistake::row_reused>, all_lines_came, 32},
                    {"line_one_flag", 2, send_lines<line_mistake::one_flag>, all_lines_came, 32},
                    {"network_no_flush", 2, nullptr, one_came, 1, rewrite_source},
                    {"network_weak_signal", 2, nullptr, two_came, 1, signal_two_puts},
                    {"network_no_wait", 2, nullptr, one_came, 1, read_put},
                    {"network_no_get_flush", 2, nullptr, one_came, 1, read_got},
                    {"network_barrier_no_put_fence", 2, nullptr, one_came, 1, put_and_meet},
                    {"network_signal_early", 2, nullptr, one_came, 1, signal_and_meet},
                    {"network_other_context", 2, nullptr, one_came, 1, signal_elsewhere},
                    {"network_no_credit", 2, nullptr, one_came, 1, put_twice}};

gin::context_handle contexts;

void add_needs(const bug& which, requirements& needs) {
  if (which.of_network == nullptr) return;
  const auto made =
      needs.add(gin::contexts{.world = {0, 2, 0, 1}, .count = 2, .signals = 1, .depth = 8, .barriers = 1});
  static std::mutex one;
  const std::lock_guard hold(one);
  contexts = made;
}

void run_once(const bug& which, const bench& b, bool wrong) {
  b.on_each_rank([&](int rank) {
    if (which.of_network != nullptr) {
      const network all{b.comm(rank), contexts, b.board(rank), b.result(rank), wrong};
      return devcomm::launch(which.of_network, {}, all);
    }
    devcomm::launch(which.kernel, {.block = which.threads}, b.comm(rank), b.board(rank), b.result(rank), wrong);
  });
  b.finish();
  b.require(which.holds == nullptr || which.holds(b), "a wrong result");
}

int sample(const bug& which, std::uint64_t runs) {
  std::uint64_t found = 0;
  on_bench(
      which.ranks, false, [&](requirements& needs) { add_needs(which, needs); },
      [&](const bench& b) {
        for (std::uint64_t seed = 1; seed <= runs; ++seed) {
          sim::set_seed(seed);
          b.restore();
          try {
            run_once(which, b, true);
          } catch (const std::exception&) {
            sim::clear_failure();
            ++found;
          }
        }
      });
  std::printf("%s: %llu of %llu seeds\n", which.name, static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(runs));
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const std::string what = argc > 2 ? argv[2] : "";
  for (const bug& which : bugs) {
    if (name != which.name) continue;
    if (what == "sample" && argc == 4) return sample(which, std::strtoull(argv[3], nullptr, 10));
    if (argc > 3 || (argc == 3 && what != "right")) break;
    const bool wrong = what.empty();
    const auto result = explore(
        which.ranks, {}, false, [&](requirements& needs) { add_needs(which, needs); },
        [&](const bench& b) { run_once(which, b, wrong); });
    std::printf("%s: %llu executions\n%s\n", which.name, static_cast<unsigned long long>(result.executions),
                result.failure.c_str());
    return result.complete ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  for (const bug& which : bugs) std::puts(which.name);
  return argc == 1 ? 0 : 2;
}
