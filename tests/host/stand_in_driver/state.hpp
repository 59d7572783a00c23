/// \file state.hpp
/// What the stand-in keeps for a process, and how a call of the driver begins and ends.
#pragma once

#include <cuda.h>

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stand_in {

inline constexpr std::size_t header_bytes = 4096;
inline constexpr std::size_t memory_granularity = 64 << 10;
inline constexpr std::size_t multicast_granularity = 256 << 10;
inline constexpr std::size_t recommended_multicast_granularity = 1 << 20;

/// The first page of a memfd, which all processes that hold the object map.
struct shared_header {
  enum class kind : std::uint32_t { memory = 0x6d656d31, multicast, plain };
  kind what;
  std::uint32_t handle_types;
  std::uint32_t device;   ///< memory: a GPU of the host
  std::uint32_t members;  ///< multicast: how many devices
  std::uint64_t bytes;
  std::atomic<std::uint64_t> added;  ///< multicast: a bit for each GPU
  std::atomic<std::uint64_t> bound;
};

/// A name by which another process opens a memfd: fabric handles and CUDA IPC.
struct shared_name {
  std::int64_t pid;
  std::int64_t descriptor;
  std::uint64_t inode;
  std::uint64_t bytes;
};

/// A memfd and its header, mapped here.
struct shared_file {
  int descriptor = -1;
  shared_header* header = nullptr;

  [[nodiscard]] shared_name name() const;
};

/// What a handle of this process stands for.
struct object {
  struct binding {
    int device;  ///< a GPU of the host
    std::size_t offset;
    std::size_t bytes;
    CUmemGenericAllocationHandle memory;
  };
  shared_file file;
  bool imported = false;
  int references = 1;
  int mapped = 0;
  int bound = 0;                  ///< memory: to how many multicast objects
  std::vector<binding> bindings;  ///< multicast: those of this process

  [[nodiscard]] bool is_multicast() const { return file.header->what == shared_header::kind::multicast; }
};

struct reservation {
  std::size_t bytes;
  void* raw;
  std::size_t raw_bytes;
};

struct mapping {
  std::size_t bytes;
  CUmemGenericAllocationHandle handle;
};

struct plain_allocation {
  std::size_t bytes;
  int device;   ///< of this process
  bool opened;  ///< by CUDA IPC
  bool pooled;  ///< from an asynchronous pool
  shared_file file;
  unsigned long long number;  ///< that no other has
};

/// Work that a stream does in order: at once, or where copies are delayed, by and by.
class stream {
 public:
  /// Without a `call`.
  ~stream();

  void begin(std::function<void()> work);
  /// From here on what waits is done although nobody asks.
  void go_on_alone();
  void do_all();
  [[nodiscard]] bool is_done() const { return waiting_.empty(); }

 private:
  void do_next();

  std::deque<std::function<void()>> waiting_;
  std::atomic<bool> ends_{false};
  std::thread alone_;
};

struct options {
  int version = 13000;
  std::string missing;
  std::vector<int> visible;  ///< GPUs of the host by the process's index
  int with_multicast = 1 << 20;
  bool peers = true;
  bool fabric = true;
  int cards = 0;              ///< 1: reach the devices' memory; 2: their writes are ordered, too; 3: beside NVLink-C2C
  bool registers = true;      ///< host memory
  bool writes_values = true;  ///< streams do
  std::size_t memory = std::size_t{1} << 40;  ///< of each device, for `cuMemCreate`
};

struct process_state {
  std::recursive_mutex mutex;
  std::atomic<bool> busy{false};
  options chosen;
  bool started = false;
  std::map<CUmemGenericAllocationHandle, object> objects;
  CUmemGenericAllocationHandle next_handle = 0x1000;
  std::map<CUdeviceptr, reservation> reservations;
  std::map<CUdeviceptr, mapping> mappings;
  std::map<CUdeviceptr, plain_allocation> plain;
  unsigned long long numbers = 0;  ///< of plain allocations so far
  std::map<void*, std::size_t> host;
  std::map<void*, std::size_t> registered;  ///< by `cuMemHostRegister`
  int copy_delay = 0;                       ///< looks at a stream in which it does one thing; 0: it does all at once
  int streams = 0;

  std::map<std::string, int> calls;
  std::string failing;
  int failing_call = 0;
  std::string complaints;

  [[nodiscard]] object* find(CUmemGenericAllocationHandle handle);
  /// The mapping that contains `address`, or its end.
  [[nodiscard]] std::map<CUdeviceptr, mapping>::iterator mapping_of(CUdeviceptr address);
  [[nodiscard]] bool is_device(CUdevice device) const {
    return device >= 0 && static_cast<std::size_t>(device) < chosen.visible.size();
  }
  [[nodiscard]] int gpu_of(CUdevice device) const { return chosen.visible[static_cast<std::size_t>(device)]; }
};

[[nodiscard]] process_state& state();

/// A call of the driver: counted, one at a time, and perhaps one that fails.
class call {
 public:
  explicit call(const char* function);
  [[nodiscard]] bool fails() const noexcept { return fails_; }
  static constexpr CUresult failure = CUDA_ERROR_NOT_PERMITTED;
  /// Of functions that give something back, which do their work also when they fail.
  [[nodiscard]] CUresult result(CUresult done) const noexcept { return fails_ ? failure : done; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  bool fails_;
};

/// Returns when no kernel runs. Not with a `call`, which would keep others from the driver.
void wait_for_kernels();

/// Notes a broken rule.
[[nodiscard]] CUresult complain(const std::string& sentence, CUresult code = CUDA_ERROR_ILLEGAL_STATE);

/// A new memfd with a header, and `bytes` behind it. No descriptor where there is none left.
[[nodiscard]] shared_file create_file(shared_header::kind what, std::size_t bytes);
/// Takes over `descriptor`; no descriptor in the result, and it is closed, unless it is one of the stand-in's.
[[nodiscard]] shared_file open_file(int descriptor);
[[nodiscard]] shared_file open_file(const shared_name& name);
void close_file(shared_file& file);

/// Whether the calling thread has a context.
[[nodiscard]] CUdevice current_device();

// By name, in each file's list.
using entry = std::pair<const char*, void*>;
[[nodiscard]] std::vector<entry> device_entries();
[[nodiscard]] std::vector<entry> memory_entries();
[[nodiscard]] std::vector<entry> multicast_entries();
[[nodiscard]] std::vector<entry> plain_memory_entries();

}  // namespace stand_in
