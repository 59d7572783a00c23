/// Events: marks in streams, by which streams and the host wait for each other.
#include "engine/task_order.hpp"
#include "runtime/graph.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

class event_done final : public condition {
 public:
  explicit event_done(task_ref t) : task_(std::move(t)) {}
  bool holds() override { return !task_ || task_->done; }
  /// Error of the stream, which this reports.
  int finish() {
    if (!task_) return lasting_error();
    awaited(*task_.get());
    return fetch_error(the_engine(), *task_->queue);
  }

 private:
  task_ref task_;
};

}  // namespace

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (event == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return keep(cudaErrorInvalidValue);
  const engine_guard hold;
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  auto* e = new event_state;
  e->flags = flags;
  *event = e;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return keep(cudaErrorInvalidResourceHandle);
  const engine_guard hold;
  delete static_cast<event_state*>(event);
  return keep(lasting_error());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (event == nullptr || s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  auto& e = *static_cast<event_state*>(event);
  e.recording = s->recording;
  if (s->recording != nullptr) {
    e.nodes = s->recorded_tail;
    e.recorded = task_ref();
    return cudaSuccess;
  }
  return keep(give(*s, make_marker(), &e.recorded));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (event == nullptr || s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (flags != 0) return keep(cudaErrorInvalidValue);
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  const auto& e = *static_cast<event_state*>(event);
  if (e.recording == nullptr) {
    if (s->recording != nullptr && e.recorded) return keep(cudaErrorStreamCaptureIsolation);
    if (e.recorded) s->extra.push_back(e.recorded);
    return cudaSuccess;
  }
  if (s->recording == nullptr) {  // joins the capture
    if (s->legacy) return keep(cudaErrorStreamCaptureImplicit);
    s->recording = e.recording;
    e.recording->joined.push_back(s);
  } else if (s->recording != e.recording) {
    return keep(cudaErrorStreamCaptureIsolation);
  }
  for (const int node : e.nodes) {
    if (std::find(s->recorded_tail.begin(), s->recorded_tail.end(), node) == s->recorded_tail.end()) {
      s->recorded_tail.push_back(node);
    }
  }
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const engine_guard hold;
  if (event == nullptr) return keep(cudaErrorInvalidResourceHandle);
  const auto& e = *static_cast<event_state*>(event);
  if (e.recording != nullptr) return keep(cudaErrorCapturedEvent);
  event_done done(e.recorded);
  the_engine().host_wait(done);
  return keep(done.finish());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const engine_guard hold;
  if (event == nullptr) return keep(cudaErrorInvalidResourceHandle);
  const auto& e = *static_cast<event_state*>(event);
  if (e.recording != nullptr) return keep(cudaErrorCapturedEvent);
  event_done done(e.recorded);
  the_engine().host_wait_steps(done, 1000);
  return done.holds() ? keep(done.finish()) : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const engine_guard hold;
  if (start == nullptr || end == nullptr) return keep(cudaErrorInvalidResourceHandle);
  const auto& a = *static_cast<event_state*>(start);
  const auto& b = *static_cast<event_state*>(end);
  if (((a.flags | b.flags) & cudaEventDisableTiming) != 0 || !a.recorded || !b.recorded) {
    return keep(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  if (!a.recorded->done || !b.recorded->done) return cudaErrorNotReady;
  *milliseconds =
      static_cast<float>(static_cast<double>(static_cast<int64_t>(b.recorded->end_time - a.recorded->end_time)) * 1e-6);
  return cudaSuccess;
}
}

}  // namespace devcomm::simulator::detail
