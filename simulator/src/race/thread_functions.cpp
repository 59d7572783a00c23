/// What orders host threads with each other: starting, joining, mutexes and condition variables. Defined in
/// the program, so in front of the C library's. The simulation uses none of them for its own switching.
#include "race/detector.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <ctime>
#include <unordered_map>

namespace devcomm::simulator::race {
namespace {

/// The C library's function of that name; of condition variables the current version, as a plain
/// look-up may find one that is twenty years old.
template <class Function>
Function* real(Function*& kept, const char* name) {
  Function* found = __atomic_load_n(&kept, __ATOMIC_RELAXED);
  if (found != nullptr) return found;
  void* symbol = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  if (symbol == nullptr) symbol = dlsym(RTLD_NEXT, name);
  found = reinterpret_cast<Function*>(symbol);
  __atomic_store_n(&kept, found, __ATOMIC_RELAXED);
  return found;
}

struct hand_overs {
  std::unordered_map<const void*, clock_reference> mutexes;
  std::unordered_map<pthread_t, clock_reference> ended;
};
hand_overs& all() {
  static auto& only = *new hand_overs;
  return only;
}

void release(const void* mutex) {
  actor& a = self();
  if (guard::held() || a.ignored > 0 || (a.group == 0 && !a.known)) return;
  static_cast<void>(the_detector());
  const guard hold;
  join(all().mutexes[mutex], a.publish());
}
void acquire(const void* mutex) {
  if (guard::held()) return;
  static_cast<void>(the_detector());
  const guard hold;
  const auto found = all().mutexes.find(mutex);
  if (found != all().mutexes.end()) self().acquire(found->second);
}

struct start {
  void* (*function)(void*);
  void* argument;
  clock_reference known;
};

void end_thread(void*) {
  actor& a = self();
  {
    detector& d = the_detector();
    const guard hold;
    clock_reference& known = all().ended[pthread_self()];
    known = clock_reference();
    join(known, a.publish());
    d.leave_chain(a);
    a.known = clock_reference();
    a.forget_fences();
  }
  become(nullptr);
  delete &a;
}

void* run_thread(void* given) {
  auto* s = static_cast<start*>(given);
  void* (*const function)(void*) = s->function;
  void* const argument = s->argument;
  {
    actor& a = self();
    const guard hold;
    a.known = s->known;
    s->known = clock_reference();
  }
  delete s;
  void* result = nullptr;
  pthread_cleanup_push(&end_thread, nullptr);
  result = function(argument);
  pthread_cleanup_pop(1);
  return result;
}

int (*real_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = nullptr;
int (*real_join)(pthread_t, void**) = nullptr;
int (*real_lock)(pthread_mutex_t*) = nullptr;
int (*real_trylock)(pthread_mutex_t*) = nullptr;
int (*real_unlock)(pthread_mutex_t*) = nullptr;
int (*real_wait)(pthread_cond_t*, pthread_mutex_t*) = nullptr;
int (*real_timedwait)(pthread_cond_t*, pthread_mutex_t*, const timespec*) = nullptr;
int (*real_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*) = nullptr;

}  // namespace
}  // namespace devcomm::simulator::race

using namespace devcomm::simulator::race;  // NOLINT(google-build-using-namespace,google-global-names-in-headers)

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  auto* s = new start{function, argument, {}};
  {
    static_cast<void>(the_detector());
    actor& a = self();
    const guard hold;
    join(s->known, a.publish());
  }
  return real(real_create, "pthread_create")(thread, attributes, &run_thread, s);
}
int pthread_join(pthread_t thread, void** result) {
  const int error = real(real_join, "pthread_join")(thread, result);
  static_cast<void>(the_detector());
  actor& a = self();
  const guard hold;
  if (const auto found = all().ended.find(thread); error == 0 && found != all().ended.end()) {
    if (a.ignored == 0) a.acquire(found->second);
    all().ended.erase(found);
  }
  return error;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  const int error = real(real_lock, "pthread_mutex_lock")(mutex);
  if (error == 0) acquire(mutex);
  return error;
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  const int error = real(real_trylock, "pthread_mutex_trylock")(mutex);
  if (error == 0) acquire(mutex);
  return error;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  release(mutex);
  return real(real_unlock, "pthread_mutex_unlock")(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  release(mutex);
  const int error = real(real_wait, "pthread_cond_wait")(condition, mutex);
  acquire(mutex);
  return error;
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  release(mutex);
  const int error = real(real_timedwait, "pthread_cond_timedwait")(condition, mutex, until);
  acquire(mutex);
  return error;
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  release(mutex);
  const int error = real(real_clockwait, "pthread_cond_clockwait")(condition, mutex, clock, until);
  acquire(mutex);
  return error;
}
}
