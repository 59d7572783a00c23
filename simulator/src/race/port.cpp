/// The detector's implementation of base/race_port.hpp.
#include "race/detector.hpp"

#include "base/race_port.hpp"

namespace devcomm::simulator::race {
namespace {

actor& as_actor(void* identity) { return *static_cast<actor*>(identity); }

void* identity() { return &self(); }
void set_identity(void* id) {
  if (!self().host) the_detector().buffer.restore();
  become(static_cast<actor*>(id));
}
void* new_identity() {
  auto* a = new actor;
  a->host = false;
  return a;
}
void drop_identity(void* id) {
  actor& a = as_actor(id);
  {
    detector& d = the_detector();
    const guard hold;
    d.leave_chain(a);
    a.known = clock_reference();
    a.forget_fences();
  }
  delete &a;
}
void ignore(int change) { self().ignored += change; }

sync_point& sync_point_of(void** cell) {
  if (*cell == nullptr) *cell = new sync_point;
  return *static_cast<sync_point*>(*cell);
}
void release(void** cell) {
  const guard hold;
  sync_point_of(cell).release(self());
}
void acquire_as(void* id, void** cell) {
  if (*cell == nullptr) return;
  const guard hold;
  static_cast<sync_point*>(*cell)->acquire(as_actor(id));
}
void acquire(void** cell) { acquire_as(&self(), cell); }
void clear(void** cell) {
  if (*cell == nullptr) return;
  const guard hold;
  delete static_cast<sync_point*>(*cell);
  *cell = nullptr;
}

void begin_task(void* id, int device, const void* kernel) {
  detector& d = the_detector();
  const guard hold;
  actor& a = as_actor(id);
  d.prune(a.known);
  task_facts facts;
  facts.device = device;
  facts.kernel = kernel;
  a.device = device;
  d.join_chain(a, facts);
}
void end_task(void* id, void** cell) {
  detector& d = the_detector();
  const guard hold;
  sync_point& end = sync_point_of(cell);
  d.finish_task(as_actor(id), end.known());
  end.forget_fences();
}
void note_post(const void* word) {
  detector& d = the_detector();
  const guard hold;
  d.posts[reinterpret_cast<uintptr_t>(word)].take();
}
void take_operation(void* id, uint32_t context, uint64_t number, const void* word) {
  detector& d = the_detector();
  const guard hold;
  d.take_operation(as_actor(id), context, number, reinterpret_cast<uintptr_t>(word));
}
void begin_copy(void* id, const char* what, bool async_proxy) {
  detector& d = the_detector();
  const guard hold;
  d.begin_copy(as_actor(id), self(), what, async_proxy);
}
void describe_operation(void* id, uint32_t context, uint64_t number, int peer, bool puts) {
  detector& d = the_detector();
  const guard hold;
  d.describe_operation(as_actor(id), context, number, peer, puts);
}
uint32_t new_block(void* launch, uint64_t block, uint32_t threads, uint64_t key) {
  detector& d = the_detector();
  const guard hold;
  return d.new_block(as_actor(launch), block, threads, key);
}
void* new_thread(void* launch, uint32_t group, uint32_t lane) {
  detector& d = the_detector();
  const guard hold;
  auto* a = new actor;
  a->host = false;
  a->known = a->at_launch = a->fenced.alias = as_actor(launch).known;  // ends of launches are fences
  a->group = group;
  a->width = d.groups[group].width;
  a->lane = lane;
  a->device = as_actor(launch).device;
  return a;
}

void begins_again() {
  const guard hold;
  self().at_launch = self().known;
  self().fenced.alias = self().fenced.async = self().known;
}

void watch(const void* base, size_t bytes, const char* kind, int device, const char* name) {
  detector& d = the_detector();
  const guard hold;
  d.watch(reinterpret_cast<uintptr_t>(base), {bytes, kind, device, name});
}
void forget(const void* base, size_t bytes) {
  detector& d = the_detector();
  const guard hold;
  d.forget(reinterpret_cast<uintptr_t>(base), bytes);
}
void poison(const void* base, size_t bytes) {
  detector& d = the_detector();
  const guard hold;
  d.poison(reinterpret_cast<uintptr_t>(base), bytes);
}
void unpoison(const void* base, size_t bytes) {
  detector& d = the_detector();
  const guard hold;
  d.unpoison(reinterpret_cast<uintptr_t>(base), bytes);
}

void end_memory(const void* base, size_t bytes) {
  detector& d = the_detector();
  actor& a = self();
  const guard hold;
  d.end_memory(a, reinterpret_cast<uintptr_t>(base), bytes);
}
void name(const void* base, size_t bytes, const char* what) {
  detector& d = the_detector();
  const guard hold;
  const auto at = reinterpret_cast<uintptr_t>(base);
  if (what == nullptr) {
    d.names.erase(at);
  } else {
    d.names[at] = {bytes, what};
  }
}

void set_store_delay(uint64_t longest, uint64_t seed, const uint64_t* step) {
  detector& d = the_detector();
  const guard hold;
  d.buffer.set(longest, seed, step);
}
void stores_are_one(bool on) { self().begin_one(on); }
void multicast(bool on) { self().multicast = on; }
void proxy_fence(bool async) {
  const guard hold;
  self().proxy_fence(async ? &fenced_clocks::async : &fenced_clocks::alias);
}
void restore() { the_detector().buffer.restore(); }

uint64_t reports() { return the_detector().reports; }
const char* last_report() { return the_detector().last_report.c_str(); }
void clear_reports() {
  detector& d = the_detector();
  const guard hold;
  d.reports = 0;
  d.last_report.clear();
  d.reported.clear();
  d.reported_aliases.clear();
  missed().clear();
}
void set_exit_status(int status) { the_detector().exit_status = status; }
void name_rank(int device, int rank) {
  detector& d = the_detector();
  const guard hold;
  d.ranks[device] = rank;
}

}  // namespace
}  // namespace devcomm::simulator::race

extern "C" const devcomm::simulator::detail::race_port devcomm_simulator_race_port = {
    devcomm::simulator::race::identity,       devcomm::simulator::race::set_identity,
    devcomm::simulator::race::new_identity,   devcomm::simulator::race::drop_identity,
    devcomm::simulator::race::ignore,         devcomm::simulator::race::release,
    devcomm::simulator::race::acquire,        devcomm::simulator::race::acquire_as,
    devcomm::simulator::race::clear,          devcomm::simulator::race::begin_task,
    devcomm::simulator::race::end_task,       devcomm::simulator::race::note_post,
    devcomm::simulator::race::take_operation, devcomm::simulator::race::describe_operation,
    devcomm::simulator::race::begin_copy,     devcomm::simulator::race::new_block,
    devcomm::simulator::race::new_thread,     devcomm::simulator::race::begins_again,
    devcomm::simulator::race::watch,          devcomm::simulator::race::forget,
    devcomm::simulator::race::poison,         devcomm::simulator::race::unpoison,
    devcomm::simulator::race::end_memory,     devcomm::simulator::race::name,
    devcomm::simulator::race::reports,        devcomm::simulator::race::last_report,
    devcomm::simulator::race::clear_reports,  devcomm::simulator::race::set_exit_status,
    devcomm::simulator::race::name_rank,      devcomm::simulator::race::set_store_delay,
    devcomm::simulator::race::stores_are_one, devcomm::simulator::race::multicast,
    devcomm::simulator::race::proxy_fence,    devcomm::simulator::race::restore,
};
