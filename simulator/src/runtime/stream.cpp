#include "runtime/stream.hpp"

#include "engine/task_order.hpp"
#include "runtime/graph.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

struct registry {
  std::vector<stream_state*> live;
  std::map<int, stream_state*> legacy;                           // by device
  std::map<std::pair<uint64_t, int>, stream_state*> per_thread;  // by thread and device
  uint64_t threads = 0;
};

registry& streams() {
  static auto& only = *new registry;
  return only;
}

/// No handle refers to the stream any more; its remaining work is done later.
void retire(stream_state& s) {
  if (s.recording != nullptr) abandon_capture(s);
  comes_before_device_end(s);
  auto& live = streams().live;
  live.erase(std::find(live.begin(), live.end(), &s));
  s.destroyed = true;
  ++s.tasks;  // not before this function is done with it
  s.tail = task_ref();
  s.beside_tail.clear();
  s.extra.clear();
  forget_task(s);
}

/// A host thread's own streams, which go with it.
struct thread_streams {
  uint64_t number = 0;

  ~thread_streams() {
    if (number == 0 || syscall(SYS_gettid) == getpid()) return;  // the program's end waits for no kernels
    const engine_guard hold;
    auto& all = streams().per_thread;
    for (auto s = all.lower_bound({number, 0}); s != all.end() && s->first.first == number; s = all.erase(s)) {
      retire(*s->second);
    }
  }
};
thread_local thread_streams own;

stream_state* add_stream(int device) {
  auto* s = new stream_state;
  s->device = device;
  streams().live.push_back(s);
  return s;
}

stream_state& stream_of_thread(int device) {
  registry& all = streams();
  if (own.number == 0) own.number = ++all.threads;
  stream_state*& s = all.per_thread[{own.number, device}];
  if (s == nullptr) s = add_stream(device);
  return *s;
}

class tails_done final : public condition {
 public:
  void add(const task_ref& t) {
    if (t) tails_.push_back(t);
  }
  void add(const stream_state& s) {
    add(s.tail);
    for (const task_ref& t : s.beside_tail) add(t);
    for (const task_ref& event : s.extra) add(event);
  }
  bool holds() override {
    while (!tails_.empty() && tails_.back()->done) {
      done_.push_back(tails_.back());
      tails_.pop_back();
    }
    return tails_.empty();
  }
  void acquire() {
    for (const task_ref& t : done_) awaited(*t.get());
  }

 private:
  std::vector<task_ref> tails_;
  std::vector<task_ref> done_;
};

}  // namespace

stream_state& legacy_stream(int device) {
  stream_state*& s = streams().legacy[device];
  if (s == nullptr) {
    s = add_stream(device);
    s->legacy = true;
  }
  return *s;
}

stream_state* find_stream(CUstream_st* handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_stream(current_device());
  if (handle == cudaStreamPerThread) return &stream_of_thread(current_device());
  for (stream_state* s : streams().live) {
    if (s == handle) return s;
  }
  return nullptr;
}

std::vector<stream_state*> streams_of(int device) {
  std::vector<stream_state*> found;
  for (stream_state* s : streams().live) {
    if (device < 0 || s->device == device) found.push_back(s);
  }
  return found;
}

void comes_after_all(task& later, const stream_state& stream) {
  comes_after(later, stream.tail);
  for (const task_ref& earlier : stream.beside_tail) comes_after(later, earlier);
}

task_ref enqueue(stream_state& stream, const operation_ref& work) {
  task_ref t = make_task(the_engine(), stream, work);
  const launch_shape* const shape = work.what->shape();
  const bool early = shape != nullptr && shape->programmatic && !the_engine().order.explores();
  if (early && starts_beside(*t.get(), stream.tail)) {
    std::erase_if(stream.beside_tail, [](const task_ref& done) { return done->done && done->awaited_by_next; });
    stream.beside_tail.push_back(stream.tail);
  } else if (early) {
    comes_after(*t.get(), stream.tail);  // and, as on GPUs, not after those before
  } else {
    comes_after_all(*t.get(), stream);
    stream.beside_tail.clear();
  }
  for (const task_ref& earlier : stream.extra) comes_after(*t.get(), earlier);
  stream.extra.clear();
  if (stream.legacy) {
    for (const stream_state* other : streams().live) {
      if (other != &stream && other->device == stream.device && other->blocking) comes_after_all(*t.get(), *other);
    }
  } else if (stream.blocking) {
    comes_after_all(*t.get(), legacy_stream(stream.device));
  }
  stream.tail = t;
  submit(t);
  return t;
}

int synchronize(stream_state& stream) {
  tails_done all;
  all.add(stream);
  the_engine().host_wait(all);
  all.acquire();
  return fetch_error(the_engine(), stream);
}

int synchronize_device(int device) {
  tails_done all;
  for (const stream_state* s : streams_of(device)) {
    all.add(*s);
  }
  the_engine().host_wait(all);
  all.acquire();
  int error = 0;
  for (stream_state* s : streams_of(device)) {
    const int of_stream = fetch_error(the_engine(), *s);
    if (error == 0) error = of_stream;
  }
  return error;
}

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return keep(cudaErrorInvalidValue);
  const engine_guard hold;
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return keep(error);
  stream_state* s = add_stream(current_device());
  s->blocking = flags != cudaStreamNonBlocking;
  s->flags = flags;
  s->priority = priority;
  *stream = s;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const engine_guard hold;
  const stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  *priority = s->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  const engine_guard hold;
  const stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  *flags = s->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr || stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    return keep(cudaErrorInvalidResourceHandle);
  }
  retire(*s);
  return keep(lasting_error());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->recording != nullptr) return keep(refuse_in_capture(*s));
  return keep(synchronize(*s));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->recording != nullptr) return keep(refuse_in_capture(*s));
  tails_done all;
  all.add(*s);
  the_engine().host_wait_steps(all, 1000);
  if (!all.holds()) return cudaErrorNotReady;
  all.acquire();
  return keep(fetch_error(the_engine(), *s));
}

cudaError_t cudaDeviceSynchronize() {
  const engine_guard hold;
  return keep(synchronize_device(current_device()));
}
}

}  // namespace devcomm::simulator::detail
