/// \file stream_operations.hpp
/// NCCL's sends, receives and collectives on streams: kernels that pass messages by FIFOs between each two ranks, and
/// kernels that sum what came.
#pragma once

#include <nccl.h>

#include <devcomm/channel/fifos.hpp>
#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::nccl {

/// Bytes to a rank, or from one.
struct transfer {
  char* data;
  std::uint64_t bytes;
  std::int32_t peer;
  std::uint32_t sends;
};

/// A sum of inputs that are multiplied by the scalar of their rank.
struct scaled_sum_of_rank {
  ncclDataType_t type;
  const void* on_device;  ///< where the scalar is; null: it is `immediate`
  std::array<char, 8> immediate;
};

/// Memory of the current device.
class device_bytes {
 public:
  explicit device_bytes(std::size_t bytes) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "cudaMalloc");
  }
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;
  ~device_bytes() { cudaFree(data_); }
  [[nodiscard]] char* get() const { return data_; }

 private:
  char* data_ = nullptr;
};

/// Of one communicator. Operations run in the order of the calls, also on different streams.
class stream_operations {
 public:
  /// *Collective*.
  explicit stream_operations(host::communicator& ranks);
  stream_operations(const stream_operations&) = delete;
  stream_operations& operator=(const stream_operations&) = delete;
  ~stream_operations();

  /// Puts a message off until `flush`.
  void add(const transfer& message, cudaStream_t stream);
  /// Moves all of them: the n-th to a rank is the n-th that it receives from this one.
  void flush();

  /// Until everything is done.
  void wait() const;

  void broadcast(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream);
  void all_gather(const char* input, char* output, std::uint64_t bytes, cudaStream_t stream);
  void all_to_all(const char* input, char* output, std::uint64_t bytes, cudaStream_t stream);
  void gather(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream);
  void scatter(const char* input, char* output, std::uint64_t bytes, int root, cudaStream_t stream);
  /// The ranks' sums, each of its part of `count` elements, which begins every `count`.
  void reduce_scatter(const char* input, char* output, std::uint64_t count, ncclDataType_t type, ncclRedOp_t op,
                      cudaStream_t stream);
  void all_reduce(const char* input, char* output, std::uint64_t count, ncclDataType_t type, ncclRedOp_t op,
                  cudaStream_t stream);
  void reduce(const char* input, char* output, std::uint64_t count, ncclDataType_t type, ncclRedOp_t op, int root,
              cudaStream_t stream);

  [[nodiscard]] ncclRedOp_t add_scaled_sum(const scaled_sum_of_rank& op);
  void remove_scaled_sum(ncclRedOp_t op);

 private:
  /// `count` elements of each of some ranks.
  struct part {
    std::uint64_t first;
    std::uint64_t count;
  };

  void move(const std::vector<transfer>& messages, cudaStream_t stream);
  /// The sum of one slice of all ranks, to `output`: `slices` has that of each rank which sums something, by rank.
  void sum_slices(const char* input, char* output, const std::vector<part>& slices, ncclDataType_t type, ncclRedOp_t op,
                  cudaStream_t stream);
  /// Does what `work` does to `stream` after what was asked for before, and notes its end.
  void in_order(cudaStream_t stream, const std::function<void()>& work);
  void check_root(int root) const;
  [[nodiscard]] const scaled_sum_of_rank* scaled_sum(ncclRedOp_t op) const;

  int rank_;
  int size_;
  std::string obstacle_;  ///< why there are none
  std::optional<host::device_communicator> owner_;
  channel::fifo_handle<channel::protocol::simple> stored_{};
  channel::fifo_handle<channel::protocol::network> put_{};
  bool is_one_team_;
  std::unique_ptr<device_bytes> came_;    ///< a slice of each rank
  std::unique_ptr<device_bytes> scaled_;  ///< the same of what goes out, multiplied
  std::vector<std::unique_ptr<device_bytes>> lists_;
  std::vector<std::optional<scaled_sum_of_rank>> scaled_sums_;
  std::vector<std::pair<transfer, cudaStream_t>> pending_;
  cudaEvent_t last_ = nullptr;  ///< recorded after each operation
  std::optional<cudaStream_t> last_stream_;
};

}  // namespace devcomm::nccl
