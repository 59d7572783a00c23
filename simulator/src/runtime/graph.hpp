/// \file graph.hpp
/// Streams captured into graphs, and graphs replayed.
#pragma once

#include "runtime/stream.hpp"

#include <cuda_runtime_api.h>

#include <vector>

struct CUgraph_st {};
struct CUgraphExec_st {};
struct CUevent_st {};

namespace devcomm::simulator::detail {

struct graph_node {
  operation_ref work;
  int device = 0;
  std::vector<int> after;  ///< indices of earlier nodes
};

/// A capture in progress.
struct capture {
  stream_state* origin = nullptr;
  std::vector<stream_state*> joined;
  std::vector<graph_node> nodes;
  bool invalid = false;
};

struct event_state : CUevent_st {
  unsigned flags = 0;
  task_ref recorded;
  capture* recording = nullptr;  ///< recorded last into this capture
  std::vector<int> nodes;        ///< the nodes that it replaces there
};

/// Gives `work` to the stream, or to the capture it is in; `t` becomes its task outside captures.
[[nodiscard]] cudaError_t give(stream_state& stream, std::unique_ptr<operation> work, task_ref* t = nullptr);

/// Invalidates the capture, and returns the error of a call that cannot be captured.
[[nodiscard]] cudaError_t refuse_in_capture(stream_state& stream);
void abandon_capture(stream_state& stream);
/// Lets a later synchronization of the device wait for a stream that is destroyed with work left.
void comes_before_device_end(const stream_state& stream);

/// A task without work, for its predecessors only.
[[nodiscard]] std::unique_ptr<operation> make_marker();

}  // namespace devcomm::simulator::detail
