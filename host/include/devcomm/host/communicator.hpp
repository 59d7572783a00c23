/// \file communicator.hpp
/// One rank on one device: makes symmetric memory and device communicators, and reports their failures.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/gin/buffer.hpp>
#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/code_place.hpp>
#include <devcomm/host/error.hpp>
#include <devcomm/host/memory_place.hpp>
#include <devcomm/host/properties.hpp>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/whole_world.hpp>
#include <devcomm/multimem/resources.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace devcomm::host {

class captured_buffers;
class communicator;

/// What is asked of multicast for a window: `multimem_policy::none`, `multimem_policy::required` or
/// `multimem_policy::or_software`.
using multimem_policy = devcomm::multimem::policy;

namespace detail {
class backend;
struct context_of;
struct ended_rank;
enum class registered_layout;
}  // namespace detail

/// Memory of the same size on every rank of a communicator, freed on destruction. Move-only.
///
/// *Lifetime*: every rank must be done with its peers' memory before any rank destroys its own;
/// destruction itself does not wait.
class symmetric_memory {
 public:
  symmetric_memory(symmetric_memory&&) noexcept;
  symmetric_memory& operator=(symmetric_memory&&) noexcept;
  ~symmetric_memory();

  /// The kernel argument. Not of a temporary, which frees the memory before a kernel has run: keep the owner in a
  /// variable.
  [[nodiscard]] const devcomm::window& window() const& noexcept;
  void window() const&& = delete;
  /// This rank's part, and its size as asked for.
  [[nodiscard]] void* data() const& noexcept;
  void data() const&& = delete;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Its name in messages.
  [[nodiscard]] const std::string& name() const noexcept;
  /// How peers map it: "same process", "file descriptor", "fabric" or "CUDA IPC".
  [[nodiscard]] const std::string& handle_type() const noexcept;
  /// Whether the window has a multicast address, and by what means; if not, why, and whether kernels that use multimem
  /// run in software on it.
  [[nodiscard]] const capability& multimem() const noexcept;

  template <class T>
  [[nodiscard]] sym_ptr<T> pointer() const& noexcept {
    return {window(), 0};
  }
  template <class T>
  void pointer() const&& = delete;

 private:
  friend class communicator;
  class state;
  /// Leaves a forked child's copy alone: what it holds is the parent's.
  struct destroyer {
    void operator()(state* s) const noexcept;
  };
  explicit symmetric_memory(std::unique_ptr<state, destroyer> s);
  std::unique_ptr<state, destroyer> state_;
};

/// Owner of a `device_comm` and of the resources behind it. Move-only.
///
/// *Lifetime*: kernels that use it must be over before it is destroyed. From then on kernels of other ranks wait for
/// this rank in vain: such a wait ends as aborted, unless what it waits for is there. Where an exception destroys it,
/// the waits of kernels that use it end, on all ranks of this host.
class device_communicator {
 public:
  device_communicator(device_communicator&&) noexcept;
  device_communicator& operator=(device_communicator&&) noexcept;
  ~device_communicator();

  /// The kernel argument, by value. Not of a temporary, which ends before a kernel has run: keep the owner in a
  /// variable.
  [[nodiscard]] const device_comm& get() const& noexcept;
  void get() const&& = delete;

  /// The network memory; a window without bytes where none was asked for.
  [[nodiscard]] const window& network_memory() const noexcept;
  /// Where a buffer in it lies on every rank, for kernels that do not ask `gin::memory_of`.
  template <class T>
  [[nodiscard]] sym_ptr<T> memory_of(const gin::buffer_handle<T>& buffer) const noexcept {
    return {network_memory(), buffer.offset};
  }
  /// Whether it has contexts of the network; if so, what their operations go over, and which way payload takes between
  /// windows in device memory and the network.
  [[nodiscard]] const capability& network() const noexcept;
  /// Failed waits of this rank so far, oldest first; safe while kernels run.
  [[nodiscard]] std::vector<failure_record> failures() const;
  /// As the communicator's `check`, of this device communicator's failed waits.
  void check() const;

 private:
  friend class communicator;
  class state;
  /// As that of `symmetric_memory`.
  struct destroyer {
    void operator()(state* s) const noexcept;
  };
  explicit device_communicator(std::unique_ptr<state, destroyer> s);
  std::unique_ptr<state, destroyer> state_;
};

/// "rank 2, block 3: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout".
[[nodiscard]] std::string describe(const failure_record& record);

struct communicator_options {
  /// Device of this rank; -1 takes the rank's index among those of this host, modulo the number of devices.
  int device = -1;
  /// Largest LSA team; 0 means as many as can reach each other. The last team has what is
  /// left. `DEVCOMM_LSA_SIZE` overrides.
  int lsa_size = 0;
  /// How long a kernel's wait without a deadline of its own may take; `DEVCOMM_TIMEOUT` (seconds)
  /// overrides.
  std::chrono::milliseconds kernel_timeout = std::chrono::minutes(10);
  /// Limit of every blocking step on the host.
  std::chrono::milliseconds limit = default_bootstrap_limit();
  /// Compare the launches of all ranks, as `device_comm::check_launch` says; `DEVCOMM_CHECK_LAUNCH` (0 or 1)
  /// overrides. On by default in the simulator.
  bool check_launch = false;
  /// Make a wait table for the watchdog, see `watchdog.hpp`. True when the program is compiled with `DEVCOMM_WATCHDOG`;
  /// set it where only the files with kernels are. The same on all ranks.
  bool watchdog = DEVCOMM_WATCHDOG != 0;
  /// The devices; null for those of the library that was linked, CUDA's or the simulator's. For tests of the library.
  detail::backend* devices = nullptr;
  /// `device_comm::layout_version` of the headers that the program was compiled with; do not set it.
  /// The library refuses a program built with another layout than its own.
  std::uint32_t layout_version = device_comm::layout_version;
};

/// *Collective* (constructor, `allocate`, `register_memory`, `collect_buffers`, `register_buffers`,
/// `create_device_comm`, `split`, `write_trace`, `clear_trace`, `all_gather`, `barrier`): every rank calls, in the same
/// order. When one rank fails, all throw: the one its own error, the others `remote_error` naming it. When a rank is
/// missing, `timeout_error` names it.
///
/// An exception that destroys it on one rank ends the waits of the others, on the host and in kernels, as `abort` does;
/// their `check` and their collective calls throw `remote_error` that names the rank.
///
/// In a forked child its copy, and those of what it made, may only be destroyed, which does nothing: collective calls,
/// `check` and `failures` throw `invalid_argument`.
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
  /// World ranks of the members of `lsa()`, ascending.
  [[nodiscard]] const std::vector<int>& lsa_ranks() const noexcept;
  /// Members of `lsa()` in the order in which a ring should go round, the same on all ranks: one host after another,
  /// on each by the PCI addresses of the devices, so that those behind one switch or socket follow each other. For
  /// `channel::ring_table`.
  [[nodiscard]] const std::vector<int>& lsa_ring() const noexcept;
  /// The ranks with this one's index in each LSA team. Throws `not_supported` where LSA teams differ in size or are
  /// placed unevenly, with the reason that `properties().rail` has.
  [[nodiscard]] team rail() const;
  /// What is available, and for what is not, why.
  [[nodiscard]] const host::properties& properties() const noexcept;

  /// `bytes` (the same on all ranks, at least 1) of zeroed device memory on every rank. `name` is for messages, which
  /// say "window 3" without one; `made` is the line to report when it outlives its communicator. Of windows with
  /// multimem kernels make `multimem::ptr`: `multimem_policy::required` throws `not_supported`, with the reason, where
  /// there is no multicast; `multimem_policy::or_software` falls back, and the result's `multimem()` says so.
  [[nodiscard]] symmetric_memory allocate(std::size_t bytes, std::string_view name = {},
                                          devcomm::multimem::policy asked = devcomm::multimem::policy::none,
                                          code_place made = code_place::here());
  /// The same where `place` says. With `memory_place::pinned_host` puts and gets of GIN need no copy engine, over
  /// fabrics that do not reach GPU memory too; peers' loads and stores cross PCIe, and atomic operations of several
  /// GPUs on one word are atomic only where PCIe or NVLink to the host makes them so. There is no multimem on such a
  /// window. Throws `not_supported` where `properties().pinned_host` says no.
  [[nodiscard]] symmetric_memory allocate(std::size_t bytes, memory_place place, std::string_view name = {},
                                          code_place made = code_place::here());

  /// A window over memory that the caller allocated with `cudaMalloc` and keeps alive. Addresses may
  /// differ between ranks; `bytes` must not.
  [[nodiscard]] symmetric_memory register_memory(void* local, std::size_t bytes, std::string_view name = {},
                                                 code_place made = code_place::here());

  /// Room for `most` buffers (the same on all ranks) that graphs are captured with, see `captured_buffers.hpp`.
  [[nodiscard]] captured_buffers collect_buffers(std::size_t most, std::string_view name = {},
                                                 code_place made = code_place::here());
  /// Makes windows of the buffers that were added since the last time: from here on graphs that use them may be
  /// launched. After an error none of these is registered. *Requires* that no stream of this thread is being captured.
  void register_buffers(captured_buffers& added);

  /// An empty `requirements` for this communicator.
  [[nodiscard]] devcomm::requirements requirements() const;
  /// Resources for kernels. Ranks must ask for the same things.
  [[nodiscard]] device_communicator create_device_comm(const devcomm::requirements& needs,
                                                       code_place made = code_place::here());

  /// A communicator of the ranks that pass the same `color`, ordered by `key`, then rank. Null on ranks that pass a
  /// negative color.
  [[nodiscard]] std::unique_ptr<communicator> split(int color, int key);

  /// Writes the spans that kernels have recorded in `traced`, those of all ranks in one file: JSON for Perfetto
  /// (ui.perfetto.dev) and chrome://tracing. docs/tracing.md says what is in it. *Collective*; rank 0 writes the
  /// file. *Requires* that the kernels are over, and `requirements::trace`.
  void write_trace(const device_communicator& traced, const std::string& path);
  /// Deletes the spans recorded so far, for example those of a warm-up launch. *Collective*. *Requires* that no kernel
  /// runs.
  void clear_trace(const device_communicator& traced);

  /// Every rank's `mine`, rank 0's first: small values of the host, such as sizes and times. Any LSA teams.
  template <class T>
  [[nodiscard]] std::vector<T> all_gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>, "all_gather: values travel between processes as bytes");
    std::vector<T> all(static_cast<std::size_t>(size()));
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  /// The same of as many bytes from each rank as `mine` has there, the same number everywhere; `all` has room for those
  /// of all ranks.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Host barrier. Does not wait for kernels.
  void barrier();

  /// Ends every wait of this rank's kernels that has lasted 0.2 ms, or reaches its deadline, with `status::aborted`,
  /// within a millisecond. Once one has ended, so have all others of its device communicator, and all sessions that
  /// begin later. The other ranks are notified at once, and their kernels' waits end too, also on other hosts where the
  /// bootstrap is `tcp_bootstrap` or made of launcher's variables; with another one those hear of it when this rank
  /// leaves. Collective calls go on.
  void abort() noexcept;
  /// By this rank, by another one, or because one is lost.
  [[nodiscard]] bool aborted() const noexcept;
  /// World rank of a process of this host that ended without destroying its communicator, or -1. This communicator is
  /// then aborted.
  [[nodiscard]] int dead_rank() const noexcept;
  /// Throws `remote_error` when a peer is lost, aborted, or abandoned a device communicator, because of an exception
  /// for example; `kernel_error` when a wait failed or `abort` was called. Also for failures of device communicators
  /// that have been destroyed since. In the simulator, a kernel that failed is one as well: on GPUs calls of CUDA tell
  /// of those.
  void check() const;

 private:
  friend struct detail::context_of;
  friend struct detail::ended_rank;
  class state;
  /// As that of `symmetric_memory`.
  struct destroyer {
    void operator()(state* s) const noexcept;
  };
  communicator() noexcept;
  symmetric_memory register_memory(void* local, std::size_t bytes, const std::string& name,
                                   detail::registered_layout layout, code_place made);
  std::unique_ptr<state, destroyer> state_;
};

/// Aborts a communicator when an exception leaves the scope. Declare it after the objects whose destructors wait for
/// kernels, as `cudaFree` does: their kernels may wait for peers that this rank will not join again. `run_ranks` does
/// the same after a second.
///
///     device_array<float> input(count);  // frees with cudaFree
///     const host::abort_on_exception guard(comm);
///     launch(kernel, config, device_comm.get(), input.get());  // may throw beside a kernel that waits
class abort_on_exception {
 public:
  explicit abort_on_exception(communicator& aborted) noexcept
      : aborted_(aborted), before_(std::uncaught_exceptions()) {}
  abort_on_exception(const abort_on_exception&) = delete;
  abort_on_exception& operator=(const abort_on_exception&) = delete;
  ~abort_on_exception() {
    if (std::uncaught_exceptions() > before_) aborted_.abort();
  }

 private:
  communicator& aborted_;
  int before_;
};

}  // namespace devcomm::host
