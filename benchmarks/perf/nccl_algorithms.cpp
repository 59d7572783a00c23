#include "perf/nccl_algorithms.hpp"

#include "peers/nccl_library.hpp"
#include "perf/exchange.hpp"

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
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override { return {launch_shape{}}; }
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
    }
  }

 protected:
  [[nodiscard]] const nccl_rank& rank() const { return *rank_; }

 private:
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
  made.push_back(std::make_unique<nccl_window_algorithm>(which, rank, 2 * context.most_bytes));
  return made;
}

}  // namespace perf
