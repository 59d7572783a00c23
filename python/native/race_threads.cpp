/// The C++ library's own code for threads and condition variables calls the C library's, in which the race detector
/// does not see who orders whom. The link of this module takes these in its place: their calls are the detector's.
#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace {

void* run(void* state) {
  const std::unique_ptr<std::thread::_State> owned(static_cast<std::thread::_State*>(state));
  owned->_M_run();
  return nullptr;
}

}  // namespace

extern "C" {

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* changed,
                                                                      std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(changed->native_handle(), lock->mutex()->native_handle());
}

void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, std::unique_ptr<std::thread::_State>* state, void (*)()) {
  // An id is all that a std::thread has, and it is the handle.
  const int error = pthread_create(reinterpret_cast<pthread_t*>(thread), nullptr, &run, state->get());
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_create");
  static_cast<void>(state->release());
}

void __wrap__ZNSt6thread4joinEv(std::thread* thread) {
  const int error = pthread_join(thread->native_handle(), nullptr);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_join");
  new (thread) std::thread();
}

}  // extern "C"
