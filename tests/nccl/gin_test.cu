/// What NCCL's names for operations of the network promise, and its barriers over it.
#include <nccl_device.h>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "nccl/on_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

namespace {

constexpr int words = 64;  // of a row

ncclDevComm network_comm(ncclComm_t comm, int signals, int counters, int contexts = 2,
                         ncclDevResourceRequirements_t* list = nullptr) {
  ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  asked.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  asked.ginSignalCount = signals;
  asked.ginCounterCount = counters;
  asked.ginContextCount = contexts;
  asked.barrierCount = asked.railGinBarrierCount = asked.worldGinBarrierCount = 2;
  asked.resourceRequirementsList = list;
  ncclDevComm made;
  ok(ncclDevCommCreate(comm, &asked, &made));
  require(made.ginContextCount == static_cast<std::uint32_t>(contexts), "the number of contexts");
  return made;
}
void expect_none(const buffer<int>& wrong) {
  require(wrong.read(0) == 0, std::to_string(wrong.read(0)) + " wrong values");
}
/// Ranks on one host, and each on one of its own.
void on_hosts(int ranks, const std::function<void(ncclComm_t, int)>& body) {
  for (const int lsa_size : {ranks, 1}) {
    setenv("DEVCOMM_LSA_SIZE", std::to_string(lsa_size).c_str(), 1);
    on_ranks(ranks, body);
  }
  unsetenv("DEVCOMM_LSA_SIZE");
}

/// Every way to send to the next rank; rows of `words` in both windows.
__global__ void send_by_all_ways(ncclWindow_t in, ncclWindow_t out, ncclDevComm comm, int* wrong) {
  const ncclCoopCta cta;
  const ncclCoopThread self;
  const ncclGin gin(comm, 1, NCCL_GIN_RESOURCE_SHARING_CTA);
  const ncclTeam world = ncclTeamWorld(comm);
  const int next = (comm.rank + 1) % comm.nRanks, before = (comm.rank + comm.nRanks - 1) % comm.nRanks;
  auto* const source = static_cast<int*>(ncclGetLocalPointer(in, 0));
  auto* const came = static_cast<int*>(ncclGetLocalPointer(out, 0));
  const int t = static_cast<int>(threadIdx.x);
  const std::size_t row = sizeof(int) * words;
  source[t] = comm.rank * 1000 + t;
  ncclGinBarrier(cta, gin, ncclTeamTagWorld(), 0);

  // A weak signal and a counter with a put; then the source is used again.
  gin.put(world, next, out, 0, in, 0, row, ncclGin_WeakSignalInc{0}, ncclGin_WeakCounterInc{0}, cta);
  gin.waitCounter(cta, 0, 1);
  gin.waitSignal(cta, 0, 1);
  if (came[t] != before * 1000 + t) atomicAdd(wrong, 1);
  cta.sync();
  source[t] += 500;

  // Puts without a signal, and a strong one behind them.
  gin.put(world, next, ncclSymPtr<int>(out, row), ncclSymPtr<int>(in), words / 2, ncclGin_None{}, ncclGin_None{}, cta);
  gin.put(world, next, ncclSymPtr<int>(out, row) + words / 2, ncclSymPtr<int>(in) + words / 2, words / 2,
          ncclGin_None{}, ncclGin_CounterInc{1}, cta, ncclGin_None{}, cuda::thread_scope_thread,
          cuda::thread_scope_device, ncclGinOptFlagsAggregateRequests);
  gin.signal(world, next, ncclGin_StrongSignalAdd{1, 7}, cta);
  gin.waitSignal(cta, 1, 7);
  if (came[words + t] != before * 1000 + 500 + t) atomicAdd(wrong, 1);

  // Values, by each thread for itself.
  gin.putValue(world, next, out, 2 * row + sizeof(int) * threadIdx.x, comm.rank * 10 + t, ncclGin_WeakSignalAdd{2, 2});
  gin.waitSignal(cta, 2, 2 * words);
  if (came[2 * words + t] != before * 10 + t) atomicAdd(wrong, 1);

  // Gets from the rank before, and a flush of those to it alone.
  if (t == 0) {
    gin.get(world, before, in, 0, out, 3 * row, row);
    ncclGinRequest_t request;
    gin.flushAsync(world, static_cast<unsigned>(before), &request);
    gin.wait(request, self);
  }
  cta.sync();
  if (came[3 * words + t] != before * 1000 + 500 + t) atomicAdd(wrong, 1);

  // The lower bits of a signal, which wrap around: 307 is 51.
  for (int value = 107; value < 400; value += 100) {
    ncclGinBarrier(cta, gin, ncclTeamTagWorld(), 0);
    if (t == 0) gin.signal(world, next, ncclGin_SignalAdd{1, 100});
    gin.waitSignal(cta, 1, static_cast<unsigned>(value % 256), 8);
    if (gin.readSignal(1, 8) != static_cast<unsigned>(value % 256)) atomicAdd(wrong, 1);
  }
  if (gin.readSignal(1) != 307 || gin.readCounter(1) != 1) atomicAdd(wrong, 1);
  if (gin.waitSignal(cta, 1, 308, 64, cuda::memory_order_acquire, comm.cyclesPerMicrosecond * 20ull) != ncclTimeout)
    atomicAdd(wrong, 1);

  // Another context has signals of its own.
  if (ncclGin(comm, 0).readSignal(1) != 0) atomicAdd(wrong, 1);
  ncclGinBarrier(cta, gin, ncclTeamTagWorld(), 1);
  if (t == 0) {
    gin.resetSignal(1);
    gin.resetCounter(1);
    if (gin.readSignal(1) != 0 || gin.readCounter(1) != 0) atomicAdd(wrong, 1);
  }
  gin.flush(cta);
}

}  // namespace

TEST_CASE("puts, values, gets, signals and counters do what NCCL promises of them") {
  on_hosts(3, [](ncclComm_t comm, int) {
    const buffer<int> in(comm, words), out(comm, 4 * words), wrong(comm, 1);
    const ncclDevComm device = network_comm(comm, 3, 2);
    devcomm::launch(send_by_all_ways, one_block(words), in.window, out.window, device, wrong.data);
    finish();
    ncclResult_t state = ncclInternalError;
    ok(ncclCommGetAsyncError(comm, &state));
    ok(state);
    expect_none(wrong);
    ok(ncclDevCommDestroy(comm, &device));
  });
}

namespace {

__global__ void follow(ncclDevComm comm, int* wrong) {
  const ncclCoopCta cta;
  const ncclGin gin(comm, 0);
  const ncclTeam world = ncclTeamWorld(comm);
  ncclGinBarrier(cta, gin, ncclTeamTagWorld(), 0);
  for (int peer = static_cast<int>(threadIdx.x); peer < comm.nRanks; peer += static_cast<int>(blockDim.x))
    gin.signal(world, peer, ncclGin_StrongSignalInc{0});
  if (threadIdx.x < static_cast<unsigned>(comm.nRanks)) gin.increaseSignalShadow(0, 1);
  gin.waitSignalMeetShadow(cta, 0);
  if (threadIdx.x == 0) gin.signal(world, (comm.rank + 1) % comm.nRanks, ncclGin_WeakSignalAdd{1, 3});
  std::uint32_t before = 9, delta = 9;
  gin.waitSignalFollowShadow(cta, 1, 2u, &before, &delta);
  if (before != 0 || delta != 3 || *gin.getSignalShadowPtr(1) != 3) atomicAdd(wrong, 1);
  if (*gin.getSignalShadowPtr(0) != static_cast<std::uint64_t>(comm.nRanks)) atomicAdd(wrong, 1);
}

}  // namespace

TEST_CASE("shadows of signals are met and followed") {
  on_ranks(3, [](ncclComm_t comm, int) {
    const buffer<int> wrong(comm, 1);
    const ncclDevComm device = network_comm(comm, 2, 0);
    devcomm::launch(follow, one_block(), device, wrong.data);
    finish();
    expect_none(wrong);
    ok(ncclDevCommDestroy(comm, &device));
  });
}

namespace {

/// Puts through both contexts, each before a barrier of another kind.
__global__ void fence_by_all_ways(ncclWindow_t in, ncclWindow_t out, ncclDevComm comm, ncclGinBarrierHandle own,
                                  int* wrong) {
  const ncclCoopCta cta;
  const ncclTeam world = ncclTeamWorld(comm);
  const ncclGin first(comm, 0), second(comm, 1);
  const int next = (comm.rank + 1) % comm.nRanks, before = (comm.rank + comm.nRanks - 1) % comm.nRanks;
  auto* const source = static_cast<int*>(ncclGetLocalPointer(in, 0));
  const auto* const came = static_cast<const int*>(ncclGetLocalPointer(out, 0));
  ncclBarrierSession<ncclCoopCta> hybrid(cta, ncclTeamTagWorld(), first, 1);
  hybrid.sync(cta, cuda::memory_order_relaxed, ncclGinFenceLevel::None);
  for (int way = 0; way < 6; ++way) {
    source[threadIdx.x] = comm.rank * 100 + way + 1;
    cta.sync();
    if (threadIdx.x == 0) {
      first.put(world, next, out, 0, in, 0, 128);
      (way == 1 ? second : first).put(world, next, out, 128, in, 128, 128);
    }
    cta.sync();
    if (way == 0)
      ncclGinBarrierSession<ncclCoopCta>(cta, first, ncclTeamTagWorld(), 0).sync(cta, cuda::memory_order_acq_rel);
    if (way == 1) ncclGinBarrier(cta, ncclGinAllContexts{comm}, ncclTeamTagWorld(), 1);
    if (way == 2) ncclGinBarrier(cta, first, world, own, 1);
    if (way == 3) ncclGinBarrier(cta, first, world, comm.railGinBarrier, 1);  // slots for the world, too
    if (way == 4) hybrid.sync(cta, cuda::memory_order_acq_rel);
    if (way == 5) ncclBarrier(cta, ncclTeamTagWorld(), first, 0);
    if (came[threadIdx.x] != before * 100 + way + 1) atomicAdd(wrong, 1);
    if (hybrid.sync(cta, cuda::memory_order_acq_rel, ncclGinFenceLevel::Get, 1ull << 40) != ncclSuccess)
      atomicAdd(wrong, 1);
  }
  if (comm.lsaSize > 1) hybrid.lsaBarrier().sync(cta, cuda::memory_order_acq_rel);
}

}  // namespace

TEST_CASE("barriers over the network, and of both kinds of peers, fence what they say") {
  on_hosts(4, [](ncclComm_t comm, int) {
    const buffer<int> in(comm, words), out(comm, words), wrong(comm, 1);
    ncclGinBarrierHandle_t own{};
    ncclDevResourceRequirements_t nodes[2]{};
    ok(ncclGinBarrierCreateRequirement(comm, ncclTeamWorld(comm), 2, &own, nodes));
    ncclGinSignal_t more = 99;
    nodes[0].next = nodes + 1;
    nodes[1].ginSignalCount = 5;
    nodes[1].outGinSignalStart = &more;
    const ncclDevComm device = network_comm(comm, 3, 0, 2, nodes);
    require(more == 3, "signals of a list follow the program's");
    devcomm::launch(fence_by_all_ways, one_block(words), in.window, out.window, device, own, wrong.data);
    finish();
    expect_none(wrong);
    ok(ncclDevCommDestroy(comm, &device));
  });
}

namespace {

/// Along the rail, and inside the LSA team: what goes to the next member of each.
__global__ void use_rails(ncclWindow_t in, ncclWindow_t out, ncclDevComm comm, int* wrong) {
  const ncclCoopWarp warp;
  const ncclGin_BackendOne<NCCL_GIN_TYPE_PROXY> any_backend(comm, 1, NCCL_GIN_RESOURCE_SHARING_THREAD);
  const ncclGin gin(comm, 0);
  const ncclTeam rail = ncclTeamRail(comm), lsa = ncclTeamLsa(comm);
  const std::size_t row = sizeof(int) * 32;
  auto* const source = static_cast<int*>(ncclGetLocalPointer(in, 0));
  const auto* const came = static_cast<const int*>(ncclGetLocalPointer(out, 0));
  for (int round = 0; round < 3; ++round) {
    source[threadIdx.x] = comm.rank * 10 + round;
    warp.sync();
    if (round == 0) ncclGinBarrier(warp, gin, ncclTeamTagRail(), 0);
    if (round == 1) ncclBarrier(warp, ncclTeamTagRail(), gin, 0);
    if (round == 2)
      ncclGinBarrierSession<ncclCoopWarp>(warp, gin, rail, comm.railGinBarrier, 1)
          .sync(warp, cuda::memory_order_relaxed);
    gin.put(rail, (rail.rank + 1) % rail.nRanks, out, 0, in, 0, row, ncclGin_WeakSignalInc{0}, ncclGin_None{}, warp,
            ncclGin_DescriptorSmem{nullptr}, cuda::thread_scope_block, cuda::thread_scope_system, 0,
            ncclGin_SegmentMixed{});
    gin.waitSignal(warp, 0, static_cast<unsigned>(round) + 1);
    const int before = ncclTeamRankToWorld(comm, rail, (rail.rank + rail.nRanks - 1) % rail.nRanks);
    if (came[threadIdx.x] != before * 10 + round) atomicAdd(wrong, 1);
    gin.flush(warp);
    {
      ncclBarrierSession<ncclCoopWarp> inside(warp, ncclTeamTagLsa(), comm, 0);
      const int next = (lsa.rank + 1) % lsa.nRanks;
      static_cast<int*>(ncclGetLsaPointer(out, row, next))[threadIdx.x] = lsa.rank * 10 + round;
      inside.sync(warp, cuda::memory_order_acq_rel, ncclGinFenceLevel::None);
      if (came[32 + threadIdx.x] != (lsa.rank + lsa.nRanks - 1) % lsa.nRanks * 10 + round) atomicAdd(wrong, 1);
      inside.lsaBarrier().sync(warp, cuda::memory_order_acq_rel);
    }
    ncclBarrierSession<ncclCoopWarp> both(warp, lsa, rail, gin, comm.lsaBarrier, comm.railGinBarrier, 0);
    both.sync(warp, cuda::memory_order_acq_rel, ncclGinFenceLevel::None);
  }
  any_backend.flush(warp);
  // Hints of every kind, to this rank itself.
  __shared__ ncclGinDescriptorSmem descriptor;
  if (threadIdx.x == 0) {
    const ncclGin_BackendMask<NCCL_GIN_BACKEND_MASK_ALL> gin_of_thread(comm, 1);
    gin_of_thread.put(rail, rail.rank, out, 0, in, 0, 4, ncclGin_None{}, ncclGin_None{}, ncclCoopThread(),
                      ncclGin_DescriptorSmem{&descriptor}, cuda::thread_scope_system, cuda::thread_scope_system,
                      ncclGinOptFlagsMaySkipCreditCheck, ncclGin_SegmentDevice{});
    gin_of_thread.get(rail, rail.rank, in, 0, out, 8, 4, ncclCoopThread(), ncclGin_None{}, ncclGinOptFlagsDefault,
                      ncclGin_SegmentHostNuma{});
    gin_of_thread.flush(ncclCoopThread());
  }
}

}  // namespace

TEST_CASE("rails and LSA teams have barriers of their own") {
  setenv("DEVCOMM_LSA_SIZE", "2", 1);
  on_ranks(4, [](ncclComm_t comm, int rank) {
    const buffer<int> in(comm, 32), out(comm, words), wrong(comm, 1);
    ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    asked.ginConnectionType = NCCL_GIN_CONNECTION_RAIL;
    asked.ginSignalCount = 1;
    asked.barrierCount = asked.lsaBarrierCount = 1;
    asked.railGinBarrierCount = 2;
    ncclDevComm device;
    ok(ncclDevCommCreate(comm, &asked, &device));
    require(device.lsaSize == 2 && device.lsaRank == rank % 2, "the LSA team");
    const ncclTeam rail = ncclTeamRail(comm);
    require(rail.nRanks == 2 && ncclTeamRankToWorld(comm, rail, 1) == 2 + rank % 2, "the rail");
    devcomm::launch(use_rails, one_block(32), in.window, out.window, device, wrong.data);
    finish();
    expect_none(wrong);
    ok(ncclDevCommDestroy(comm, &device));
  });
  unsetenv("DEVCOMM_LSA_SIZE");
}

namespace {

/// Waits with a limit: for what does not come, for what does, and for what has.
template <class Coop>
__global__ void wait_with_limits(ncclWindow_t window, ncclDevComm comm, uint64_t cycles, int* wrong) {
  Coop warp{};
  const ncclGin gin(comm, 0);
  const auto expect = [&](ncclResult_t had, ncclResult_t right) {
    if (had != right && warp.thread_rank() == 0) atomicAdd(wrong, 1);
  };
  const uint64_t long_time = uint64_t{1} << 40;
  expect(gin.waitCounter(warp, 0, 1, 56, cuda::memory_order_acquire, cycles), ncclTimeout);
  expect(gin.waitSignal(warp, 0, 1, 64, cuda::memory_order_acquire, cycles), ncclTimeout);
  gin.put(ncclTeamWorld(comm), (comm.rank + 1) % comm.nRanks, window, 64, window, 0, 32, ncclGin_StrongSignalInc{0},
          ncclGin_WeakCounterInc{0}, warp);
  expect(gin.waitCounter(warp, 0, 1, 56, cuda::memory_order_acquire, long_time), ncclSuccess);
  expect(gin.waitSignal(warp, 0, 1, 64, cuda::memory_order_acquire, long_time), ncclSuccess);
  expect(gin.flush(warp, cuda::memory_order_acquire, ncclGin_None{}, long_time), ncclSuccess);
  ncclGinRequest_t request;
  gin.flushAsync(ncclTeamWorld(comm), static_cast<uint32_t>(comm.rank), &request, warp);
  expect(gin.wait(request, warp, ncclGin_None{}, cuda::memory_order_acquire, long_time), ncclSuccess);
  ncclGinBarrier(warp, gin, ncclTeamTagWorld(), 0);
}

}  // namespace

TEST_CASE("every wait may have a limit") {
  on_ranks(2, [](ncclComm_t comm, int) {
    const buffer<int> memory(comm, 64), wrong(comm, 1);
    for (const auto kernel : {wait_with_limits<ncclCoopWarp>, wait_with_limits<coop_of_program>}) {
      const ncclDevComm device = network_comm(comm, 1, 1);
      devcomm::launch(kernel, one_block(32), memory.window, device, std::uint64_t{device.cyclesPerMicrosecond} * 200,
                      wrong.data);
      finish();
      expect_none(wrong);
      ok(ncclDevCommDestroy(comm, &device));
    }
  });
}

#ifdef DEVCOMM_SIMULATOR

namespace {

enum class past { context, no_contexts, signal, counter, gin_barrier, lsa_barrier };

__global__ void go_past(ncclDevComm comm, past which) {
  const ncclCoopCta cta;
  if (which == past::lsa_barrier) ncclLsaBarrierSession<ncclCoopCta>(cta, comm, ncclTeamTagLsa(), 7);
  if (which == past::context) ncclGin(comm, 7).flush(cta);
  const ncclGin gin(comm, 0);
  if (which == past::signal) gin.signal(ncclTeamWorld(comm), 0, ncclGin_WeakSignalInc{7}, cta);
  if (which == past::counter) gin.waitCounter(cta, 7, 1);
  if (which == past::gin_barrier) ncclGinBarrier(cta, gin, ncclTeamTagWorld(), 7);
}

}  // namespace

TEST_CASE("an index past what was asked for is named, with the requirement that asks for more") {
  struct expected {
    past which;
    const char* said;
  };
  for (const expected& one : {expected{past::context, "ask for more by ginContextCount"},
                              {past::no_contexts, "set ncclDevCommRequirements::ginConnectionType"},
                              {past::signal, "ask for more by ginSignalCount"},
                              {past::counter, "ask for more by ginCounterCount"},
                              {past::gin_barrier, "ask for more by worldGinBarrierCount"},
                              {past::lsa_barrier, "ask for more by lsaBarrierCount"}}) {
    on_ranks(1, [&](ncclComm_t comm, int) {
      const ncclDevComm device = one.which == past::no_contexts ? device_comm(comm, 1) : network_comm(comm, 3, 2);
      devcomm::launch(go_past, one_block(32), device, one.which);
      require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the kernel was right");
      const std::string said = devcomm::simulator::last_failure();
      require(said.find(one.said) != std::string::npos, said);
      devcomm::check_cuda(cudaDeviceReset(), "cudaDeviceReset");
    });
  }
}

#endif
