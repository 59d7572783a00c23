/// NCCL's names of multimem, each by what it promises: windows that had none before it was asked for, teams, sums and
/// copies; and what is refused.
#include <nccl_device.h>

#include "nccl/on_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

namespace {

bool has_multimem(ncclComm_t comm) {
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  ok(ncclCommQueryProperties(comm, &properties));
  return properties.multimemSupport;
}

ncclDevComm with_multimem(ncclComm_t comm, ncclTeamRequirements_t* teams = nullptr,
                          ncclDevResourceRequirements_t* list = nullptr) {
  ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  asked.lsaBarrierCount = 1;
  asked.lsaMultimem = true;
  asked.teamRequirementsList = teams;
  asked.resourceRequirementsList = list;
  ncclDevComm made;
  ok(ncclDevCommCreate(comm, &asked, &made));
  return made;
}

template <class T>
std::vector<T> fill(const buffer<T>& memory, int rank, int count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<T>((rank + 1) * (i % 13));
  ok(cudaMemcpy(memory.data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return values;
}

/// Every way to sum and copy, each to a row of its own, of `count` elements, a multiple of 4 bytes but for the first.
template <class T>
__global__ void move_data(ncclWindow_t in, ncclWindow_t out, int count, int odd_count, ncclDevComm comm) {
  const ncclCoopCta cta;
  const ncclTeam lsa = ncclTeamLsa(comm);
  const ncclMultimemHandle mm = comm.lsaMultimem;
  const ncclSymPtr<T> source(in), rows(out);
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), 0, true);
  barrier.sync(cta, cuda::memory_order_relaxed);
  const auto row = [&](int i) { return rows + i * count; };
  const auto bytes = [&](int elements) { return sizeof(T) * static_cast<std::size_t>(elements); };
  ncclMultimemReduceSum<T>(cta, source, row(0).localPtr(), odd_count, mm);
  ncclMultimemReduceSum<T>(cta, source.lsaMultimemPtr(comm), row(1).localPtr(), count);
  ncclMultimemReduceSum<T>(cta, in, 0, row(2).localPtr(), count, mm);
  // From here on each rank writes to all: a part of its own.
  const int part = count / lsa.nRanks, first = lsa.rank * part;
  const auto own = source + first;
  const auto to = [&](int i) { return row(i) + first; };
  ncclMultimemReduceSumCopy<T>(cta, own, mm, to(3), mm, part);
  ncclMultimemReduceSumCopy<T>(cta, own.multimemPtr(mm), to(4).multimemPtr(mm), part);
  ncclMultimemReduceSumCopy<T>(cta, in, bytes(first), mm, out, bytes(5 * count + first), mm, part);
  ncclLsaReduceSumMultimemCopy<T>(cta, own, lsa, to(6), mm, part);
  ncclLsaReduceSumMultimemCopy<T>(cta, own, lsa, to(7).lsaMultimemPtr(comm), part);
  ncclLsaReduceSumMultimemCopy<T>(
      cta, [&](int i) { return own.lsaPtr(i); }, lsa.nRanks, [&](int i) { return to(8 + i).multimemPtr(mm); }, 1, part);
  ncclMultimemReduceSumLsaCopy<T>(cta, own, mm, to(9), lsa, part);
  ncclMultimemReduceSumLsaCopy<T>(cta, own.multimemPtr(mm), to(10), lsa, part);
  ncclMultimemReduceSumLsaCopy<T>(
      cta, [&](int) { return own.multimemPtr(mm); }, 1, [&](int i) { return to(11).lsaPtr(i); }, lsa.nRanks, part);
  ncclMultimemReduceSumMultimemCopy<T>(
      cta, [&](int) { return own.multimemPtr(mm); }, 1, [&](int) { return to(12).multimemPtr(mm); }, 1, part);
  ncclLsaReduceMultimemCopy<T>(
      cta, [&](int i) { return own.lsaPtr(i); }, lsa.nRanks, [&](int) { return to(13).multimemPtr(mm); }, 1,
      devcomm::maximum{}, part);
  ncclMultimemCopy<T>(cta, own.localPtr(), to(14), part, mm);
  ncclMultimemCopy<T>(cta, own.localPtr(), to(15).multimemPtr(mm), part);
  ncclMultimemCopy<T>(cta, own.localPtr(), out, bytes(16 * count + first), part, mm);
  barrier.sync(cta, cuda::memory_order_acq_rel);
}

template <class T>
void check_sums() {
  static constexpr int ranks = 3, count = 3 * 68, odd_count = 101;
  on_ranks(ranks, [](ncclComm_t comm, int rank) {
    if (!has_multimem(comm)) return;
    const buffer<T> in(comm, count), out(comm, 17 * count);
    fill(in, rank, count);
    const ncclDevComm device = with_multimem(comm);
    devcomm::launch(move_data<T>, one_block(), in.window, out.window, count, odd_count, device);
    finish();
    for (int row = 0; row < 17; ++row)
      for (int i = 0; i < (row == 0 ? odd_count : count); ++i) {
        const int base = i % 13, owner = i / (count / ranks);
        const int right = row == 13 ? 3 * base : row < 14 ? 6 * base : (owner + 1) * base;
        const auto have = static_cast<float>(out.read(static_cast<std::size_t>(row * count + i)));
        require(have == static_cast<float>(right),
                "row " + std::to_string(row) + ", element " + std::to_string(i) + ": " + std::to_string(have));
      }
    ok(ncclDevCommDestroy(comm, &device));
  });
}

}  // namespace

TEST_CASE("sums and copies by multicast addresses of windows that were registered before multimem was asked for") {
  check_sums<float>();
  check_sums<double>();
  check_sums<int>();
  check_sums<__half>();
  check_sums<__nv_bfloat16>();
}

namespace {

/// Adds one for each member to a word of all members of two teams, by the one address of each.
__global__ void count_members(ncclWindow_t window, ncclMultimemHandle of_pair, ncclDevComm comm,
                              ncclDevResourceHandle_t handle) {
  const ncclCoopThread self;
  auto* const pair = static_cast<unsigned*>(ncclGetMultimemPointer(window, 4, of_pair));
  auto* const all = static_cast<unsigned*>(ncclGetLsaMultimemPointer(window, 8, comm));
  auto* const inside = static_cast<unsigned*>(ncclGetResourceBufferLsaMultimemPointer(comm, handle));
  const bool same = ncclGetResourceBufferMultimemPointer(comm, handle, comm.lsaMultimem) == inside;
  asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;" : : "l"(pair), "r"(1u) : "memory");
  asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;" : : "l"(all), "r"(1u) : "memory");
  asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;" : : "l"(inside), "r"(same ? 1u : 9u) : "memory");
  ncclLsaBarrierSession<ncclCoopThread> barrier(self, comm, ncclTeamTagLsa(), 0);
  barrier.sync(self, cuda::memory_order_acq_rel);
  *static_cast<unsigned*>(ncclGetLocalPointer(window, 12)) =
      *static_cast<unsigned*>(ncclGetResourceBufferLocalPointer(comm, handle));
}

}  // namespace

TEST_CASE("multimem of parts of the LSA team, and of the resource window; windows of later") {
  on_ranks(4, [](ncclComm_t comm, int) {
    if (!has_multimem(comm)) return;
    ncclDevResourceHandle_t handle = 0;
    ncclDevResourceRequirements_t buffers{};
    buffers.bufferSize = 64;
    buffers.outBufferHandle = &handle;
    ncclMultimemHandle_t of_pair{};
    ncclTeamRequirements_t pair{};
    pair.team = ncclTeamInnerFactor(ncclTeamLsa(comm), 2);
    pair.multimem = true;
    pair.outMultimemHandle = &of_pair;
    const ncclDevComm device = with_multimem(comm, &pair, &buffers);
    const buffer<unsigned> later(comm, 4);
    devcomm::launch(count_members, one_block(1), later.window, of_pair, device, handle);
    finish();
    const buffer<unsigned> met(comm, 1);  // all ranks are here
    require(later.read(1) == 2 && later.read(2) == 4 && later.read(3) == 4, "members that were reached");
    void* there = nullptr;
    ok(ncclGetLsaMultimemDevicePointer(later.window, 8, &there));
    void* same = nullptr;
    ok(ncclGetMultimemDevicePointer(later.window, 8, device.lsaMultimem, &same));
    require(there != nullptr && same == there, "the addresses for hosts");
    const ncclDevComm again = with_multimem(comm, &pair);
    require(again.lsaMultimem.mcBasePtr == device.lsaMultimem.mcBasePtr, "one team, one handle");
    ok(ncclDevCommDestroy(comm, &again));
    ok(ncclDevCommDestroy(comm, &device));
  });
}

TEST_CASE("multimem that cannot be had is refused, or has no address") {
  on_ranks(1, [](ncclComm_t comm, int) {
    ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    asked.lsaMultimem = true;
    ncclDevComm device;
    fails(ncclDevCommCreate(comm, &asked, &device), ncclInvalidUsage, "there is no multicast: ");
  });
  on_ranks(2, [](ncclComm_t comm, int rank) {
    if (!has_multimem(comm)) return;
    ncclTeamRequirements_t too_large{};
    too_large.team = {3, rank, 1};
    too_large.multimem = true;
    ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    asked.teamRequirementsList = &too_large;
    ncclDevComm none;
    fails(ncclDevCommCreate(comm, &asked, &none), ncclInvalidArgument, "is a part of the LSA team");
    const buffer<int> good(comm, 4096);
    ncclWindow_t shifted = nullptr, plain = nullptr;
    int* other = nullptr;
    ok(cudaMalloc(reinterpret_cast<void**>(&other), 4096));
    ok(ncclCommWindowRegister(comm, good.data + rank * 16, 64, &shifted, NCCL_WIN_COLL_SYMMETRIC));
    ok(ncclCommWindowRegister(comm, other, 4096, &plain, NCCL_WIN_COLL_SYMMETRIC));
    void* there = &there;
    fails(ncclGetLsaMultimemDevicePointer(good.window, 0, &there), ncclInvalidUsage,
          "no device communicator with multimem has been made");
    const ncclDevComm device = with_multimem(comm);
    ok(ncclGetLsaMultimemDevicePointer(good.window, 0, &there));
    require(there != nullptr, "memory of ncclMemAlloc has an address");
    fails(ncclGetLsaMultimemDevicePointer(shifted, 0, &there), ncclInvalidUsage,
          "rank 1's memory begins 64 bytes into its allocation and rank 0's 0: begin at one place on every rank");
    require(there == nullptr, "an address for memory at different places");
    fails(ncclGetLsaMultimemDevicePointer(plain, 0, &there), ncclInvalidUsage,
          "rank 0: its memory cannot be bound to a multicast object");
    fails(ncclGetMultimemDevicePointer(plain, 0, {nullptr}, &there), ncclInvalidArgument, "no such handle");
    fails(ncclMemFree(other), ncclInvalidArgument, "none that ncclMemAlloc has returned");
    ok(ncclDevCommDestroy(comm, &device));
    ok(ncclCommWindowDeregister(comm, plain));
    ok(ncclCommWindowDeregister(comm, shifted));
    ok(cudaFree(other));
  });
}

#ifdef DEVCOMM_SIMULATOR

namespace {

__global__ void read_all(ncclWindow_t window, float* out, ncclDevComm comm) {
  ncclMultimemReduceSum<float>(ncclCoopCta(), window, 0, out, 16, comm.lsaMultimem);
}
__global__ void write_odd(ncclWindow_t window, const __half* in, ncclDevComm comm) {
  ncclMultimemCopy<__half>(ncclCoopCta(), in, window, 0, 3, comm.lsaMultimem);
}

void said(const std::string& text) {
  require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the kernel was right");
  const std::string failure = devcomm::simulator::last_failure();
  require(failure.find(text) != std::string::npos, failure);
}

}  // namespace

TEST_CASE("a window without a multicast address, and bytes that the switch does not store, are named") {
  for (const bool without_address : {true, false})
    on_ranks(2, [without_address](ncclComm_t comm, int rank) {
      if (!has_multimem(comm)) return;
      float* other = nullptr;
      ok(cudaMalloc(reinterpret_cast<void**>(&other), 4096));
      ncclWindow_t plain = nullptr;
      ok(ncclCommWindowRegister(comm, other, 4096, &plain, NCCL_WIN_COLL_SYMMETRIC));
      const buffer<float> good(comm, 64);
      const ncclDevComm device = with_multimem(comm);
      if (rank == 0 && without_address) {
        devcomm::launch(read_all, one_block(), plain, other, device);
        said("the window has no multicast address: its memory comes from ncclMemAlloc on every rank");
      } else if (rank == 0) {
        devcomm::launch(write_odd, one_block(), good.window, static_cast<const __half*>(nullptr), device);
        said("a multicast address is written in 4 bytes at least");
      }
      if (rank == 0) devcomm::check_cuda(cudaDeviceReset(), "cudaDeviceReset");
    });
}

#endif
