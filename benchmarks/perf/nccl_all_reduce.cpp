#include "perf/nccl_all_reduce.hpp"

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

class nccl_all_reduce : public algorithm {
 public:
  explicit nccl_all_reduce(std::shared_ptr<nccl_rank> rank) : rank_(std::move(rank)) {}

  [[nodiscard]] std::string implementation() const override { return "nccl"; }
  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] std::string protocol() const override { return "plain"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override { return {launch_shape{}}; }
  void start(const work& what) override {
    const auto& nccl = rank_->library;
    nccl.check(nccl.all_reduce(what.input, what.output, what.count(), nccl_type(what.type), ncclSum, rank_->handle,
                               what.stream),
               "ncclAllReduce");
  }

 protected:
  std::shared_ptr<nccl_rank> rank_;
};

/// In memory that NCCL has allocated and registered as a symmetric window.
class nccl_window_all_reduce final : public nccl_all_reduce {
 public:
  nccl_window_all_reduce(std::shared_ptr<nccl_rank> rank, std::uint64_t bytes) : nccl_all_reduce(std::move(rank)) {
    const auto& nccl = rank_->library;
    nccl.check(nccl.mem_alloc(&memory_, bytes), "ncclMemAlloc");
    nccl.check(nccl.window_register(rank_->handle, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
               "ncclCommWindowRegister");
  }
  ~nccl_window_all_reduce() override {
    rank_->library.window_deregister(rank_->handle, window_);
    rank_->library.mem_free(memory_);
  }

  [[nodiscard]] std::string protocol() const override { return "window"; }
  [[nodiscard]] std::byte* memory() override { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

}  // namespace

algorithms make_nccl_all_reduce(const rank_context& context) {
  const auto rank = std::make_shared<nccl_rank>(*context.comm);
  algorithms made;
  made.push_back(std::make_unique<nccl_all_reduce>(rank));
  made.push_back(std::make_unique<nccl_window_all_reduce>(rank, 2 * context.most_bytes));
  return made;
}

}  // namespace perf
