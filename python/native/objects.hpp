/// \file objects.hpp
/// What Python's objects hold. A communicator ends when nothing that was made of it is left, arrays included.
#pragma once

#include <nanobind/nanobind.h>

#include <devcomm/host/communicator.hpp>

#include "element_type.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::python {

namespace nb = nanobind;

struct rank_state {
  std::optional<host::communicator> comm;
  std::shared_ptr<host::bootstrap> ranks;  ///< null of what `split` made
  std::atomic<bool> made{false};           ///< whether `comm` is there

  // What kernels may still use when Python drops it is kept until the device is idle.
  std::atomic<bool> busy{false};  ///< since a launch, until all of the device was waited for
  std::mutex guard;
  std::vector<host::symmetric_memory> kept_memory;
  std::vector<host::device_communicator> kept_comms;
  std::vector<void*> lent;  ///< by `lend_host_memory`

  /// Waits for kernels, for a while, and ends their waits if they do not end.
  ~rank_state();
  /// The device is idle: frees what was kept.
  void idle() noexcept;
  /// Frees what was kept, if the device happens to be idle.
  void collect();

  /// Ends this rank's waits, on the host and in kernels; from any thread.
  void interrupt(const std::string& why) noexcept;

  /// Makes `comm`. Without the interpreter's lock.
  template <class... Arguments>
  void make(Arguments&&... arguments) {
    comm.emplace(std::forward<Arguments>(arguments)...);
    made = true;
  }
};

/// What Python calls `Communicator`. Arrays and device communicators keep what it holds after `close`.
struct communicator {
  std::shared_ptr<rank_state> state;  ///< null when it has been closed
  int rank;
  int size;
  int device;

  explicit communicator(std::shared_ptr<rank_state> s);
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  ~communicator();

  /// Throws `invalid_argument` when it has been closed.
  [[nodiscard]] host::communicator& open(const char* call) const;
  void close();
};

struct memory_state {
  std::shared_ptr<rank_state> rank;
  host::symmetric_memory memory;
  nb::object registered;  ///< the array that the window is over; none of memory of devcomm's own

  memory_state(std::shared_ptr<rank_state> r, host::symmetric_memory m) : rank(std::move(r)), memory(std::move(m)) {}
  ~memory_state();
};

struct device_state {
  std::shared_ptr<rank_state> rank;
  host::device_communicator comm;

  device_state(std::shared_ptr<rank_state> r, host::device_communicator c) : rank(std::move(r)), comm(std::move(c)) {}
  ~device_state();
};

/// An array that every rank has a part of the same shape of.
struct symmetric_array {
  std::shared_ptr<memory_state> memory;
  std::uint64_t offset = 0;  ///< bytes from the start of the window
  int member = -1;           ///< LSA member whose part it is; -1: this rank's own
  element_type type;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::uint64_t elements() const;
  [[nodiscard]] std::uint64_t bytes() const { return elements() * type.bytes(); }
  [[nodiscard]] char* data() const;
};

/// Where a feature's resources are: what a kernel takes by value.
struct resource {
  std::string type;  ///< in C++
  std::vector<std::byte> bytes;
};

/// Of a stream: a number, or an object of torch, CuPy or cuda.core.
[[nodiscard]] std::uintptr_t stream_of(nb::handle stream);

/// Runs `call` without the interpreter's lock. Ctrl-C on the main thread ends waits of the rank meanwhile.
template <class Call>
auto without_lock(rank_state* rank, Call&& call);

void bind_communicator(nb::module_& m);
void bind_requirements(nb::module_& m);
void bind_arrays(nb::module_& m);
void bind_kernels(nb::module_& m);

/// The text with kernels' names where it has the keys of those that this process has loaded; with the GIL.
std::string with_names_of_kernels(std::string text);

}  // namespace devcomm::python

#include "interrupt.hpp"

namespace devcomm::python {

template <class Call>
auto without_lock(rank_state* rank, Call&& call) {
  const interruptible guarded(rank);
  try {
    const nb::gil_scoped_release released;
    return call();
  } catch (...) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // rather than that the waits ended
    throw;
  }
}

}  // namespace devcomm::python
