/// Programmatic dependent launches: they run beside the launch before, and see what it did once they have waited for
/// it.
#include <devcomm/arch/arch.cuh>
#include <devcomm/dependent_launch.cuh>

#include "simulator/support.hpp"

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

constexpr auto relaxed = memory_order::relaxed;

/// Ends when the next launch has begun.
__global__ void await_next(unsigned* words) {
  devcomm::allow_dependent_launch();
  if (threadIdx.x != 0) return;
  while (arch::load<relaxed, scope::device>(words) == 0) {
  }
  arch::store<relaxed, scope::device>(words + 1, 1u);
}
/// Begins beside the one before; notes whether that has ended when the wait has.
__global__ void begin_beside(unsigned* words) {
  if (threadIdx.x == 0) arch::store<relaxed, scope::device>(words, 1u);
  devcomm::wait_for_prior_launch();
  if (threadIdx.x == 0) words[2] = words[1];
}
/// Each block allows the next launch after the others', or by its end.
__global__ void allow_late(unsigned* words) {
  if (blockIdx.x == 0) {
    while (arch::load<relaxed, scope::device>(words) < gridDim.x - 1) {
    }
    words[1] = 1;
    devcomm::allow_dependent_launch();
  } else {
    if (threadIdx.x == 0) arch::fetch_add<relaxed, scope::device>(words, 1u);
  }
}
__global__ void count_started(unsigned* words) {
  if (threadIdx.x == 0) words[3] = arch::load<relaxed, scope::device>(words);
  devcomm::wait_for_prior_launch();
  words[2] = words[1];
}
/// Does not wait.
__global__ void end_at_once(unsigned* words) { arch::store<relaxed, scope::device>(words, 1u); }
__global__ void await_third(unsigned* words) {
  devcomm::allow_dependent_launch();
  while (arch::load<relaxed, scope::device>(words + 3) == 0) {
  }
  arch::store<relaxed, scope::device>(words + 1, 1u);
}
__global__ void end_without_waiting(unsigned*) {}
__global__ void release_first(unsigned* words) {
  devcomm::wait_for_prior_launch();
  arch::store<relaxed, scope::device>(words + 2, 5 + arch::load<relaxed, scope::device>(words + 1));
  arch::store<relaxed, scope::device>(words + 3, 1u);
}
__global__ void copy_word(unsigned* words) { words[2] = words[1]; }
__global__ void fail(unsigned*) {
  devcomm::allow_dependent_launch();
  __trap();
}
__global__ void never_reached(unsigned* words) {
  devcomm::wait_for_prior_launch();
  words[1] = 7;
}

/// Allows the next launch, and notes whether it begins while this one works.
__global__ void look_for_next(unsigned* words) {
  devcomm::allow_dependent_launch();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 2000; ++i) {
    arch::fetch_add<relaxed, scope::device>(words + 4, 1u);  // work, so that this is no wait
    if (arch::load<relaxed, scope::device>(words) != 0) words[1] = 1;
  }
}
/// As kernels built for PTX `Version`: below 9.0 they do not wait, as the function is empty there.
template <int Version>
__global__ void begin_early(unsigned* words) {
  if (Version >= 90) {
    if (threadIdx.x == 0) arch::store<relaxed, scope::device>(words, 1u);
    devcomm::wait_for_prior_launch();
  }
  if (threadIdx.x == 0) words[2] = 1 + words[1];
  if (threadIdx.x == 0) arch::store<relaxed, scope::device>(words, 1u);
}

class chain {
 public:
  chain() {
    sim::clear_races();
    devcomm::check_cuda(cudaMalloc(&words_, 64), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(words_, 0, 64), "cudaMemset");
  }
  ~chain() { cudaFree(words_); }
  chain(const chain&) = delete;
  chain& operator=(const chain&) = delete;
  void add(void (*kernel)(unsigned*), bool dependent, unsigned grid = 1) const {
    devcomm::launch(kernel, {.grid = grid, .programmatic_dependent = dependent}, words_);
  }
  [[nodiscard]] std::vector<unsigned> read() const {
    std::vector<unsigned> host(16);
    devcomm::check_cuda(cudaMemcpy(host.data(), words_, 64, cudaMemcpyDefault), "cudaMemcpy");
    return host;
  }

 private:
  unsigned* words_ = nullptr;
};

}  // namespace

TEST_CASE("a dependent launch begins before the one before it ends, and waits for its end") {
  const chain c;
  c.add(await_next, false);
  c.add(begin_beside, true);
  CHECK(c.read()[2] == 1);
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("a dependent launch begins once all blocks have allowed it or ended") {
  const chain c;
  c.add(allow_late, false, 4);
  c.add(count_started, true);
  CHECK(c.read()[2] == 1);
  CHECK(c.read()[3] == 3);
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("what follows in the stream comes after both, also where the dependent launch has not waited") {
  const chain c;
  c.add(await_next, false);
  c.add(end_at_once, true);
  c.add(copy_word, false);
  CHECK(c.read()[2] == 1);
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("a dependent launch that does not wait ends before the one before it, and the next one may begin then") {
  const chain c;
  c.add(await_third, false);
  c.add(end_without_waiting, true);
  c.add(release_first, true);
  const std::vector<unsigned> words = c.read();
  CHECK(words[2] == 5);  // it has waited for the second launch alone
  CHECK(words[1] == 1);  // the copy comes after all
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("a dependent launch fails with the one that it waits for") {
  const chain c;
  c.add(fail, false);
  c.add(never_reached, true);
  CHECK(cudaDeviceSynchronize() != cudaSuccess);
  sim::clear_failure();
  CHECK(c.read()[1] == 0);
}

TEST_CASE("a launch that is not dependent begins after the end of the one before") {
  const chain c;
  c.add(allow_late, false, 4);
  c.add(copy_word, false);
  CHECK(c.read()[2] == 1);
}

TEST_CASE("a dependent launch begins early if its code can wait, and only then") {
  const auto run = [](int version, void (*kernel)(unsigned*)) {
    sim::set_ptx_version(version);
    const chain c;
    c.add(look_for_next, false);
    c.add(kernel, true);
    const std::vector<unsigned> words = c.read();
    sim::set_ptx_version(90);
    CHECK(words[2] == 1 + words[1]);  // what the launch before wrote, in any case
    CHECK(sim::race_reports() == 0);
    return words[1] == 1;
  };
  CHECK_FALSE(run(80, begin_early<80>));
  CHECK(run(90, begin_early<90>));
}
