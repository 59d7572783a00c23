// Sends, receives and collectives on streams. Compiled once plain and once with the hooks of the race detector, as
// programs' kernels are.
#include "state.hpp"
#include "stream_operations.hpp"

#include <devcomm/channel/network.cuh>
#include <devcomm/channel/session.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/host/error.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace devcomm::nccl {
namespace {

constexpr unsigned threads = 128;
constexpr std::uint64_t slice_bytes = 256 * 1024;  // of a rank's input that is summed at once

/// By value where it is short.
struct transfer_list {
  static constexpr std::uint32_t capacity = 100;
  const transfer* far;
  std::uint32_t count;
  transfer near[capacity];
};

/// Two blocks for each rank: one sends to it, one receives from it, in the order of the list.
template <channel::protocol Protocol>
__global__ void __launch_bounds__(threads)
    move_transfers(device_comm comm, channel::fifo_handle<Protocol> fifos, const __grid_constant__ transfer_list list) {
  const int peer = static_cast<int>(blockIdx.x / 2);
  const std::uint32_t sends = blockIdx.x % 2;
  const transfer* const all = list.far != nullptr ? list.far : list.near;
  const auto is_mine = [&](const transfer& t) { return t.peer == peer && t.sends == sends; };
  const block group;
  if (peer == comm.rank) {  // the n-th to itself goes to the n-th from itself
    std::uint32_t to = 0;
    for (std::uint32_t i = 0; sends != 0 && i < list.count; ++i) {
      if (!is_mine(all[i])) continue;
      while (all[to].peer != peer || all[to].sends != 0) ++to;
      const transfer& target = all[to++];
      if (target.data != all[i].data) copy(group, target.data, all[i].data, all[i].bytes);
    }
    return;
  }
  std::uint32_t mine = 0;
  for (std::uint32_t i = 0; i < list.count; ++i) mine += is_mine(all[i]) ? 1 : 0;
  if (mine == 0) return;
  const channel::endpoint other{peer, static_cast<std::uint32_t>(peer), static_cast<std::uint32_t>(comm.rank)};
  channel::session fifo(group, comm, fifos, sends != 0 ? channel::endpoint::none() : other,
                        sends != 0 ? other : channel::endpoint::none());
  for (std::uint32_t i = 0; i < list.count; ++i) {
    if (!is_mine(all[i])) continue;
    auto* const data = reinterpret_cast<std::uint8_t*>(all[i].data);
    const slice packs{0, packs_of<std::uint8_t>(all[i].bytes)};
    if (sends != 0) {
      fifo.template send<std::uint8_t>(packs, collective::from_memory<std::uint8_t>{data, all[i].bytes});
    } else {
      fifo.template recv<std::uint8_t>(packs, collective::to_memory<std::uint8_t>{data, all[i].bytes});
    }
  }
}

/// `output[i]`: what came from all ranks at `came[r][i]`, and this rank's `own[i]`, in the order of the ranks.
template <class T, class Operator>
__global__ void __launch_bounds__(threads)
    sum_of_ranks(T* output, const T* own, const T* came, std::uint64_t stride, int rank, int ranks, std::uint64_t count,
                 Operator op) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    accumulator_t<T> total{};
    for (int r = 0; r < ranks; ++r) {
      const T* const from = r == rank ? own : came + static_cast<std::uint64_t>(r) * stride;
      const accumulator_t<T> value = devcomm::detail::to_accumulator<T>(from[i], op);
      total = r == 0 ? value : op(total, value);
    }
    output[i] = devcomm::detail::from_accumulator<T>(total, ranks, op);
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    scale(T* output, const T* input, std::uint64_t count, T immediate, const T* on_device) {
  const auto factor = static_cast<accumulator_t<T>>(on_device != nullptr ? *on_device : immediate);
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    output[i] = static_cast<T>(product{}(static_cast<accumulator_t<T>>(input[i]), factor));
}

launch_config for_elements(std::uint64_t count, cudaStream_t stream) {
  return {.grid = static_cast<unsigned>(std::clamp<std::uint64_t>((count + threads - 1) / threads, 1, 64)),
          .block = threads,
          .stream = stream};
}

/// Calls `action(T{})` with the type that `type` names.
template <class Action>
void with_type(ncclDataType_t type, const Action& action) {
  switch (type) {
    case ncclInt8: return action(std::int8_t{});
    case ncclUint8: return action(std::uint8_t{});
    case ncclInt32: return action(std::int32_t{});
    case ncclUint32: return action(std::uint32_t{});
    case ncclInt64: return action(std::int64_t{});
    case ncclUint64: return action(std::uint64_t{});
    case ncclFloat16: return action(__half{});
    case ncclFloat32: return action(float{});
    case ncclFloat64: return action(double{});
    case ncclBfloat16: return action(__nv_bfloat16{});
    case ncclFloat8e4m3: return action(__nv_fp8_e4m3{});
    case ncclFloat8e5m2: return action(__nv_fp8_e5m2{});
    default: throw host::invalid_argument("data type " + std::to_string(type) + " is none of NCCL's");
  }
}
std::uint64_t bytes_of(ncclDataType_t type) {
  std::uint64_t bytes = 0;
  with_type(type, [&](auto element) { bytes = sizeof(element); });
  return bytes;
}

template <class T, class Operator>
void launch_sum(char* output, const char* own, const char* came, int rank, int ranks, std::uint64_t count,
                Operator op, cudaStream_t stream) {
  launch(sum_of_ranks<T, Operator>, for_elements(count, stream), reinterpret_cast<T*>(output),
         reinterpret_cast<const T*>(own), reinterpret_cast<const T*>(came), slice_bytes / sizeof(T), rank, ranks, count,
         op);
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

stream_operations::stream_operations(host::communicator& ranks)
    : rank_(ranks.rank()), size_(ranks.size()), is_one_team_(ranks.lsa().size == ranks.size()) {
  if (!is_one_team_ && !ranks.properties().network.available) {
    obstacle_ = "there is no network between the ranks: " + ranks.properties().network.reason;
    return;
  }
  constexpr std::uint32_t packs = 2048;
  devcomm::requirements needs = ranks.requirements();
  const auto fifos = static_cast<std::uint32_t>(size_);
  if (is_one_team_) {
    stored_ = needs.add(channel::simple_fifos{ranks.lsa(), fifos, packs});
  } else {
    put_ = needs.add(channel::network_fifos{.contexts = {ranks.world(), 1}, .count = fifos, .packs = packs});
  }
  owner_.emplace(ranks.create_device_comm(needs));
  came_ = std::make_unique<device_bytes>(slice_bytes * static_cast<std::uint64_t>(size_));
  check_cuda(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

stream_operations::~stream_operations() {
  if (last_ != nullptr) cudaEventDestroy(last_);
}

void stream_operations::in_order(cudaStream_t stream, const std::function<void()>& work) {
  if (!obstacle_.empty()) throw host::not_supported(obstacle_);
  const bool captured = is_captured(stream);
  if (last_stream_ && *last_stream_ != stream && !captured)
    check_cuda(cudaStreamWaitEvent(stream, last_, 0), "cudaStreamWaitEvent");
  last_stream_ = stream;
  work();
  if (!captured) check_cuda(cudaEventRecord(last_, stream), "cudaEventRecord");
}

void stream_operations::move(const std::vector<transfer>& messages, cudaStream_t stream) {
  if (messages.empty()) return;
  transfer_list list{nullptr, static_cast<std::uint32_t>(messages.size()), {}};
  if (messages.size() <= transfer_list::capacity) {
    std::copy(messages.begin(), messages.end(), list.near);
  } else {
    const std::size_t bytes = messages.size() * sizeof(transfer);
    lists_.push_back(std::make_unique<device_bytes>(bytes));
    list.far = reinterpret_cast<const transfer*>(lists_.back()->get());
    check_cuda(cudaMemcpy(lists_.back()->get(), messages.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  const launch_config config{.grid = 2 * static_cast<unsigned>(size_), .block = threads, .stream = stream};
  if (is_one_team_) {
    launch(move_transfers<channel::protocol::simple>, config, owner_->get(), stored_, list);
  } else {
    launch(move_transfers<channel::protocol::network>, config, owner_->get(), put_, list);
  }
}

void stream_operations::add(const transfer& message, cudaStream_t stream) {
  if (message.peer < 0 || message.peer >= size_)
    throw host::invalid_argument("peer " + std::to_string(message.peer) + " of " + std::to_string(size_) +
                                 " ranks: ranks are numbered from 0");
  pending_.emplace_back(message, stream);
}

void stream_operations::flush() {
  if (pending_.empty()) return;
  const auto asked = std::exchange(pending_, {});
  std::vector<transfer> messages;
  std::vector<std::uint64_t> to_self, from_self;
  for (const auto& [message, stream] : asked) {
    messages.push_back(message);
    if (message.peer == rank_) (message.sends != 0 ? to_self : from_self).push_back(message.bytes);
  }
  if (to_self != from_self)
    throw host::invalid_argument("a rank's sends to itself have receives of the same sizes in the same group");
  // On the first of their streams, after what the others have, and before what they get.
  const cudaStream_t main = asked.front().second;
  in_order(main, [&] {
    for (const auto& [message, stream] : asked) {
      if (stream == main) continue;
      check_cuda(cudaEventRecord(last_, stream), "cudaEventRecord");
      check_cuda(cudaStreamWaitEvent(main, last_, 0), "cudaStreamWaitEvent");
    }
    move(messages, main);
  });
  for (const auto& [message, stream] : asked)
    if (stream != main) check_cuda(cudaStreamWaitEvent(stream, last_, 0), "cudaStreamWaitEvent");
}

void stream_operations::wait() const {
  if (last_ != nullptr) check_cuda(cudaEventSynchronize(last_), "cudaEventSynchronize");
}

void stream_operations::check_root(int root) const {
  if (root < 0 || root >= size_)
    throw host::invalid_argument("root " + std::to_string(root) + " of " + std::to_string(size_) +
                                 " ranks: ranks are numbered from 0");
}

void stream_operations::broadcast(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream) {
  check_root(root);
  std::vector<transfer> messages{{output, bytes, root, 0}};
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    messages.push_back({const_cast<char*>(input), bytes, peer, 1});
  in_order(stream, [&] { move(messages, stream); });
}

void stream_operations::all_gather(const char* input, char* output, std::uint64_t bytes, cudaStream_t stream) {
  std::vector<transfer> messages;
  for (int peer = 0; peer < size_; ++peer) {
    messages.push_back({const_cast<char*>(input), bytes, peer, 1});
    messages.push_back({output + static_cast<std::uint64_t>(peer) * bytes, bytes, peer, 0});
  }
  in_order(stream, [&] { move(messages, stream); });
}

void stream_operations::all_to_all(const char* input, char* output, std::uint64_t bytes, cudaStream_t stream) {
  std::vector<transfer> messages;
  for (int peer = 0; peer < size_; ++peer) {
    const std::uint64_t at = static_cast<std::uint64_t>(peer) * bytes;
    messages.push_back({const_cast<char*>(input) + at, bytes, peer, 1});
    messages.push_back({output + at, bytes, peer, 0});
  }
  in_order(stream, [&] { move(messages, stream); });
}

void stream_operations::gather(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream) {
  check_root(root);
  std::vector<transfer> messages{{const_cast<char*>(input), bytes, root, 1}};
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    messages.push_back({output + static_cast<std::uint64_t>(peer) * bytes, bytes, peer, 0});
  in_order(stream, [&] { move(messages, stream); });
}

void stream_operations::scatter(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream) {
  check_root(root);
  std::vector<transfer> messages{{output, bytes, root, 0}};
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    messages.push_back({const_cast<char*>(input) + static_cast<std::uint64_t>(peer) * bytes, bytes, peer, 1});
  in_order(stream, [&] { move(messages, stream); });
}

const scaled_sum_of_rank* stream_operations::scaled_sum(ncclRedOp_t op) const {
  if (op < ncclNumOps) return nullptr;
  const auto index = static_cast<std::size_t>(op - ncclNumOps);
  if (index >= scaled_sums_.size() || !scaled_sums_[index])
    throw host::invalid_argument("operator " + std::to_string(op) + " is none of NCCL's, and none that there is");
  return &*scaled_sums_[index];
}

void stream_operations::sum_slices(const char* input, char* output, const std::vector<part>& slices,
                                   ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream) {
  const std::uint64_t element = bytes_of(type);
  const scaled_sum_of_rank* const scaled = scaled_sum(op);
  if (scaled != nullptr && scaled->type != type)
    throw host::invalid_argument("the operator was made for another data type");
  const auto slot = [](int peer) { return static_cast<std::uint64_t>(peer) * slice_bytes; };
  const auto source = [&](int peer) -> const char* {
    return scaled != nullptr ? scaled_->get() + slot(peer)
                             : input + slices[static_cast<std::size_t>(peer)].first * element;
  };
  std::vector<transfer> messages;
  const std::uint64_t mine = slices[static_cast<std::size_t>(rank_)].count;
  for (int peer = 0; peer < size_; ++peer) {
    const part& theirs = slices[static_cast<std::size_t>(peer)];
    if (scaled != nullptr && theirs.count != 0) {
      with_type(type, [&](auto immediate) {
        using T = decltype(immediate);
        std::memcpy(static_cast<void*>(&immediate), scaled->immediate.data(), sizeof(T));
        launch(scale<T>, for_elements(theirs.count, stream), reinterpret_cast<T*>(scaled_->get() + slot(peer)),
               reinterpret_cast<const T*>(input + theirs.first * element), theirs.count, immediate,
               static_cast<const T*>(scaled->on_device));
      });
    }
    if (peer == rank_) continue;
    if (theirs.count != 0) messages.push_back({const_cast<char*>(source(peer)), theirs.count * element, peer, 1});
    if (mine != 0) messages.push_back({came_->get() + slot(peer), mine * element, peer, 0});
  }
  move(messages, stream);
  if (mine == 0) return;
  with_type(type, [&](auto of_type) {
    using T = decltype(of_type);
    const auto sum_by = [&](auto how) {
      launch_sum<T>(output, source(rank_), came_->get(), rank_, size_, mine, how, stream);
    };
    switch (op) {
      case ncclProd: return sum_by(product{});
      case ncclMax: return sum_by(maximum{});
      case ncclMin: return sum_by(minimum{});
      case ncclAvg: return sum_by(average{});
      default: return sum_by(sum{});
    }
  });
}

void stream_operations::reduce_scatter(const char* input, char* output, std::uint64_t count, ncclDataType_t type,
                                       ncclRedOp_t op, cudaStream_t stream) {
  in_order(stream, [&] {
    const std::uint64_t element = bytes_of(type), most = slice_bytes / element;
    for (std::uint64_t first = 0; first < count; first += most) {
      const std::uint64_t length = std::min(most, count - first);
      std::vector<part> slices;
      for (int peer = 0; peer < size_; ++peer) slices.push_back({static_cast<std::uint64_t>(peer) * count + first, length});
      sum_slices(input, output + first * element, slices, type, op, stream);
    }
  });
}

void stream_operations::all_reduce(const char* input, char* output, std::uint64_t count, ncclDataType_t type,
                                   ncclRedOp_t op, cudaStream_t stream) {
  in_order(stream, [&] {
    const std::uint64_t element = bytes_of(type), most = slice_bytes / element;
    const auto ranks = static_cast<std::uint64_t>(size_);
    for (std::uint64_t first = 0; first < count; first += most * ranks) {
      const std::uint64_t length = std::min(most * ranks, count - first), share = (length + ranks - 1) / ranks;
      std::vector<part> slices;
      for (std::uint64_t peer = 0; peer < ranks; ++peer) {
        const std::uint64_t begin = std::min(peer * share, length);
        slices.push_back({first + begin, std::min(share, length - begin)});
      }
      const part& mine = slices[static_cast<std::size_t>(rank_)];
      char* const summed = output + mine.first * element;
      sum_slices(input, summed, slices, type, op, stream);
      std::vector<transfer> messages;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const part& theirs = slices[static_cast<std::size_t>(peer)];
        if (mine.count != 0) messages.push_back({summed, mine.count * element, peer, 1});
        if (theirs.count != 0) messages.push_back({output + theirs.first * element, theirs.count * element, peer, 0});
      }
      move(messages, stream);
    }
  });
}

void stream_operations::reduce(const char* input, char* output, std::uint64_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, cudaStream_t stream) {
  check_root(root);
  in_order(stream, [&] {
    const std::uint64_t element = bytes_of(type), most = slice_bytes / element;
    for (std::uint64_t first = 0; first < count; first += most) {
      std::vector<part> slices(static_cast<std::size_t>(size_), part{0, 0});
      slices[static_cast<std::size_t>(root)] = {first, std::min(most, count - first)};
      sum_slices(input, output + first * element, slices, type, op, stream);
    }
  });
}

ncclRedOp_t stream_operations::add_scaled_sum(const scaled_sum_of_rank& op) {
  if (!obstacle_.empty()) throw host::not_supported(obstacle_);
  if (!scaled_) scaled_ = std::make_unique<device_bytes>(slice_bytes * static_cast<std::uint64_t>(size_));
  scaled_sums_.emplace_back(op);
  return static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(scaled_sums_.size()) - 1);
}

void stream_operations::remove_scaled_sum(ncclRedOp_t op) {
  if (scaled_sum(op) == nullptr)
    throw host::invalid_argument("ncclRedOpDestroy: the operator is not of ncclRedOpCreatePreMulSum");
  scaled_sums_[static_cast<std::size_t>(op - ncclNumOps)].reset();
}

namespace {

/// The operations of a communicator, now or at the end of the group.
ncclResult_t enqueue(ncclComm_t comm, const char* call, const std::function<void(stream_operations&)>& body) {
  const ncclResult_t valid = guarded(comm, [&] { static_cast<void>(find_comm(comm, call)); });
  if (valid != ncclSuccess) return valid;
  return submit(comm, [=] {
    static_cast<void>(comm->get());
    try {
      body(*comm->operations);
    } catch (const host::invalid_argument& error) {
      throw host::invalid_argument(std::string(call) + ": " + error.what());
    } catch (const host::not_supported& error) {
      throw host::not_supported(std::string(call) + ": " + error.what());
    }
  });
}

ncclResult_t add_message(ncclComm_t comm, const char* call, const void* data, std::size_t count, ncclDataType_t type,
                         int peer, bool sends, cudaStream_t stream) {
  const ncclResult_t valid = guarded(comm, [&] {
    const auto alive = find_comm(comm, call);
    static_cast<void>(alive->get());
    alive->operations->add({const_cast<char*>(static_cast<const char*>(data)), count * bytes_of(type), peer, sends ? 1u : 0u},
                           stream);
  });
  if (valid != ncclSuccess) return valid;
  return submit_last(comm, [=] { comm->operations->flush(); });
}

const char* input_of(const void* pointer) { return static_cast<const char*>(pointer); }
char* output_of(void* pointer) { return static_cast<char*>(pointer); }

}  // namespace
}  // namespace devcomm::nccl

using namespace devcomm::nccl;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclAllReduce", [=](stream_operations& by) {
    by.all_reduce(input_of(sendbuff), output_of(recvbuff), count, datatype, op, stream);
  });
}
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclReduce", [=](stream_operations& by) {
    by.reduce(input_of(sendbuff), output_of(recvbuff), count, datatype, op, root, stream);
  });
}
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclReduceScatter", [=](stream_operations& by) {
    by.reduce_scatter(input_of(sendbuff), output_of(recvbuff), recvcount, datatype, op, stream);
  });
}
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclBroadcast", [=](stream_operations& by) {
    by.broadcast(input_of(sendbuff), output_of(recvbuff), count * bytes_of(datatype), root, stream);
  });
}
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclAllGather", [=](stream_operations& by) {
    by.all_gather(input_of(sendbuff), output_of(recvbuff), sendcount * bytes_of(datatype), stream);
  });
}
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream) {
  return enqueue(comm, "ncclAlltoAll", [=](stream_operations& by) {
    by.all_to_all(input_of(sendbuff), output_of(recvbuff), count * bytes_of(datatype), stream);
  });
}
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclGather", [=](stream_operations& by) {
    by.gather(input_of(sendbuff), output_of(recvbuff), count * bytes_of(datatype), root, stream);
  });
}
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, "ncclScatter", [=](stream_operations& by) {
    by.scatter(input_of(sendbuff), output_of(recvbuff), count * bytes_of(datatype), root, stream);
  });
}
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(comm, "ncclSend", sendbuff, count, datatype, peer, true, stream);
}
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(comm, "ncclRecv", recvbuff, count, datatype, peer, false, stream);
}

static ncclResult_t refuse_signal(ncclComm_t comm, const char* call) {
  return guarded(comm, [&] {
    throw devcomm::host::not_supported(std::string(call) +
                                       " is not supported: signal from a kernel, by ncclGin, or use ncclSend and ncclRecv");
  });
}
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int,
                           ncclComm_t comm, cudaStream_t) {
  return refuse_signal(comm, "ncclPutSignal");
}
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t comm, cudaStream_t) {
  return refuse_signal(comm, "ncclSignal");
}
ncclResult_t ncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t comm, cudaStream_t) {
  return refuse_signal(comm, "ncclWaitSignal");
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded(comm, [&] {
    const auto alive = find_comm(comm, "ncclRedOpCreatePreMulSum");
    require(op, "ncclRedOpCreatePreMulSum: where the operator goes");
    require(scalar, "ncclRedOpCreatePreMulSum: the scalar");
    static_cast<void>(alive->get());
    scaled_sum_of_rank made{datatype, residence == ncclScalarDevice ? scalar : nullptr, {}};
    const std::uint64_t bytes = bytes_of(datatype);
    if (residence == ncclScalarHostImmediate) std::memcpy(made.immediate.data(), scalar, bytes);
    *op = alive->operations->add_scaled_sum(made);
  });
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded(comm, [&] {
    const auto alive = find_comm(comm, "ncclRedOpDestroy");
    alive->operations->remove_scaled_sum(op);
  });
}
