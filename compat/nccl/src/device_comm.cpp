// Device communicators, and what kernels need of one.
#include "state.hpp"

#include <devcomm/gin/contexts.hpp>
#include <devcomm/host/error.hpp>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/ll_slots.hpp>
#include <devcomm/multimem/resources.hpp>
#include <devcomm/multimem/window_record.hpp>

#include <algorithm>

namespace devcomm::nccl {
namespace {

/// What a resource is on all ranks, for the comparison of their requirements.
constexpr std::uint64_t own_buffer = 0x6e63636c;

/// In `bufferAlign` of a requirement without a buffer: its signals are a barrier's.
constexpr std::size_t mark_of_barriers = 0x62617272;

/// Numbers barriers, signals and counters in the order in which they are asked for.
struct network_parts {
  int barriers = 0;
  int signals = 0;
  int counters = 0;

  ncclGinBarrierHandle_t add_barriers(int count) {
    const ncclGinBarrierHandle_t made{static_cast<ncclGinSignal_t>(barriers), static_cast<std::uint32_t>(count)};
    barriers += count;
    return made;
  }
  void add(const ncclDevResourceRequirements_t& node, int ranks) {
    if (node.bufferSize == 0 && node.bufferAlign == mark_of_barriers) {
      const ncclGinBarrierHandle_t made = add_barriers(node.ginSignalCount / ranks);
      if (node.outGinSignalStart != nullptr) *node.outGinSignalStart = made.signal0;
      return;
    }
    if (node.outGinSignalStart != nullptr) *node.outGinSignalStart = static_cast<ncclGinSignal_t>(signals);
    if (node.outGinCounterStart != nullptr) *node.outGinCounterStart = static_cast<ncclGinCounter_t>(counters);
    signals += node.ginSignalCount;
    counters += node.ginCounterCount;
  }
};

/// Whether kernels may use the network. A communicator of one LSA team whose program asks for hybrid barriers alone has
/// none.
bool uses_network(const ncclDevCommRequirements_t& asked, const network_parts& parts, bool is_one_team) {
  if (asked.ginForceEnable || asked.ginConnectionType != NCCL_GIN_CONNECTION_NONE) return true;
  const bool by_counts = parts.signals != 0 || parts.counters != 0 || asked.railGinBarrierCount != 0 ||
                         asked.worldGinBarrierCount != 0;
  return by_counts || (asked.barrierCount != 0 && !is_one_team);
}

std::uint32_t power_of_two(int least) {
  std::uint32_t depth = 1;
  while (depth < static_cast<std::uint32_t>(least)) depth *= 2;
  return depth;
}

/// Of what, in a whole window, kernels find by a handle: the offset in units of 128 bytes.
ncclDevResourceHandle_t handle_of(std::uint64_t offset) { return static_cast<ncclDevResourceHandle_t>(offset / 128); }

/// As `window::lsa_pointer`, on the host: a table lies in device memory.
void* address_on(const window& of, int member, std::size_t offset) {
  if (of.base != nullptr) return of.base + static_cast<std::uint64_t>(member) * of.stride + offset;
  char* begin = nullptr;
  check_cuda(cudaMemcpy(&begin, of.table + member, sizeof(begin), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return begin + offset;
}

char* multicast_of_resources(const window& of) {
  multimem::window_record record{};
  check_cuda(cudaMemcpy(&record, of.multicast, sizeof(record), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return record.address;
}

/// Of the members of a part of the LSA team.
std::vector<int> world_ranks_of(const host::communicator& ranks, ncclTeam_t part) {
  const int first = ranks.lsa().rank - part.rank * part.stride;
  const int last = first + (part.nRanks - 1) * part.stride;
  if (part.nRanks < 1 || part.rank < 0 || part.rank >= part.nRanks || part.stride < 1 || first < 0 ||
      last >= ranks.lsa().size)
    throw host::invalid_argument("ncclDevCommCreate: a team with multimem is a part of the LSA team, and the rank is one "
                                 "of its members");
  std::vector<int> members;
  for (int i = 0; i < part.nRanks; ++i)
    members.push_back(ranks.lsa_ranks()[static_cast<std::size_t>(first + i * part.stride)]);
  return members;
}

std::uint32_t cycles_per_microsecond(int device) {
  int kilohertz = 0;
  check_cuda(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device), "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(std::max(kilohertz / 1000, 1));
}

}  // namespace
}  // namespace devcomm::nccl

using namespace devcomm;

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* requirements, ncclDevComm_t* outDevComm) {
  const ncclResult_t valid = nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclDevCommCreate");
    nccl::require(requirements, "ncclDevCommCreate: the requirements");
    nccl::require(outDevComm, "ncclDevCommCreate: where the device communicator goes");
    const bool is_zeroed = requirements->size == 0 && requirements->magic == 0;
    if (!is_zeroed && (requirements->magic != NCCL_API_MAGIC || requirements->size != sizeof *requirements))
      throw host::invalid_argument(
          "ncclDevCommCreate: requirements without NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER, or zeros");
  });
  if (valid != ncclSuccess) return valid;
  return nccl::submit(comm, [comm, outDevComm, asked = *requirements] {
    host::communicator& ranks = comm->get();
    devcomm::requirements needs = ranks.requirements();
    ncclDevComm made{};
    const auto barriers = [&](int count) {
      const lsa::barrier_handle added = needs.add(lsa::barriers{ranks.lsa(), static_cast<std::uint32_t>(count)});
      return ncclLsaBarrierHandle{nccl::handle_of(added.offset), count};
    };
    made.lsaBarrier = barriers(asked.lsaBarrierCount);
    made.hybridLsaBarrier = barriers(asked.barrierCount);
    nccl::network_parts network;
    network.signals = asked.ginSignalCount;
    network.counters = asked.ginCounterCount;
    made.hybridRailGinBarrier = network.add_barriers(asked.barrierCount);
    made.hybridWorldGinBarrier = network.add_barriers(asked.barrierCount);
    made.railGinBarrier = network.add_barriers(asked.railGinBarrierCount);
    made.worldGinBarrier = network.add_barriers(asked.worldGinBarrierCount);
    for (auto* node = asked.resourceRequirementsList; node != nullptr; node = node->next) {
      network.add(*node, ranks.size());
      if (node->bufferSize == 0) continue;
      const std::uint64_t offset =
          needs.add(node->bufferSize, std::max<std::size_t>(node->bufferAlign, 128), {nccl::own_buffer});
      if (node->outBufferHandle != nullptr) *node->outBufferHandle = nccl::handle_of(offset);
    }
    if (nccl::uses_network(asked, network, ranks.lsa().size == ranks.size())) {
      gin::contexts contexts{ranks.world()};
      contexts.count = static_cast<std::uint32_t>(asked.ginContextCount > 0 ? asked.ginContextCount : 4);
      contexts.signals = static_cast<std::uint32_t>(network.signals);
      contexts.counters = static_cast<std::uint32_t>(network.counters);
      contexts.barriers = static_cast<std::uint32_t>(network.barriers);
      if (asked.ginQueueDepth > 0) contexts.depth = nccl::power_of_two(asked.ginQueueDepth);
      made.ginShadows = needs.add_buffer<std::uint64_t>(std::uint64_t{contexts.count} * std::max(contexts.signals, 1u));
      made.ginContexts = needs.add(contexts);
      made.ginContextCount = contexts.count;
    }
    if (asked.lsaMultimem) {
      made.lsaMultimem = comm->add_multimem(ranks.lsa_ranks());
      made.usesMultimem = true;
      needs.add(multimem::resources{multimem::policy::required});
    }
    for (auto* node = asked.teamRequirementsList; node != nullptr; node = node->next) {
      if (!node->multimem) continue;
      const ncclMultimemHandle handle = comm->add_multimem(nccl::world_ranks_of(ranks, node->team));
      if (node->outMultimemHandle != nullptr) *node->outMultimemHandle = handle;
      made.usesMultimem = true;
    }
    host::device_communicator owner = ranks.create_device_comm(needs);
    made.base = owner.get();
    made.rank = ranks.rank();
    made.nRanks = ranks.size();
    made.lsaRank = made.base.lsa_rank();
    made.lsaSize = made.base.lsa_size;
    made.cyclesPerMicrosecond = nccl::cycles_per_microsecond(comm->device);
    if (!comm->table) comm->write_table();
    made.windowTable = comm->table->get();
    ncclWindow_vidmem shown{made.base.resources, {}};
    if (asked.lsaMultimem)
      shown.multicast[nccl::lsa_multimem] = nccl::multicast_of_resources(made.base.resources);
    auto resources = std::make_unique<nccl::on_device<ncclWindow_vidmem>>(shown);
    made.resourceWindow = resources->get();
    *outDevComm = made;
    comm->device_comms.emplace(made.base.resources.local,
                               nccl::owned_device_comm{std::move(owner), std::move(resources)});
  });
}

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclDevCommDestroy");
    nccl::require(devComm, "ncclDevCommDestroy: the device communicator");
    if (comm->device_comms.erase(devComm->base.resources.local) == 0)
      throw host::invalid_argument("ncclDevCommDestroy: the device communicator is not one of this communicator");
  });
}

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommQueryProperties");
    nccl::require(properties, "ncclCommQueryProperties: where the properties go");
    if (properties->magic != NCCL_API_MAGIC)
      throw host::invalid_argument("ncclCommQueryProperties: properties without NCCL_COMM_PROPERTIES_INITIALIZER");
    const host::communicator& ranks = comm->get();
    properties->rank = ranks.rank();
    properties->nRanks = ranks.size();
    properties->cudaDev = properties->nvmlDev = comm->device;
    properties->deviceApiSupport = true;
    properties->multimemSupport = ranks.properties().multicast.available;
    const bool has_network = ranks.properties().network.available;
    properties->ginType = properties->railedGinType = has_network ? NCCL_GIN_TYPE_PROXY : NCCL_GIN_TYPE_NONE;
    properties->nLsaTeams = ranks.size() / ranks.lsa().size;
    properties->hostRmaSupport = false;
  });
}

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outHandle, "ncclLsaBarrierCreateRequirement: where the handle goes");
    nccl::require(outReq, "ncclLsaBarrierCreateRequirement: where the requirement goes");
    if (nBarriers < 0 || team.nRanks < 1)
      throw host::invalid_argument("ncclLsaBarrierCreateRequirement: a number of barriers, of a team of at least 1");
    *outReq = {};
    outReq->bufferSize =
        lsa::barrier_layout{static_cast<std::uint32_t>(nBarriers), static_cast<std::uint32_t>(team.nRanks)}.bytes();
    outReq->bufferAlign = 128;
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->nBarriers = nBarriers;
  });
}

int ncclLLA2ACalcSlots(int maxElts, int maxEltSize) { return maxElts * ((maxEltSize + 7) / 8); }

ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outHandle, "ncclLLA2ACreateRequirement: where the handle goes");
    nccl::require(outReq, "ncclLLA2ACreateRequirement: where the requirement goes");
    if (nBlocks < 0 || nSlots < 1)
      throw host::invalid_argument("ncclLLA2ACreateRequirement: a number of blocks, of at least 1 slot each");
    *outReq = {};
    outReq->bufferSize = static_cast<std::size_t>(nBlocks) *
                         lsa::ll_slots_layout{1, static_cast<std::uint32_t>(nSlots), 1}.bytes();
    outReq->bufferAlign = 128;
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->nSlots = nSlots;
  });
}

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t, int nBarriers,
                                             ncclGinBarrierHandle_t* outHandle, ncclDevResourceRequirements_t* outReq) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclGinBarrierCreateRequirement");
    nccl::require(outHandle, "ncclGinBarrierCreateRequirement: where the handle goes");
    nccl::require(outReq, "ncclGinBarrierCreateRequirement: where the requirement goes");
    if (nBarriers < 0) throw host::invalid_argument("ncclGinBarrierCreateRequirement: a number of barriers from 0");
    *outReq = {};
    outReq->bufferAlign = nccl::mark_of_barriers;
    outReq->ginSignalCount = nBarriers * alive->get().size();
    outReq->outGinSignalStart = &outHandle->signal0;
    outHandle->count = static_cast<std::uint32_t>(nBarriers);
  });
}

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outPtr, "ncclGetLsaDevicePointer: where the address goes");
    const devcomm::window& of = nccl::find_window(window).get();
    if (lsaRank < 0 || lsaRank >= of.lsa_size || offset > of.bytes)
      throw host::invalid_argument("ncclGetLsaDevicePointer: there is no such member of the LSA team, or byte");
    *outPtr = nccl::address_on(of, lsaRank, offset);
  });
}

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outPtr, "ncclGetPeerDevicePointer: where the address goes");
    const devcomm::window& of = nccl::find_window(window).get();
    const int member = peer - of.lsa_first;
    *outPtr = member < 0 || member >= of.lsa_size || offset > of.bytes ? nullptr : nccl::address_on(of, member, offset);
  });
}

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                          void** outPtr) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outPtr, "ncclGetMultimemDevicePointer: where the address goes");
    const nccl::registered_window& of = nccl::find_window(window);
    const int team = nccl::team_number(multimem);
    if (team < 0 || team >= ncclWindow_vidmem::max_teams || offset > of.bytes())
      throw host::invalid_argument("ncclGetMultimemDevicePointer: there is no such handle, or byte");
    *outPtr = nullptr;
    *outPtr = of.multicast(team) + offset;
  });
}

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr) {
  return ncclGetMultimemDevicePointer(window, offset, nccl::handle_of_team(nccl::lsa_multimem), outPtr);
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) { return {comm->get().size(), comm->get().rank(), 1}; }
ncclTeam_t ncclTeamLsa(ncclComm_t comm) { return {comm->get().lsa().size, comm->get().lsa().rank, 1}; }
ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  const int inside = comm->get().lsa().size;
  return {comm->get().size() / inside, comm->get().rank() / inside, inside};
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm->get().rank() + (rank - team.rank) * team.stride;
}
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm->get().lsa().rank + (rank - team.rank) * team.stride;
}
