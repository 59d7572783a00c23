/// NCCL's names, each by what it promises: communicators and groups, windows, teams, groups of threads, pointers,
/// barriers of the LSA team; and how wrong calls end.
#include <nccl_device.h>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "nccl/on_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

// Of another unit.
__global__ void count_ranks(ncclDevComm comm, int* counted);

namespace {

// --- pointers ---

/// Each rank stores its number to all, by each way that there is to an address.
__global__ void store_by_all_ways(ncclWindow_t* handles, void* opaque, ncclDevComm comm) {
  const ncclWindow_t window = handles[1];
  const auto as_handle = static_cast<ncclWindow_t>(opaque);
  const ncclTeam world = ncclTeamWorld(comm);
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= comm.nRanks) return;
  const std::size_t row = sizeof(int) * static_cast<std::size_t>(comm.rank);
  const std::size_t next = sizeof(int) * static_cast<std::size_t>(comm.nRanks);
  *static_cast<int*>(ncclGetLsaPointer(window, row, peer)) = comm.rank + 1;
  *static_cast<int*>(ncclGetPeerPointer(as_handle, row + next, peer)) = comm.rank + 2;
  *static_cast<int*>(ncclGetPeerPointer(window, row + 2 * next, world, peer)) = comm.rank + 3;
  const ncclSymPtr<char> bytes{window, 0};
  ncclSymPtr<int> at = bytes;
  at += 3 * comm.nRanks;
  *(at + comm.rank).lsaPtr(peer) = comm.rank + 4;
  at = at + static_cast<unsigned long long>(comm.nRanks);
  if (!ncclDevCommCanGetPeerPointer(comm, peer) || !ncclDevCommCanGetPeerPointer(comm, world, peer)) return;
  if (at - ncclSymPtr<int>(window) == 4 * comm.nRanks && at != ncclSymPtr<int>())
    *(at + comm.rank).peerPtr(world, peer) = comm.rank + 5;
}

}  // namespace

TEST_CASE("a window handle lies in device arrays and passes as void*, and all ways lead to one address") {
  on_ranks(3, [](ncclComm_t comm, int rank) {
    const buffer<int> memory(comm, 15);
    const ncclDevComm device = device_comm(comm, 1);
    ncclWindow_t* handles = nullptr;
    ok(cudaMalloc(reinterpret_cast<void**>(&handles), 2 * sizeof(ncclWindow_t)));
    const ncclWindow_t both[] = {nullptr, memory.window};
    ok(cudaMemcpy(handles, both, sizeof both, cudaMemcpyHostToDevice));
    devcomm::launch(store_by_all_ways, one_block(), handles, static_cast<void*>(memory.window), device);
    finish();
    const buffer<int> met(comm, 1);  // all ranks are here
    for (int way = 0; way < 5; ++way)
      for (int r = 0; r < 3; ++r)
        require(memory.read(static_cast<std::size_t>(way * 3 + r)) == r + 1 + way, "way " + std::to_string(way));
    void* found = nullptr;
    ok(ncclWinGetUserPtr(comm, memory.window, &found));
    require(found == memory.data, "ncclWinGetUserPtr");
    ok(ncclGetLsaDevicePointer(memory.window, 4, rank, &found));
    require(found == memory.data + 1, "ncclGetLsaDevicePointer");
    ok(ncclGetPeerDevicePointer(memory.window, 4, 3, &found));
    require(found == nullptr, "a peer that there is not");
    ok(cudaFree(handles));
    ok(ncclDevCommDestroy(comm, &device));
    ok(ncclCommWindowDeregister(comm, memory.window));
    ok(ncclCommWindowDeregister(comm, nullptr));
  });
}

TEST_CASE("teams have no first rank, and factors, differences and conversions fit together") {
  ncclDevComm comm{};
  comm.nRanks = 12;
  comm.lsaSize = 4;
  for (comm.rank = 0; comm.rank < 12; ++comm.rank) {
    comm.lsaRank = comm.rank % 4;
    const ncclTeam world = ncclTeamWorld(comm), lsa = ncclTeamLsa(comm), rail = ncclTeamRail(comm);
    CHECK((rail.nRanks == 3 && rail.rank == comm.rank / 4 && rail.stride == 4));
    for (int r = 0; r < 12; ++r) {
      CHECK(ncclTeamRankToWorld(comm, world, r) == r);
      CHECK(ncclTeamRankIsMember(lsa, world, r) == (r / 4 == comm.rank / 4));
      CHECK(ncclTeamRankIsMember(rail, world, r) == (r % 4 == comm.lsaRank));
      if (r / 4 == comm.rank / 4) CHECK(ncclTeamRankToTeam(lsa, world, r) == r % 4);
      CHECK(ncclTeamRankToLsa(comm, world, r) == comm.lsaRank + r - comm.rank);
    }
    const ncclTeam pairs = ncclTeamInnerFactor(world, 2), others = ncclTeamOuterFactor(world, 2);
    CHECK((pairs.nRanks == 2 && pairs.rank == comm.rank % 2 && pairs.stride == 1));
    CHECK((others.nRanks == 6 && others.rank == comm.rank / 2 && others.stride == 2));
    CHECK(ncclTeamRankToWorld(comm, others, 5) == 10 + comm.rank % 2);
    int found = 0;
    for (int r = 0; r < 12; ++r)
      if (r / 4 != comm.rank / 4) CHECK(ncclTeamRankInDifference(world, lsa, found++) == r);
    CHECK(ncclTeamRankInDifference(world, lsa, found) == -1);
  }
}

namespace {

// --- groups of threads ---

template <class Coop>
__device__ int own_coop(const Coop& coop, int rank, int size) {
  int value = ncclCoopBcast(coop, coop.thread_rank() == size - 1 ? 7 : 0, size - 1);
  coop.sync();
  return coop.thread_rank() == rank && coop.size() == size && coop.num_threads() == size && value == 7 ? 0 : 1;
}
__global__ void use_coops(int* wrong) {
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  int bad = own_coop(ncclCoopCta(), t, 64) + own_coop(ncclCoopWarp(), lane, 32) + own_coop(ncclCoopThread(), 0, 1) +
            own_coop(ncclCoopTile<8>(), lane % 8, 8) + own_coop(ncclCoopLanes(), lane, 32) +
            own_coop(ncclCoopWarpSpan(0, 2, 0), t, 64) + own_coop(ncclCoopAny(ncclCoopWarp()), lane, 32) +
            own_coop(ncclCoopAny(ncclCoopCta()), t, 64);
  if (lane % 2 == 1) bad += own_coop(ncclCoopLanes(0xaaaaaaaau), lane / 2, 16);
  bad += ncclCoopIsThread(ncclCoopThread()) && !ncclCoopIsThread(ncclCoopWarp()) ? 0 : 1;
  bad += ncclCoopWithinWarp(ncclCoopTile<4>()) && !ncclCoopWithinWarp(ncclCoopCta()) ? 0 : 1;
  bad += ncclCoopGetLaneMask(ncclCoopTile<4>()) == 0xfu << lane / 4 * 4 ? 0 : 1;
  bad += ncclCoopCoalesced(ncclCoopWarp()).size() == 32 && ncclCoopCoalesced().size() == 32 ? 0 : 1;
  if (bad != 0) atomicAdd(wrong, bad);
}

}  // namespace

TEST_CASE("groups of threads have their ranks and sizes, and share values") {
  on_ranks(1, [](ncclComm_t comm, int) {
    const buffer<int> wrong(comm, 1);
    devcomm::launch(use_coops, one_block(), wrong.data);
    finish();
    require(wrong.read(0) == 0, std::to_string(wrong.read(0)) + " wrong answers");
  });
}

namespace {

// --- barriers ---

/// Rounds of storing to the next rank and reading what came, by one barrier with each order that allows it.
template <class Coop>
__global__ void pass_around(ncclWindow_t window, ncclDevComm comm, ncclTeam team, ncclLsaBarrierHandle handle,
                            int* wrong) {
  const Coop coop;
  ncclLsaBarrierSession<Coop> barrier(coop, comm, team, handle, 1);
  const std::size_t place = sizeof(int) * threadIdx.x;
  auto* const own = static_cast<int*>(ncclGetLocalPointer(window, place));
  const int next = ncclTeamRankToLsa(comm, team, (team.rank + 1) % team.nRanks);
  const int before = (team.rank + team.nRanks - 1) % team.nRanks;
  for (int round = 1; round <= 4; ++round) {
    *static_cast<int*>(ncclGetLsaPointer(window, place, next)) = team.rank * 100 + round;
    if (round % 2 == 0) {
      barrier.sync(coop, cuda::memory_order_seq_cst);
    } else {
      barrier.arrive(coop, cuda::memory_order_release);
      barrier.wait(coop, cuda::memory_order_acquire);
    }
    if (*own != before * 100 + round) atomicAdd(wrong, 1);
    if (barrier.sync(coop, cuda::memory_order_acq_rel, 1ull << 40) != ncclSuccess) atomicAdd(wrong, 1);
  }
}

}  // namespace

TEST_CASE("a barrier of the LSA team, and of a part of it, orders what ranks store") {
  on_ranks(4, [](ncclComm_t comm, int) {
    const buffer<int> memory(comm, 64), wrong(comm, 1);
    const ncclTeam pairs = ncclTeamInnerFactor(ncclTeamLsa(comm), 2);
    ncclLsaBarrierHandle_t of_pairs{};
    ncclDevResourceRequirements_t node{};
    ok(ncclLsaBarrierCreateRequirement(pairs, 2, &of_pairs, &node));
    const ncclDevComm device = device_comm(comm, 2, &node);
    devcomm::launch(pass_around<ncclCoopCta>, one_block(), memory.window, device, ncclTeamLsa(device),
                    device.lsaBarrier, wrong.data);
    devcomm::launch(pass_around<coop_of_program>, one_block(), memory.window, device, ncclTeamLsa(device),
                    device.lsaBarrier, wrong.data);
    devcomm::launch(pass_around<ncclCoopWarp>, one_block(32), memory.window, device, pairs, of_pairs, wrong.data);
    finish();
    require(wrong.read(0) == 0, std::to_string(wrong.read(0)) + " wrong values");
    ok(ncclDevCommDestroy(comm, &device));
  });
}

namespace {

__global__ void wait_in_vain(ncclDevComm comm, int* results, std::uint64_t cycles) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0);
  const ncclResult_t first = barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel, cycles);
  results[threadIdx.x] = first;
  while (barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel, cycles) == ncclTimeout) {
  }
}
__global__ void meet(ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

}  // namespace

TEST_CASE("a limit of a barrier has one outcome for the whole group, and the barrier can be met later") {
  on_ranks(2, [](ncclComm_t comm, int rank) {
    const buffer<int> results(comm, 64);
    const ncclDevComm device = device_comm(comm, 1);
    if (rank == 0) {
      devcomm::launch(wait_in_vain, one_block(), device, results.data,
                      std::uint64_t{device.cyclesPerMicrosecond} * 200);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (rank == 1) devcomm::launch(meet, one_block(), device);
    if (rank == 0) {
      finish();
      for (std::size_t t = 0; t < 64; ++t) require(results.read(t) == ncclTimeout, "another result");
    } else {
      ok(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess ? cudaSuccess : cudaErrorUnknown);
    }
    ok(ncclDevCommDestroy(comm, &device));
  });
}

TEST_CASE("ncclCommAbort ends a kernel that waits, and the error is there to be read") {
  on_ranks(2, [](ncclComm_t comm, int rank) {
    const ncclDevComm device = device_comm(comm, 1);
    const buffer<int> met(comm, 1);
    ncclComm_t second = nullptr;
    ok(ncclCommSplit(comm, 0, 1 - rank, &second, nullptr));
    int other = -1;
    ok(ncclCommUserRank(second, &other));
    require(other == 1 - rank, "the key of a split orders its ranks");
    const ncclDevComm alone = device_comm(second, 1);
    if (rank == 0) {
      devcomm::launch(meet, one_block(), alone);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ok(ncclCommAbort(second));
    ncclResult_t state = ncclInternalError;
    ok(ncclCommGetAsyncError(comm, &state));
    require(state == ncclSuccess, "the other communicator goes on");
    static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
    static_cast<void>(cudaGetLastError());
    static_cast<void>(device);
  });
}

TEST_CASE("a communicator that one rank aborts is destroyed by the others") {
  on_ranks(3, [](ncclComm_t comm, int rank) {
    ncclComm_t second = nullptr;
    ok(ncclCommSplit(comm, 0, rank, &second, nullptr));
    const buffer<int> met(comm, 1);
    ok(rank == 1 ? ncclCommAbort(second) : ncclCommDestroy(second));
    fails(ncclCommDestroy(second), ncclInvalidArgument, "it has been destroyed");
  });
}

namespace {

__global__ void use_buffer(ncclDevComm comm, ncclDevResourceHandle_t handle, int* wrong) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0);
  const int next = (comm.lsaRank + 1) % comm.lsaSize;
  auto* const theirs = static_cast<int*>(ncclGetResourceBufferLsaPointer(comm, handle, next));
  theirs[threadIdx.x] = comm.rank;
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  const auto* const mine = static_cast<const int*>(ncclGetResourceBufferLocalPointer(comm, handle));
  if (mine[threadIdx.x] != (comm.rank + comm.nRanks - 1) % comm.nRanks) atomicAdd(wrong, 1);
  if (ncclGetResourceBufferPeerPointer(comm, handle, ncclTeamWorld(comm), next) != theirs) atomicAdd(wrong, 1);
  const ncclSymPtr<int> symmetric = ncclGetResourceBuffer(comm, handle);
  if (symmetric.lsaPtr(next) != theirs || symmetric.localPtr() != mine) atomicAdd(wrong, 1);
}

}  // namespace

TEST_CASE("parts of the resource window lie where their handles say, apart from each other") {
  on_ranks(2, [](ncclComm_t comm, int) {
    ncclDevResourceHandle_t first = 0, second = 0;
    ncclDevResourceRequirements_t nodes[2]{};
    nodes[0].next = nodes + 1;
    nodes[0].bufferSize = 100;
    nodes[0].outBufferHandle = &first;
    nodes[1].bufferSize = 64 * sizeof(int);
    nodes[1].bufferAlign = 1024;
    nodes[1].outBufferHandle = &second;
    const ncclDevComm device = device_comm(comm, 1, nodes);
    require(ncclGetResourceBufferOffset(second) % 1024 == 0, "the alignment");
    require(ncclGetResourceBufferOffset(second) >= ncclGetResourceBufferOffset(first) + 100, "they overlap");
    const buffer<int> wrong(comm, 1);
    devcomm::launch(use_buffer, one_block(), device, second, wrong.data);
    finish();
    require(wrong.read(0) == 0, "wrong values");
    ok(ncclDevCommDestroy(comm, &device));
  });
}

namespace {

/// Every way to sum and copy, each to a row of its own: rows of `count` floats.
__global__ void move_data(ncclWindow_t in, ncclWindow_t out, int count, ncclDevComm comm, int* wrong) {
  const ncclCoopCta cta;
  const ncclTeam lsa = ncclTeamLsa(comm);
  const ncclSymPtr<float> source(in);
  const ncclSymPtr<float> rows(out);
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), 0);
  barrier.sync(cta, cuda::memory_order_relaxed);
  const auto peers = [&](int i) { return source.lsaPtr(i); };
  const auto at = [](int i) { return sizeof(float) * static_cast<std::size_t>(i); };
  const auto row = [&](int i) { return (rows + i * count).localPtr(); };
  ncclLsaReduceSum<float>(cta, peers, lsa.nRanks, row(0), count);
  ncclLsaReduceSum<float>(cta, source, row(1), count, lsa);
  ncclLsaReduceSum<float>(cta, in, 0, row(2), count, comm);
  ncclLsaReduceSumLsaCopy<float>(cta, peers, lsa.nRanks, row, 0, count);  // to nobody
  ncclLsaReduceLsaCopy<float>(
      cta, peers, lsa.nRanks, [&](int i) { return row(3 + i); }, 1, devcomm::maximum{}, count);
  // From here on each rank writes to all: a part of its own.
  const int part = (count + lsa.nRanks - 1) / lsa.nRanks, first = lsa.rank * part;
  const int size = first + part < count ? part : count - first;
  ncclLsaReduceSumCopy<float>(cta, source + first, rows + (4 * count + first), size, comm);
  ncclLsaReduceSumCopy<float>(cta, in, at(first), out, at(5 * count + first), size, lsa);
  ncclLsaCopy<float>(cta, source.localPtr() + first, rows + (6 * count + first), size, comm);
  ncclLsaCopy<float>(cta, source.localPtr() + first, out, at(7 * count + first), size, lsa);
  ncclLocalReduceSum<float>(cta, 2, source.localPtr(), 0, row(8), count);
  ncclLocalCopy<float>(cta, source.localPtr(), 2, row(9), static_cast<std::size_t>(count), count);
  ncclLocalReduceSumCopy<float>(cta, 3, source.localPtr(), 0, 1, row(11), 0, count);
  barrier.sync(cta, cuda::memory_order_acq_rel);
  if (ncclFindWindow(cta, comm, row(3)) != out || ncclFindWindow(cta, comm, source.localPtr()) != in ||
      ncclFindWindow(cta, comm, wrong + 4096) != nullptr)
    atomicAdd(wrong, 1);
}

}  // namespace

TEST_CASE("sums and copies over the LSA team, and inside a rank") {
  static constexpr int count = 101;
  on_ranks(3, [](ncclComm_t comm, int rank) {
    const buffer<float> in(comm, count), out(comm, 12 * count);
    int* wrong = nullptr;
    ok(cudaMalloc(reinterpret_cast<void**>(&wrong), sizeof(int)));
    ok(cudaMemset(wrong, 0, sizeof(int)));
    std::vector<float> values(count);
    const auto value = [](int r, int i) { return static_cast<float>((r + 1) * (i % 13)); };
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = value(rank, i);
    ok(cudaMemcpy(in.data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    const ncclDevComm device = device_comm(comm, 1);
    devcomm::launch(move_data, one_block(), in.window, out.window, count, device, wrong);
    finish();
    int found = 0;
    ok(cudaMemcpy(&found, wrong, sizeof(int), cudaMemcpyDeviceToHost));
    require(found == 0, "ncclFindWindow");
    for (int row = 0; row < 12; ++row)
      for (int i = 0; i < count; ++i) {
        const int owner = i / 34;  // of the part, 34 elements each
        const float right = row == 3                ? value(2, i)
                            : row < 6               ? value(0, i) * 6
                            : row == 6 || row == 7  ? value(owner, i)
                            : row == 8              ? 2 * value(rank, i)
                            : row == 9 || row == 10 ? value(rank, i)
                                                    : 3 * value(rank, i);
        require(out.read(static_cast<std::size_t>(row * count + i)) == right,
                "row " + std::to_string(row) + ", element " + std::to_string(i));
      }
    ok(ncclDevCommDestroy(comm, &device));
    ok(cudaFree(wrong));
  });
}

namespace {

struct pair_of_floats {
  float a, b, c, d;
};

/// Each rank sends its values to all, some directly, and receives what each sent, in several epochs: of 8 bytes, and of
/// 16, which take two lines.
__global__ void exchange_small(ncclDevComm comm, ncclLLA2AHandle handle, ncclTeam team, int* wrong) {
  const ncclCoopCta cta;
  constexpr int per_rank = 4;
  const int elements = per_rank * team.nRanks;
  ncclLLA2ASession<ncclCoopCta> session(cta, comm, team, handle, blockIdx.x, elements);
  const int t = static_cast<int>(threadIdx.x);
  for (int epoch = 0; epoch < 5; ++epoch) {
    const auto value = [&](int rank, int i) { return static_cast<float>(rank * 100 + i + epoch); };
    if (t < per_rank) {
      const float mine = value(team.rank, t);
      if (epoch % 2 == 0) {
        session.bcast(team.rank * per_rank + t, pair_of_floats{mine, 1, 2, mine});
      } else {
        for (int peer = 0; peer < team.nRanks; ++peer) session.send(peer, team.rank * per_rank + t, mine);
      }
      if (epoch == 1) {
        float sum = 0;
        for (int r = 0; r < team.nRanks; ++r) sum += value(r, t);
        const float have = session.recvReduce<2, float>(
            t, team.nRanks, per_rank, [](float x) { return x; }, [](float x, float y) { return x + y; });
        if (have != sum) atomicAdd(wrong, 1);
      } else if (epoch == 3) {
        float values[3] = {};
        const int count = team.nRanks < 3 ? team.nRanks : 3;
        session.recvUnrolled<1, 3>(t, count, per_rank, values);
        for (int r = 0; r < team.nRanks; ++r) {
          const float have = r < count ? values[r] : session.recv<float>(t + r * per_rank);
          if (have != value(r, t)) atomicAdd(wrong, 1);
        }
      } else {
        for (int r = 0; r < team.nRanks; ++r) {
          const auto have = session.recv<pair_of_floats>(t + r * per_rank);
          if (have.a != value(r, t) || have.d != have.a || have.b != 1) atomicAdd(wrong, 1);
        }
      }
    }
    session.endEpoch(cta);
  }
}

}  // namespace

TEST_CASE("small values go to the slots of all ranks, of a part of the LSA team too") {
  on_ranks(4, [](ncclComm_t comm, int) {
    const buffer<int> wrong(comm, 1);
    require(ncclLLA2ACalcSlots(12, 16) == 24 && ncclLLA2ACalcSlots(3, 9) == 6, "slots");
    const ncclTeam pairs = ncclTeamInnerFactor(ncclTeamLsa(comm), 2);
    ncclLLA2AHandle_t of_all{}, of_pairs{};
    ncclDevResourceRequirements_t nodes[2]{};
    ok(ncclLLA2ACreateRequirement(2, ncclLLA2ACalcSlots(16, 16), &of_all, nodes));
    ok(ncclLLA2ACreateRequirement(1, ncclLLA2ACalcSlots(8, 16), &of_pairs, nodes + 1));
    nodes[0].next = nodes + 1;
    const ncclDevComm device = device_comm(comm, 1, nodes);
    devcomm::launch_config two = one_block();
    two.grid = dim3(2);
    devcomm::launch(exchange_small, two, device, of_all, ncclTeamLsa(device), wrong.data);
    devcomm::launch(exchange_small, one_block(), device, of_pairs, pairs, wrong.data);
    devcomm::launch(meet, one_block(), device);
    finish();
    require(wrong.read(0) == 0, std::to_string(wrong.read(0)) + " wrong values");
    fails(ncclLLA2ACreateRequirement(1, 0, &of_all, nodes), ncclInvalidArgument, "of at least 1 slot each");
    ok(ncclDevCommDestroy(comm, &device));
  });
}

TEST_CASE("several units of one program include the headers") {
  on_ranks(2, [](ncclComm_t comm, int) {
    const ncclDevComm device = device_comm(comm, 1);
    const buffer<int> counted(comm, 1);
    devcomm::launch(count_ranks, one_block(32), device, counted.data);
    finish();
    require(counted.read(0) == 2, "ranks of the LSA team");
    ok(ncclDevCommDestroy(comm, &device));
  });
}

TEST_CASE("wrong calls are refused with a sentence") {
  ncclUniqueId id{};
  ncclComm_t none = nullptr;
  fails(ncclCommInitRank(&none, 2, id, 2), ncclInvalidArgument, "rank 2 of 2: ranks are numbered from 0");
  fails(ncclCommInitRank(&none, 1, id, 0), ncclInvalidArgument, "");
  CHECK(none == nullptr);
  fails(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "where the communicator goes is null");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  fails(ncclCommInitRankConfig(&none, 1, id, 0, &config), ncclInvalidUsage, "set ncclConfig_t::blocking to 1");
  fails(ncclCommInitRankScalable(&none, 1, 0, 0, &id, nullptr), ncclInvalidArgument, "at least one id");
  ncclResetDebugInit();
  fails(ncclGroupEnd(), ncclInvalidArgument, "ncclGroupEnd without ncclGroupStart");
  int version = 0;
  ok(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE);
  on_ranks(1, [](ncclComm_t comm, int) {
    ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm device;
    asked.magic = 5;
    fails(ncclDevCommCreate(comm, &asked, &device), ncclInvalidArgument, "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER");
    std::memset(&asked, 0, sizeof asked);
    ok(ncclDevCommCreate(comm, &asked, &device));
    ok(ncclDevCommDestroy(comm, &device));
    fails(ncclDevCommDestroy(comm, &device), ncclInvalidArgument, "is not one of this communicator");
    require(std::string(ncclGetLastError(comm)).find("is not one of") != std::string::npos, "ncclGetLastError");
    void* user = nullptr;
    fails(ncclWinGetUserPtr(comm, nullptr, &user), ncclInvalidArgument, "the window handle is not one");
    ncclWindow_t window = nullptr;
    fails(ncclCommWindowRegister(comm, &window, 64, &window, 0x100), ncclInvalidUsage, "flags beyond");
    ncclCommProperties_t zeros{};
    fails(ncclCommQueryProperties(comm, &zeros), ncclInvalidArgument, "NCCL_COMM_PROPERTIES_INITIALIZER");
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    ok(ncclCommQueryProperties(comm, &properties));
    require(properties.deviceApiSupport && properties.nRanks == 1 && properties.nLsaTeams == 1, "the properties");
    void* kept = nullptr;
    ok(ncclCommRegister(comm, &window, 64, &kept));
    ok(ncclCommDeregister(comm, kept));
    ncclComm_t smaller = nullptr;
    fails(ncclCommShrink(comm, nullptr, 0, &smaller, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidUsage,
          "the ranks that go on make another communicator");
    fails(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage, "signal from a kernel, by ncclGin");
    fails(ncclPutSignal(nullptr, 0, ncclChar, 0, nullptr, 0, 0, 0, 0, comm, nullptr), ncclInvalidUsage,
          "ncclPutSignal");
    ncclWaitSignalDesc_t waited{};
    fails(ncclWaitSignal(1, &waited, comm, nullptr), ncclInvalidUsage, "ncclWaitSignal is not supported");
    int count = 0, current = -1;
    ok(ncclCommCount(comm, &count));
    ok(ncclCommCuDevice(comm, &current));
    require(count == 1 && current == 0, "size and device");
  });
}

#ifdef DEVCOMM_SIMULATOR

namespace {

__global__ void use_null(ncclWindow_t window) { *static_cast<int*>(ncclGetLocalPointer(window, 0)) = 1; }

}  // namespace

TEST_CASE("a null window is named where it is used") {
  on_ranks(1, [](ncclComm_t, int) {
    devcomm::launch(use_null, one_block(1), static_cast<ncclWindow_t>(nullptr));
    require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the kernel was right");
    const std::string said = devcomm::simulator::last_failure();
    require(said.find("the window is null: ncclCommWindowRegister") != std::string::npos, said);
    devcomm::check_cuda(cudaDeviceReset(), "cudaDeviceReset");
  });
}

#endif
