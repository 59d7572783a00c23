#include "perf/nccl_algorithms.hpp"

#include "peers/nccl_library.hpp"
#include "perf/exchange.hpp"
#include "perf/skewed_counts.hpp"

namespace perf {
namespace {

ncclDataType_t nccl_type(data_type type) {
  switch (type) {
    case data_type::bf16: return ncclBfloat16;
    case data_type::half: return ncclFloat16;
    case data_type::float32: return ncclFloat32;
    case data_type::float64: return ncclFloat64;
    case data_type::int32: break;
  }
  return ncclInt32;
}

/// One rank's NCCL communicator.
class nccl_rank {
 public:
  explicit nccl_rank(devcomm::host::communicator& comm) {
    ncclUniqueId id{};
    if (comm.rank() == 0) library.check(library.get_unique_id(&id), "ncclGetUniqueId");
    id = exchange(comm).gather(id).front();
    library.check(library.comm_init_rank(&handle, comm.size(), id, comm.rank()), "ncclCommInitRank");
  }
  nccl_rank(const nccl_rank&) = delete;
  nccl_rank& operator=(const nccl_rank&) = delete;
  ~nccl_rank() { library.comm_destroy(handle); }

  peers::nccl_library library;
  ncclComm_t handle = nullptr;
};

class nccl_algorithm : public algorithm {
 public:
  nccl_algorithm(nccl_call which, std::shared_ptr<nccl_rank> rank) : which_(which), rank_(std::move(rank)) {}

  [[nodiscard]] std::string implementation() const override { return "nccl"; }
  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] std::string protocol() const override { return "plain"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    return which_ == nccl_call::ping_pong && what.ranks != 2 ? "a ping-pong is between two ranks" : "";
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override { return {launch_shape{}}; }
  [[nodiscard]] int times_in_call(const work&) const override { return which_ == nccl_call::ping_pong ? trips : 1; }
  void start(const work& what) override {
    const auto& nccl = rank_->library;
    const ncclDataType_t type = nccl_type(what.type);
    ncclComm_t comm = rank_->handle;
    switch (which_) {
      case nccl_call::all_reduce:
        return nccl.check(nccl.all_reduce(what.input, what.output, what.count(), type, ncclSum, comm, what.stream),
                          "ncclAllReduce");
      case nccl_call::reduce_scatter:
        return nccl.check(nccl.reduce_scatter(what.input, what.output, what.shard(), type, ncclSum, comm, what.stream),
                          "ncclReduceScatter");
      case nccl_call::all_gather:
        return nccl.check(nccl.all_gather(what.input, what.output, what.shard(), type, comm, what.stream),
                          "ncclAllGather");
      case nccl_call::broadcast:
        return nccl.check(nccl.broadcast(what.input, what.output, what.count(), type, 0, comm, what.stream),
                          "ncclBroadcast");
      case nccl_call::exchange: {
        const int next = (what.rank + 1) % what.ranks;
        const int previous = (what.rank + what.ranks - 1) % what.ranks;
        nccl.check(nccl.group_start(), "ncclGroupStart");
        nccl.check(nccl.send(what.input, what.count(), type, next, comm, what.stream), "ncclSend");
        nccl.check(nccl.recv(what.output, what.count(), type, previous, comm, what.stream), "ncclRecv");
        return nccl.check(nccl.group_end(), "ncclGroupEnd");
      }
      case nccl_call::all_to_all: return all_to_all(what, type);
      case nccl_call::all_to_all_v: return all_to_all_v(what, type);
      case nccl_call::ping_pong:
        for (int trip = 0; trip < trips; ++trip) {
          if (trip % 2 == what.rank) {
            nccl.check(nccl.send(what.input, what.count(), type, 1 - what.rank, comm, what.stream), "ncclSend");
          } else {
            nccl.check(nccl.recv(what.output, what.count(), type, 1 - what.rank, comm, what.stream), "ncclRecv");
          }
        }
        return;
    }
  }

 protected:
  [[nodiscard]] const nccl_rank& rank() const { return *rank_; }

 private:
  void all_to_all(const work& what, ncclDataType_t type) const {
    const auto& nccl = rank_->library;
    ncclComm_t comm = rank_->handle;
    const std::uint64_t shard = what.shard();
    if (nccl.all_to_all != nullptr)
      return nccl.check(nccl.all_to_all(what.input, what.output, shard, type, comm, what.stream), "ncclAlltoAll");
    nccl.check(nccl.group_start(), "ncclGroupStart");
    for (int peer = 0; peer < what.ranks; ++peer) {
      const std::uint64_t place = static_cast<std::uint64_t>(peer) * shard * bytes_of(what.type);
      nccl.check(nccl.send(static_cast<std::byte*>(what.input) + place, shard, type, peer, comm, what.stream),
                 "ncclSend");
      nccl.check(nccl.recv(static_cast<std::byte*>(what.output) + place, shard, type, peer, comm, what.stream),
                 "ncclRecv");
    }
    nccl.check(nccl.group_end(), "ncclGroupEnd");
  }

  void all_to_all_v(const work& what, ncclDataType_t type) const {
    const auto& nccl = rank_->library;
    const skewed_counts counts{what.count(), what.ranks};
    const auto at = [&](void* base, std::uint64_t elements) {
      return static_cast<std::byte*>(base) + elements * bytes_of(what.type);
    };
    nccl.check(nccl.group_start(), "ncclGroupStart");
    for (int peer = 0; peer < what.ranks; ++peer) {
      nccl.check(nccl.send(at(what.input, counts.before_receiver(what.rank, peer)), counts.of(what.rank, peer), type,
                           peer, rank_->handle, what.stream),
                 "ncclSend");
      nccl.check(nccl.recv(at(what.output, counts.before_sender(peer, what.rank)), counts.of(peer, what.rank), type,
                           peer, rank_->handle, what.stream),
                 "ncclRecv");
    }
    nccl.check(nccl.group_end(), "ncclGroupEnd");
  }

  static constexpr int trips = 2;  // of a ping-pong, there and back

  nccl_call which_;
  std::shared_ptr<nccl_rank> rank_;
};

/// In memory that NCCL has allocated and registered as a symmetric window.
class nccl_window_algorithm final : public nccl_algorithm {
 public:
  nccl_window_algorithm(nccl_call which, std::shared_ptr<nccl_rank> of, std::uint64_t bytes)
      : nccl_algorithm(which, std::move(of)) {
    const auto& nccl = rank().library;
    nccl.check(nccl.mem_alloc(&memory_, bytes), "ncclMemAlloc");
    nccl.check(nccl.window_register(rank().handle, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
               "ncclCommWindowRegister");
  }
  ~nccl_window_algorithm() override {
    rank().library.window_deregister(rank().handle, window_);
    rank().library.mem_free(memory_);
  }

  [[nodiscard]] std::string protocol() const override { return "window"; }
  [[nodiscard]] std::byte* memory() override { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

}  // namespace

algorithms make_nccl(nccl_call which, const rank_context& context) {
  const auto rank = std::make_shared<nccl_rank>(*context.comm);
  algorithms made;
  made.push_back(std::make_unique<nccl_algorithm>(which, rank));
  made.push_back(std::make_unique<nccl_window_algorithm>(which, rank, 2 * context.max_bytes));
  return made;
}

}  // namespace perf
