/// \file captured_buffers.hpp
/// Memory that an engine allocated itself, collected while graphs are captured and registered with all ranks
/// afterwards.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/window.hpp>

#include <cstddef>
#include <memory>
#include <string_view>

namespace devcomm::host {

/// Buffers that kernels of a graph use as windows although they become so only after the capture. Move-only.
///
/// While a stream is captured nothing collective can run, and nothing is known of the peers' tensors. So `add` makes no
/// CUDA call and asks nobody: it returns a window with a place in a table in device memory, from which kernels read the
/// peers' addresses when they run. `communicator::register_buffers` fills it in when the capture has ended.
///
///     host::captured_buffers buffers = comm.collect_buffers(1024);
///     // while a stream is captured, for each call:
///     const sym_ptr<float> input = buffers.add(tensor, count);  // from cudaMalloc
///     launch(my_all_reduce, shape, device_comm.get(), input, output, count);
///     // when the capture has ended, and before the graph is launched:
///     comm.register_buffers(buffers);
///
/// *Collective*: the n-th `add` of each rank is one window, so ranks add buffers of the same sizes in the same order,
/// as they do when they capture the same calls. Addresses may differ, and one address may be added any number of times.
///
/// *Lifetime*: the buffers, and this object, outlive the graphs that use them. `check` finds buffers that did not.
class captured_buffers {
 public:
  captured_buffers(captured_buffers&&) noexcept;
  captured_buffers& operator=(captured_buffers&&) noexcept;
  ~captured_buffers();

  /// A window over `count` elements of this rank's device from `data` on, in memory from `cudaMalloc`. Throws
  /// `invalid_argument` where there is no room for another.
  template <class T>
  [[nodiscard]] sym_ptr<T> add(T* data, std::size_t count) & {
    return {add_bytes(data, count * sizeof(T)), 0};
  }
  template <class T>
  void add(T* data, std::size_t count) && = delete;

  /// How many were added, and how many of them are registered.
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] std::size_t registered() const noexcept;

  /// Throws `invalid_argument` when memory of this rank has been freed since it was registered, also where other
  /// memory has its address now: graphs that use it must not be launched, on any rank. Not collective; call it
  /// before a launch where an allocator might have given memory back.
  void check() const;

 private:
  friend class communicator;
  class state;
  /// As that of `symmetric_memory`.
  struct destroyer {
    void operator()(state* s) const noexcept;
  };
  explicit captured_buffers(std::unique_ptr<state, destroyer> s);
  [[nodiscard]] window add_bytes(void* data, std::size_t bytes);

  std::unique_ptr<state, destroyer> state_;
};

}  // namespace devcomm::host
