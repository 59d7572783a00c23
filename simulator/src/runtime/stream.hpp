/// \file stream.hpp
/// Streams and events of the simulated devices.
#pragma once

#include "engine/task.hpp"

#include <cstdint>
#include <vector>

struct CUstream_st {};

namespace devcomm::simulator::detail {

struct capture;

/// A stream: each task comes after the one before.
///
/// Streams made with `cudaStreamDefault`, and each thread's own, also come before and after what the
/// legacy default stream of their device is given, as in CUDA.
struct stream_state : CUstream_st, task_queue {
  bool legacy = false;
  bool blocking = true;  ///< synchronizes with the legacy default stream
  int priority = 0;
  unsigned flags = 0;
  task_ref tail;
  /// Launches beside which later ones of the stream have started, up to the tail: dependent launches that do not wait
  /// end before them. Whatever is no dependent launch comes after them all.
  std::vector<task_ref> beside_tail;
  std::vector<task_ref> extra;  ///< events that the next task comes after
  capture* recording = nullptr;
  std::vector<int> recorded_tail;  ///< graph nodes that the next captured node comes after
};

/// Adds `work` to `stream`, and returns its task.
task_ref enqueue(stream_state& stream, const operation_ref& work);

/// The stream behind a handle: null and `cudaStreamLegacy` are the current device's default stream,
/// `cudaStreamPerThread` the calling thread's own. Null for a handle that is no stream.
[[nodiscard]] stream_state* find_stream(CUstream_st* handle);
[[nodiscard]] stream_state& legacy_stream(int device);

/// `later` comes after all that the stream has been given.
void comes_after_all(task& later, const stream_state& stream);

/// Every stream of a device, or of all devices for -1.
[[nodiscard]] std::vector<stream_state*> streams_of(int device);

/// Waits until the stream, or the device, has nothing left to do; returns and forgets its error.
[[nodiscard]] int synchronize(stream_state& stream);
[[nodiscard]] int synchronize_device(int device);

}  // namespace devcomm::simulator::detail
