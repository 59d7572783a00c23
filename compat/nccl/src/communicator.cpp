// Communicators, memory and windows.
#include "state.hpp"

#include "communicator/context_of.hpp"
#include "memory/team_multicast.hpp"
#include "util/environment.hpp"
#include "util/interfaces.hpp"
#include "util/outside_address.hpp"

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace devcomm::nccl {
namespace {

int device_of_thread() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Where other hosts reach this one; where that is not known, ranks are taken to be on one host.
std::string address_for_ranks() {
  try {
    return host::detail::outside_address(host::detail::process_variables(), "", host::detail::interface_addresses());
  } catch (const host::not_supported&) {
    return "127.0.0.1";
  }
}

/// Makes one on the current device; null once that has failed.
ncclResult_t make(ncclComm_t* out, int rank, int nranks, const ncclConfig_t* config,
                  const std::function<std::shared_ptr<host::bootstrap>()>& ranks, int device) {
  const ncclResult_t valid = guarded(nullptr, [&] {
    require(out, "where the communicator goes");
    *out = nullptr;
    if (nranks < 1 || rank < 0 || rank >= nranks)
      throw host::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(nranks) +
                                   ": ranks are numbered from 0");
    if (config != nullptr && config->blocking == 0)
      throw host::not_supported("communicators that do not block are not supported: set ncclConfig_t::blocking to 1");
  });
  if (valid != ncclSuccess) return valid;
  auto begun = std::make_unique<ncclComm>();
  begun->device = device;
  const ncclComm_t made = *out = adopt(std::move(begun));
  return submit(made, [made, out, device, ranks] {
    try {
      host::communicator_options options;
      options.device = device;
      made->ranks.emplace(ranks(), options);
      made->operations = std::make_unique<stream_operations>(*made->ranks);
    } catch (...) {
      *out = nullptr;
      forget(made);
      throw;
    }
  });
}

// Never destroyed, as communicators are not that a program leaves.
std::mutex& table_guard() {
  static auto& guard = *new std::mutex;
  return guard;
}
std::map<ncclWindow_t, const registered_window*>& table() {
  static auto& windows = *new std::map<ncclWindow_t, const registered_window*>;
  return windows;
}

/// What a program made of it.
void free_memory(ncclComm& comm) {
  comm.device_comms.clear();
  comm.windows.clear();
  comm.table.reset();
}
void destroy(ncclComm& comm) {
  free_memory(comm);
  comm.operations.reset();
  comm.ranks.reset();
}

/// Destroys one when the operations of all ranks on streams are done.
void finish(ncclComm& comm) {
  try {
    check_cuda(cudaSetDevice(comm.device), "cudaSetDevice");
    if (comm.operations) comm.operations->wait();
    if (comm.ranks && !comm.ranks->aborted()) comm.ranks->barrier();
  } catch (const std::exception&) {  // a rank that is lost is waited for no more
  }
  destroy(comm);
}

/// A rank's part is over. One thread may end those of several ranks, one after the other: so the last of the process's
/// ends them all. One that `is_aborted` ends at once.
void leave(const std::shared_ptr<ncclComm>& comm, bool is_aborted) {
  struct ranks_of_process {
    std::shared_ptr<host::detail::process_ranks> process;  // keeps its address its own
    std::size_t gone = 0;
    std::vector<std::shared_ptr<ncclComm>> waiting;
  };
  static auto& guard = *new std::mutex;
  static auto& left = *new std::map<const void*, ranks_of_process>;
  free_memory(*comm);
  if (!comm->ranks) return;
  const host::detail::rank_context& context = host::detail::context_of::get(*comm->ranks);
  const std::shared_ptr<host::detail::process_ranks> process = context.process;
  const std::size_t local_ranks = context.local_ranks.size();
  if (is_aborted) destroy(*comm);
  std::vector<std::shared_ptr<ncclComm>> ending;
  {
    const std::lock_guard lock(guard);
    ranks_of_process& here = left[process.get()];
    here.process = process;
    if (!is_aborted) here.waiting.push_back(comm);
    if (++here.gone < local_ranks) return;
    ending = std::move(here.waiting);
    left.erase(process.get());
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < ending.size(); ++i) threads.emplace_back([&, i] { finish(*ending[i]); });
  if (!ending.empty()) finish(*ending[0]);
  for (auto& each : threads) each.join();
}

}  // namespace

registered_window::registered_window(host::communicator& comm, void* user, std::size_t bytes, const std::string& name)
    : user_(user),
      memory_(host::detail::context_of::register_with_stride(comm, user, bytes, name)),
      shown_{memory_.window(), {}},
      record_(shown_) {
  const std::lock_guard lock(table_guard());
  table()[handle()] = this;
}

void registered_window::add_multicast(host::communicator& comm, int number, const std::vector<int>& members) {
  void* const bindable = is_from_mem_alloc(user_, bytes()) ? user_ : nullptr;
  auto& made = multicasts_[static_cast<std::size_t>(number)];
  made = std::make_unique<host::detail::team_multicast>(host::detail::context_of::get(comm), bindable, bytes(), members);
  shown_.multicast[number] = made->address();
  record_.write(shown_);
}

char* registered_window::multicast(int team) const {
  const auto& made = multicasts_[static_cast<std::size_t>(team)];
  if (made && made->address() != nullptr) return made->address();
  throw host::not_supported("the window has no multicast address: " +
                            (made ? made->obstacle() : "no device communicator with multimem has been made"));
}

registered_window::~registered_window() {
  const std::lock_guard lock(table_guard());
  table().erase(handle());
}

const registered_window& find_window(ncclWindow_t handle) {
  const std::lock_guard lock(table_guard());
  const auto found = table().find(handle);
  if (found == table().end())
    throw host::invalid_argument("the window handle is not one that ncclCommWindowRegister has made, or no more");
  return *found->second;
}

}  // namespace devcomm::nccl

using namespace devcomm;

void ncclComm::write_table() {
  auto made = std::make_unique<ncclWindowTable>();
  for (const auto& [handle, each] : windows)
    made->windows[made->count++] = {static_cast<const char*>(each->user()), each->bytes(), handle};
  if (table) {
    table->write(*made);
  } else {
    table = std::make_unique<nccl::on_device<ncclWindowTable>>(*made);
  }
}

ncclMultimemHandle ncclComm::add_multimem(const std::vector<int>& members) {
  std::size_t number = 0;
  if (members != get().lsa_ranks()) {
    for (number = 1; number < multimem_teams.size(); ++number)
      if (multimem_teams[number].empty() || multimem_teams[number] == members) break;
    if (number == multimem_teams.size())
      throw host::not_supported("a communicator has multimem for its LSA team and at most 7 parts of it");
  }
  const ncclMultimemHandle handle = nccl::handle_of_team(static_cast<int>(number));
  if (!multimem_teams[number].empty()) return handle;
  std::vector<nccl::registered_window*> in_order;
  for (const auto& [win, each] : windows) in_order.push_back(each.get());
  std::sort(in_order.begin(), in_order.end(),
            [](const auto* a, const auto* b) { return a->get().id < b->get().id; });
  for (nccl::registered_window* each : in_order) each->add_multicast(get(), static_cast<int>(number), members);
  multimem_teams[number] = members;
  return handle;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(uniqueId, "ncclGetUniqueId: where the id goes");
    const std::string text = host::unique_id::create(nccl::address_for_ranks()).to_string();
    if (text.size() >= sizeof uniqueId->internal)
      throw host::not_supported("the name of this host is too long for an ncclUniqueId: set DEVCOMM_ADDRESS");
    *uniqueId = {};
    std::memcpy(uniqueId->internal, text.data(), text.size());
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  int device = 0;
  if (const ncclResult_t found = nccl::guarded(nullptr, [&] { device = nccl::device_of_thread(); }); found != ncclSuccess)
    return found;
  commId.internal[sizeof commId.internal - 1] = '\0';
  const std::string text = commId.internal;
  return nccl::make(
      comm, rank, nranks, config,
      [=] { return host::tcp_bootstrap(host::unique_id::parse(text), rank, nranks); }, device);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return ncclCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int nId, ncclUniqueId* commIds,
                                      ncclConfig_t* config) {
  const ncclResult_t valid = nccl::guarded(nullptr, [&] {
    nccl::require(commIds, "ncclCommInitRankScalable: the ids");
    if (nId < 1) throw host::invalid_argument("ncclCommInitRankScalable: at least one id");
  });
  return valid != ncclSuccess ? valid : ncclCommInitRankConfig(comm, nranks, commIds[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  const ncclResult_t valid = nccl::guarded(nullptr, [&] {
    nccl::require(comm, "ncclCommInitAll: where the communicators go");
    if (ndev < 1) throw host::invalid_argument("ncclCommInitAll: at least one device");
  });
  if (valid != ncclSuccess) return valid;
  const auto ranks = host::thread_bootstraps(ndev);
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < ndev && result == ncclSuccess; ++i)
    result = nccl::make(
        comm + i, i, ndev, nullptr, [one = ranks[static_cast<std::size_t>(i)]] { return one; },
        devlist != nullptr ? devlist[i] : i);
  const ncclResult_t ended = ncclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t*) {
  const ncclResult_t valid = nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommSplit");
    nccl::require(newcomm, "ncclCommSplit: where the new one goes");
    *newcomm = nullptr;
  });
  if (valid != ncclSuccess) return valid;
  return nccl::submit(comm, [=] {
    auto part = comm->get().split(color, key);
    if (!part) return;
    auto made = std::make_unique<ncclComm>();
    made->device = comm->device;
    made->ranks.emplace(std::move(*part));
    made->operations = std::make_unique<nccl::stream_operations>(*made->ranks);
    *newcomm = nccl::adopt(std::move(made));
  });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int, ncclComm_t* newcomm, ncclConfig_t*, int) {
  return nccl::guarded(comm, [&] {
    nccl::require(newcomm, "ncclCommShrink: where the new one goes");
    *newcomm = nullptr;
    throw host::not_supported("ncclCommShrink is not supported: the ranks that go on make another communicator, by "
                              "ncclCommInitRank, or by ncclCommSplit where all are there");
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommFinalize");
    alive->get();
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return nccl::submit(comm, [=] {
    const auto alive = nccl::find_comm(comm, "ncclCommDestroy");
    nccl::forget(comm);
    nccl::leave(alive, false);
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return nccl::submit(comm, [=] {
    const auto alive = nccl::find_comm(comm, "ncclCommAbort");
    alive->get().abort();
    static_cast<void>(cudaDeviceSynchronize());  // kernels that waited have ended, and use its memory no more
    static_cast<void>(cudaGetLastError());
    nccl::forget(comm);
    nccl::leave(alive, true);
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommCount");
    *count = comm->get().size();
  });
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommUserRank");
    *rank = comm->get().rank();
  });
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommCuDevice");
    *device = comm->device;
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t, void** handle) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommRegister");
    nccl::require(handle, "ncclCommRegister: where the handle goes");
    *handle = buff;
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return nccl::guarded(comm, [&] { const auto alive = nccl::find_comm(comm, "ncclCommDeregister"); });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
  const ncclResult_t valid = nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommWindowRegister");
    nccl::require(buff, "ncclCommWindowRegister: the memory");
    nccl::require(win, "ncclCommWindowRegister: where the window goes");
    *win = nullptr;
    if ((winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY)) != 0)
      throw host::not_supported("ncclCommWindowRegister: flags beyond NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_STRICT_ORDERING "
                                "and NCCL_WIN_GIN_ONLY are not supported");
  });
  if (valid != ncclSuccess) return valid;
  return nccl::submit(comm, [=] {
    auto made = std::make_unique<nccl::registered_window>(comm->get(), buff, size,
                                                           std::to_string(++comm->registrations));
    if (comm->windows.size() == ncclWindowTable::capacity)
      throw host::not_supported("ncclCommWindowRegister: a communicator has at most 1024 windows; deregister some");
    for (std::size_t i = 0; i < comm->multimem_teams.size(); ++i)
      if (!comm->multimem_teams[i].empty())
        made->add_multicast(comm->get(), static_cast<int>(i), comm->multimem_teams[i]);
    *win = made->handle();
    comm->windows[made->handle()] = std::move(made);
    comm->write_table();
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return nccl::guarded(comm, [&] {
    const auto alive = nccl::find_comm(comm, "ncclCommWindowDeregister");
    if (win == nullptr) return;
    if (comm->windows.erase(win) == 0)
      throw host::invalid_argument("ncclCommWindowDeregister: the window is not one of this communicator");
    comm->write_table();
  });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t win, void** outUserPtr) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(outUserPtr, "ncclWinGetUserPtr: where the address goes");
    *outUserPtr = nccl::find_window(win).user();
  });
}
