/// \file communicator.hpp
/// One rank on one device: makes symmetric memory and device communicators, watches over both.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/code_place.hpp>
#include <devcomm/host/error.hpp>
#include <devcomm/host/properties.hpp>
#include <devcomm/lsa/barriers.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host {

class communicator;

/// Memory of the same size on every rank of a communicator, freed on destruction. Move-only.
///
/// *Lifetime*: every rank must be done with its peers' memory before any rank destroys its own;
/// destruction itself does not wait.
class symmetric_memory {
 public:
  symmetric_memory(symmetric_memory&&) noexcept;
  symmetric_memory& operator=(symmetric_memory&&) noexcept;
  ~symmetric_memory();

  /// What kernels take.
  [[nodiscard]] const devcomm::window& window() const noexcept;
  /// This rank's part, and its size as asked for.
  [[nodiscard]] void* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// What messages call it.
  [[nodiscard]] const std::string& name() const noexcept;
  /// How peers reach it: "same process", "file descriptor", "fabric" or "CUDA IPC".
  [[nodiscard]] const std::string& how() const noexcept;

  template <class T>
  [[nodiscard]] sym_ptr<T> pointer() const noexcept {
    return {window(), 0};
  }

 private:
  friend class communicator;
  class state;
  explicit symmetric_memory(std::unique_ptr<state> s);
  std::unique_ptr<state> state_;
};

/// Owner of a `device_comm` and of the resources behind it. Move-only.
class device_communicator {
 public:
  device_communicator(device_communicator&&) noexcept;
  device_communicator& operator=(device_communicator&&) noexcept;
  ~device_communicator();

  /// What kernels take, by value.
  [[nodiscard]] const device_comm& get() const noexcept;

  /// Failed waits of this rank so far, oldest first; safe while kernels run.
  [[nodiscard]] std::vector<failure_record> failures() const;
  /// Throws `kernel_error` with a sentence for each failed wait, if there was one.
  void check() const;

 private:
  friend class communicator;
  class state;
  explicit device_communicator(std::unique_ptr<state> s);
  std::unique_ptr<state> state_;
};

/// "rank 2, block 3: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout".
[[nodiscard]] std::string describe(const failure_record& record);

struct communicator_options {
  /// Device of this rank; -1 takes its place among the ranks of this host, modulo the devices.
  int device = -1;
  /// Largest LSA team; 0 means as many as can reach each other. `DEVCOMM_LSA_SIZE` overrides.
  int lsa_size = 0;
  /// How long a kernel's wait without a deadline of its own may take; `DEVCOMM_TIMEOUT` (seconds)
  /// overrides.
  std::chrono::milliseconds kernel_timeout = std::chrono::minutes(10);
  /// Limit of every blocking step on the host.
  std::chrono::milliseconds limit = default_bootstrap_limit();
  /// Compare the launches of all ranks, as `device_comm::check_launch` says; `DEVCOMM_CHECK_LAUNCH` (0 or 1)
  /// overrides. On by default in the simulator.
  bool check_launch = false;
  /// Have a table for waits that last, see `watchdog.hpp`. Set when the program is compiled with
  /// `DEVCOMM_WATCHDOG`; set it yourself where only the files with kernels are. The same on all ranks.
  bool watchdog = DEVCOMM_WATCHDOG != 0;
  /// `device_comm::layout_version` of the headers that the program was compiled with; leave it alone.
  /// The library refuses a program built with another layout than its own.
  std::uint32_t layout_version = device_comm::layout_version;
};

/// *Collective* (constructor, `allocate`, `register_memory`, `create_device_comm`, `split`, `write_trace`,
/// `clear_trace`, `barrier`): every rank calls, in the same order. When one rank fails, all throw: the one its own
/// error, the others `remote_error` naming it. When a rank is missing, `timeout_error` names it.
///
/// One thread at a time may use a communicator; `abort` may be called from any.
class communicator {
 public:
  explicit communicator(std::shared_ptr<bootstrap> ranks, communicator_options options = {});
  communicator(communicator&&) noexcept;
  communicator& operator=(communicator&&) noexcept;
  ~communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] int device() const noexcept;
  [[nodiscard]] team world() const noexcept;
  [[nodiscard]] team lsa() const noexcept;
  [[nodiscard]] team rail() const noexcept;
  /// What is available, and for what is not, why.
  [[nodiscard]] const host::properties& properties() const noexcept;

  /// `bytes` (the same on all ranks, at least 1) of zeroed device memory on every rank. Messages call it by `name`,
  /// "window 3" unless given, and say where it was made when it outlives its communicator.
  [[nodiscard]] symmetric_memory allocate(std::size_t bytes, std::string_view name = {},
                                          code_place made = code_place::here());

  /// A window over memory that the caller allocated with `cudaMalloc` and keeps alive. Addresses may
  /// differ between ranks; `bytes` must not.
  [[nodiscard]] symmetric_memory register_memory(void* local, std::size_t bytes, std::string_view name = {},
                                                 code_place made = code_place::here());

  /// An empty `requirements` for this communicator.
  [[nodiscard]] devcomm::requirements requirements() const;
  /// Resources for kernels. Ranks must ask for the same things.
  [[nodiscard]] device_communicator create_device_comm(const devcomm::requirements& needs,
                                                       code_place made = code_place::here());

  /// The ranks that give one `color`, ordered by `key`, then rank. A negative color takes part and
  /// gets nothing.
  [[nodiscard]] std::unique_ptr<communicator> split(int color, int key);

  /// Writes the spans that kernels have recorded in `traced`, those of all ranks in one file: JSON for Perfetto
  /// (ui.perfetto.dev) and chrome://tracing. docs/tracing.md says what is in it. *Collective*; rank 0 writes the
  /// file. *Requires* that the kernels are over, and `requirements::trace`.
  void write_trace(const device_communicator& traced, const std::string& path);
  /// Forgets the spans recorded so far, of a first launch, say. *Collective*. *Requires* that no kernel runs.
  void clear_trace(const device_communicator& traced);

  /// Host barrier. Does not wait for kernels.
  void barrier();

  /// Ends every wait of this rank's kernels with `status::aborted`, now and later.
  void abort() noexcept;
  [[nodiscard]] bool aborted() const noexcept;
  /// World rank of a process of this host that ended without destroying its communicator, or -1. Its
  /// end aborts this communicator.
  [[nodiscard]] int dead_rank() const noexcept;
  /// Throws `remote_error` when a peer died, `kernel_error` when a wait failed or `abort` was called; also
  /// for failures of device communicators that have been destroyed since.
  void check() const;

 private:
  class state;
  communicator() noexcept;
  std::unique_ptr<state> state_;
};

}  // namespace devcomm::host
