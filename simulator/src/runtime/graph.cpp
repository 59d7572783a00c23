#include "runtime/graph.hpp"

#include "engine/task_order.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <algorithm>

namespace devcomm::simulator::detail {
namespace {

struct graph_state : CUgraph_st {
  std::vector<graph_node> nodes;
};

struct exec_state : CUgraphExec_st {
  std::vector<graph_node> nodes;
  task_ref last;  ///< replays of one graph run one after another
};

class marker final : public operation {
 public:
  int run(task&) override { return 0; }
  [[nodiscard]] bool runs_after_failure() const override { return true; }
};

/// Nodes that no other comes after.
std::vector<int> leaves(const std::vector<graph_node>& nodes) {
  std::vector<bool> inner(nodes.size());
  for (const graph_node& n : nodes) {
    for (const int earlier : n.after) inner[static_cast<size_t>(earlier)] = true;
  }
  std::vector<int> found;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!inner[i]) found.push_back(static_cast<int>(i));
  }
  return found;
}

void stop_recording(capture& c) {
  for (stream_state* s : c.joined) {
    s->recording = nullptr;
    s->recorded_tail.clear();
  }
}

}  // namespace

std::unique_ptr<operation> make_marker() { return std::make_unique<marker>(); }

cudaError_t give(stream_state& stream, std::unique_ptr<operation> work, task_ref* t) {
  if (const int error = the_engine().lasting_error(stream.device); error != 0) return static_cast<cudaError_t>(error);
  if (capture* c = stream.recording) {
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    const int index = static_cast<int>(c->nodes.size());
    c->nodes.push_back({operation_ref(std::move(work)), stream.device, stream.recorded_tail});
    stream.recorded_tail = {index};
    return cudaSuccess;
  }
  if (stream.legacy) {
    for (const stream_state* other : streams_of(stream.device)) {
      if (other->recording == nullptr || !other->blocking) continue;
      other->recording->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  const task_ref made = enqueue(stream, operation_ref(std::move(work)));
  if (t != nullptr) *t = made;
  return cudaSuccess;
}

cudaError_t refuse_in_capture(stream_state& stream) {
  stream.recording->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

void abandon_capture(stream_state& stream) {
  capture* c = stream.recording;
  c->invalid = true;
  if (c->origin == &stream) {
    stop_recording(*c);
    delete c;
  } else {
    c->joined.erase(std::find(c->joined.begin(), c->joined.end(), &stream));
    stream.recording = nullptr;
  }
}

void comes_before_device_end(const stream_state& stream) {
  std::vector<task_ref>& after = legacy_stream(stream.device).extra;
  if (stream.tail && !stream.tail->done) after.push_back(stream.tail);
  for (const task_ref& earlier : stream.beside_tail) {
    if (!earlier->done) after.push_back(earlier);
  }
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const engine_guard hold;
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->legacy) return keep(cudaErrorStreamCaptureUnsupported);
  if (s->recording != nullptr) return keep(cudaErrorInvalidValue);
  auto* c = new capture;
  c->origin = s;
  c->joined.push_back(s);
  s->recording = c;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  capture* c = s->recording;
  *graph = nullptr;
  if (c == nullptr) return keep(cudaErrorInvalidValue);
  if (c->origin != s) return keep(cudaErrorStreamCaptureUnmatched);
  cudaError_t error = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  const std::vector<int>& tail = s->recorded_tail;
  for (const int leaf : leaves(c->nodes)) {
    if (error == cudaSuccess && std::find(tail.begin(), tail.end(), leaf) == tail.end()) {
      error = cudaErrorStreamCaptureUnjoined;
    }
  }
  if (error == cudaSuccess) error = lasting_error();
  if (error == cudaSuccess) {
    auto* g = new graph_state;
    g->nodes = std::move(c->nodes);
    *graph = g;
  }
  stop_recording(*c);
  delete c;
  return keep(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const engine_guard hold;
  const stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  *status = s->recording == nullptr ? cudaStreamCaptureStatusNone
            : s->recording->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// Nodes have no handles here: only their number can be asked for.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (graph == nullptr || nodes != nullptr) return keep(cudaErrorInvalidValue);
  *count = static_cast<graph_state*>(graph)->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  if (exec == nullptr || graph == nullptr) return keep(cudaErrorInvalidValue);
  if (flags != 0) return keep(cudaErrorNotSupported);
  const engine_guard hold;
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  auto* e = new exec_state;
  e->nodes = static_cast<graph_state*>(graph)->nodes;
  *exec = e;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  const engine_guard hold;
  return keep(exec != nullptr && find_stream(stream) != nullptr ? lasting_error() : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (exec == nullptr) return keep(cudaErrorInvalidValue);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->recording != nullptr) return keep(refuse_in_capture(*s));
  auto& graph = *static_cast<exec_state*>(exec);
  task_ref start;
  s->extra.push_back(graph.last);
  if (const cudaError_t error = give(*s, make_marker(), &start); error != cudaSuccess) return keep(error);
  std::vector<task_ref> tasks;
  for (const graph_node& n : graph.nodes) {
    const task_ref t = make_task(the_engine(), *s, n.work);
    t->device = n.device;
    comes_after(*t.get(), start);
    for (const int earlier : n.after) comes_after(*t.get(), tasks[static_cast<size_t>(earlier)]);
    tasks.push_back(t);
  }
  for (const int leaf : leaves(graph.nodes)) s->extra.push_back(tasks[static_cast<size_t>(leaf)]);
  for (const task_ref& t : tasks) submit(t);
  return keep(give(*s, make_marker(), &graph.last));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const engine_guard hold;
  delete static_cast<exec_state*>(exec);
  return keep(lasting_error());
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const engine_guard hold;
  delete static_cast<graph_state*>(graph);
  return keep(lasting_error());
}
}

}  // namespace devcomm::simulator::detail
