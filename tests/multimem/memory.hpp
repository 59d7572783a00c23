/// \file memory.hpp
/// Windows with a multicast address on simulated GPUs, made by the ports themselves.
#pragma once

#include <devcomm/multimem/window_record.hpp>
#include <devcomm/window.hpp>

#include "support/ranks.hpp"

#include <device/backend.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace multimem_test {

namespace host = devcomm::host::detail;

enum class how { multicast, software };

/// `bytes` of memory on each of the first devices, one rank on each, all in this process.
class memory {
 public:
  memory(int ranks, std::size_t bytes, how kind = how::multicast) : ranks_(ranks), bytes_(bytes) {
    host::backend& devices = host::current_backend();
    devices.provide_devices(ranks);
    const std::size_t granule = devices.multicast_granularity(ranks, host::handle_kind::none);
    const std::size_t capacity = (bytes + granule - 1) / granule * granule;
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    stride_ = capacity + granule;
    slots_ = devices.reserve(stride_ * static_cast<std::size_t>(ranks));
    if (kind == how::multicast) object_ = devices.create_multicast(ranks, capacity, host::handle_kind::none);
    for (int r = 0; r < ranks; ++r) {
      physical_.push_back(devices.create_physical(r, capacity, host::handle_kind::none));
      slots_->map(stride_ * static_cast<std::size_t>(r), *physical_.back(), all);
      parts_.push_back({at(r), bytes, capacity, r});
      if (object_) object_->add_device(r);
    }
    labels_ = devices.label("window 'tensor'", parts_);
    if (object_) {
      for (int r = 0; r < ranks; ++r) object_->bind(r, 0, *physical_[static_cast<std::size_t>(r)], capacity);
      multicast_ = devices.reserve(capacity);
      multicast_->map(0, *object_, capacity, all);
    }
    for (int r = 0; r < ranks; ++r) {
      records_.push_back(devices.allocate_device(r, sizeof(devcomm::multimem::window_record)));
      const devcomm::multimem::window_record record{object_ ? multicast_->base() : nullptr,
                                                    static_cast<std::uint64_t>(ranks)};
      devices.copy(r, records_.back()->data(), &record, sizeof record, std::chrono::seconds(60));
    }
  }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;

  [[nodiscard]] devcomm::window window(int rank) const {
    return {slots_->base(), {.multicast = record(rank)}, at(rank), stride_, bytes_, 0, ranks_, rank, 77, nullptr};
  }
  [[nodiscard]] devcomm::multimem::window_record* record(int rank) const {
    return reinterpret_cast<devcomm::multimem::window_record*>(records_[static_cast<std::size_t>(rank)]->data());
  }
  [[nodiscard]] char* at(int rank) const { return slots_->base() + stride_ * static_cast<std::size_t>(rank); }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] host::multicast_object& object() { return *object_; }
  [[nodiscard]] host::physical_memory& physical(int rank) { return *physical_[static_cast<std::size_t>(rank)]; }

  void write(int rank, std::size_t offset, const void* from, std::size_t bytes) {
    host::current_backend().copy(rank, at(rank) + offset, from, bytes, std::chrono::seconds(60));
  }
  void read(int rank, std::size_t offset, void* to, std::size_t bytes) const {
    host::current_backend().read(rank, to, at(rank) + offset, bytes, std::chrono::seconds(60));
  }
  template <class T>
  [[nodiscard]] T get(int rank, std::size_t offset) const {
    T value;
    read(rank, offset, static_cast<void*>(&value), sizeof value);
    return value;
  }

 private:
  int ranks_;
  std::size_t bytes_;
  std::size_t stride_ = 0;
  std::vector<std::unique_ptr<host::physical_memory>> physical_;  // outlives what it is mapped and bound to
  std::unique_ptr<host::multicast_object> object_;
  std::unique_ptr<host::address_range> slots_;
  std::unique_ptr<host::address_range> multicast_;
  std::vector<host::window_part> parts_;
  std::unique_ptr<host::memory_label> labels_;
  std::vector<std::unique_ptr<host::opened_memory>> records_;
};

/// Launches `kernel(window, arguments...)` on each rank, and waits for all.
template <class Kernel, class... Arguments>
cudaError_t run_all(const memory& shared, Kernel kernel, unsigned threads, Arguments... arguments) {
  for (int r = 0; r < shared.ranks(); ++r) {
    devcomm::check_cuda(cudaSetDevice(r), "cudaSetDevice");
    devcomm::launch(kernel, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, shared.window(r),
                    arguments...);
  }
  cudaError_t first = cudaSuccess;
  for (int r = 0; r < shared.ranks(); ++r) {
    devcomm::check_cuda(cudaSetDevice(r), "cudaSetDevice");
    const cudaError_t status = cudaStreamSynchronize(cudaStreamPerThread);
    if (first == cudaSuccess) first = status;
  }
  return first;
}

}  // namespace multimem_test
