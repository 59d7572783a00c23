#include "device/cuda/network.hpp"

#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/memory.hpp"
#include "util/cpu_list.hpp"
#include "util/deadline.hpp"
#include "util/idle_pauses.hpp"
#include "util/quiet_thread.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace devcomm::host::cuda {
namespace {

struct closer {
  void operator()(CUstream stream) const noexcept { report(driver().stream_destroy(stream), "cuStreamDestroy"); }
};
template <class Handle>
using owned = std::unique_ptr<std::remove_pointer_t<Handle>, closer>;

/// Copies one way, which a stream does in order. Behind those that were begun since the last time it writes their
/// number to a word of the host: that takes the host less time than an event, and looking is a load. Where streams
/// write no values, the stream is asked whether all is done.
class copy_stream {
 public:
  /// `done` is a word of pinned memory, of no other stream.
  copy_stream(int priority, bool writes_values, std::uint64_t& done) : writes_values_(writes_values), word_(done) {
    CUstream stream = nullptr;
    check(driver().stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, priority),
          "cuStreamCreateWithPriority");
    stream_.reset(stream);
  }

  [[nodiscard]] CUstream get() const { return stream_.get(); }
  /// Of what was given to the stream last. Waits for nothing: the caller holds locks.
  [[nodiscard]] std::uint64_t number_it() { return begun_++; }
  /// Calls nothing of the driver's. Whether `ask` is to be called.
  [[nodiscard]] bool poll() {
    constexpr std::uint64_t often = 4096;  // a device that has failed writes no word
    if (is_idle()) return false;
    done_ = std::max(done_, std::atomic_ref(word_).load(std::memory_order_acquire));
    return !is_idle() && (!writes_values_ || ++looks_ % often == 0);
  }
  void ask() {
    const CUresult code = driver().stream_query(stream_.get());
    if (code == CUDA_ERROR_NOT_READY) return;
    check(code, "cuStreamQuery");
    done_ = begun_;
  }
  /// Lets the stream tell when all that it was given is done.
  void watch() {
    if (is_watched()) return;
    check(driver().stream_write_value64(stream_.get(), reinterpret_cast<CUdeviceptr>(&word_), begun_,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue64");
    watched_ = begun_;
  }
  [[nodiscard]] bool is_watched() const { return !writes_values_ || watched_ == begun_; }
  [[nodiscard]] bool is_idle() const { return done_ == begun_; }
  [[nodiscard]] bool is_done(std::uint64_t number) const { return number < done_; }

 private:
  bool writes_values_;
  owned<CUstream> stream_;
  std::uint64_t& word_;
  std::uint64_t begun_ = 0;    // copies
  std::uint64_t watched_ = 0;  // those behind which the word is written
  std::uint64_t done_ = 0;
  std::uint64_t looks_ = 0;
};

int highest_priority() {
  int least = 0;
  int greatest = 0;
  check(driver().ctx_get_stream_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
  return greatest;
}

class stream_copies final : public detail::copy_engine {
 public:
  explicit stream_copies(int device) : device_(device), words_(allocate_host(device, 2 * sizeof(std::uint64_t))) {
    const on_device scope(device);
    const bool writes_values = driver().stream_write_value64 != nullptr &&
                               attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
    auto* const words = static_cast<std::uint64_t*>(words_->data());
    words[0] = words[1] = 0;
    reads_ = std::make_unique<copy_stream>(highest_priority(), writes_values, words[0]);
    writes_ = std::make_unique<copy_stream>(highest_priority(), writes_values, words[1]);
  }
  ~stream_copies() override {
    const on_device scope(device_, std::nothrow);
    try {
      const detail::deadline limit(std::chrono::seconds(2));
      for (; !reads_->is_idle() || !writes_->is_idle(); std::this_thread::yield()) {
        poll();
        if (limit.passed()) throw system_error("copies did not end");
      }
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "devcomm: copies of device %d for the network: %s\n", device_, problem.what());
    }
    reads_.reset();
    writes_.reset();
  }
  stream_copies(const stream_copies&) = delete;
  stream_copies& operator=(const stream_copies&) = delete;

  [[nodiscard]] std::uint64_t begin_read(void* host, const void* memory, std::size_t bytes) override {
    const on_device scope(device_);
    check(driver().memcpy_dtoh_async(host, reinterpret_cast<CUdeviceptr>(memory), bytes, reads_->get()),
          "cuMemcpyDtoHAsync");
    return reads_->number_it() << 1;
  }
  [[nodiscard]] std::uint64_t begin_write(void* memory, const void* host, std::size_t bytes) override {
    const on_device scope(device_);
    check(driver().memcpy_htod_async(reinterpret_cast<CUdeviceptr>(memory), host, bytes, writes_->get()),
          "cuMemcpyHtoDAsync");
    return writes_->number_it() << 1 | 1;
  }
  void poll() override {
    for (copy_stream* const each : {reads_.get(), writes_.get()}) {
      if (!each->poll()) continue;
      const on_device scope(device_);
      each->ask();
    }
    watch();
  }
  void watch() override {
    if (reads_->is_watched() && writes_->is_watched()) return;
    const on_device scope(device_);
    reads_->watch();
    writes_->watch();
  }
  [[nodiscard]] bool is_done(std::uint64_t number) const override {
    return ((number & 1) == 0 ? reads_ : writes_)->is_done(number >> 1);
  }

 private:
  int device_;
  std::unique_ptr<detail::host_memory> words_;  // one for each stream
  std::unique_ptr<copy_stream> reads_;
  std::unique_ptr<copy_stream> writes_;
};

class proxy_thread final : public detail::background_task {
 public:
  proxy_thread(std::vector<int> cpus, const detail::proxy_work& work)
      : step_(work.step), cpus_(std::move(cpus)), thread_(detail::quiet_thread([this] { run(); })) {}
  ~proxy_thread() override {
    ends_ = true;
    thread_.join();
  }
  proxy_thread(const proxy_thread&) = delete;
  proxy_thread& operator=(const proxy_thread&) = delete;

 private:
  void run() noexcept {
    constexpr unsigned long nanoseconds = 1000;
    ::prctl(PR_SET_NAME, "devcomm-network");
    ::prctl(PR_SET_TIMERSLACK, nanoseconds);
    detail::stay_on(cpus_);
    stay_out_of_captures();
    // In turn, so that no context and no operation is left behind by others.
    const detail::choose_next in_turn = [turn = 0u](std::uint32_t count, const detail::describe_step&) mutable {
      return turn++ % count;
    };
    detail::idle_pauses pauses;
    for (;;) {
      const bool last = ends_;  // what was posted before is seen by the step that follows
      const bool any = step_(in_turn);
      if (last && !any) return;
      pauses.after(any);
    }
  }

  std::function<bool(const detail::choose_next&)> step_;
  std::vector<int> cpus_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace

capability device_from_cards(int device) {
  if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) == 0 ||
      attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 0) {
    return {false, "the driver has no GPUDirect RDMA for this device"};
  }
  // Where writes must be flushed, a put without a signal would be complete with nobody there to flush it.
  if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
      CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
    return {false, "the device does not order the writes of network cards, as GPUs before Hopper"};
  }
  // GH200 and GB200: the proxy's signal goes over NVLink-C2C and a card's data over PCIe, and the signal may be seen
  // first. Such hosts are known by GPUs that use the processor's page tables.
  if (attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) != 0) {
    return {false,
            "NVLink-C2C connects the device and the processor, so that a signal may overtake what a card writes"};
  }
  return {true, "GPUDirect RDMA"};
}

std::unique_ptr<detail::copy_engine> open_copies(int device) { return std::make_unique<stream_copies>(device); }

std::unique_ptr<detail::background_task> start_background_task(const std::vector<int>& cpus,
                                                               const detail::proxy_work& work) {
  return std::make_unique<proxy_thread>(cpus, work);
}

void stay_out_of_captures() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  report(driver().thread_exchange_stream_capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
}

}  // namespace devcomm::host::cuda
