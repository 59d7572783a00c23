#include "interrupt.hpp"

#include "objects.hpp"

#include <pthread.h>
#include <semaphore.h>

#include <csignal>
#include <mutex>
#include <thread>

namespace devcomm::python {
namespace {

pthread_t main_thread;
std::mutex guard;
rank_state* waiting = nullptr;
sem_t received;
struct sigaction before;

/// Python's own handler only notes the signal; its thread is in a call of this library.
void note_interrupt(int number) {
  sem_post(&received);
  if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(number);
}

void end_waits() {
  for (;;) {
    while (sem_wait(&received) != 0) {
    }
    const std::lock_guard lock(guard);
    if (waiting != nullptr) waiting->interrupt("interrupted (Ctrl-C)");
  }
}

void start_watching() {
  static const bool started = [] {
    sem_init(&received, 0, 0);
    sigset_t all;
    sigset_t own;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    std::thread(end_waits).detach();
    pthread_sigmask(SIG_SETMASK, &own, nullptr);
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace

void remember_main_thread() { main_thread = pthread_self(); }

interruptible::interruptible(rank_state* rank) {
  if (rank == nullptr || pthread_equal(main_thread, pthread_self()) == 0) return;
  struct sigaction current {};
  if (sigaction(SIGINT, nullptr, &current) != 0 || current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN)
    return;
  start_watching();
  {
    const std::lock_guard lock(guard);
    if (waiting != nullptr) return;
    waiting = rank;
  }
  struct sigaction ours {};
  ours.sa_handler = &note_interrupt;
  sigemptyset(&ours.sa_mask);
  before = current;
  sigaction(SIGINT, &ours, nullptr);
  active_ = true;
}

interruptible::~interruptible() {
  if (!active_) return;
  sigaction(SIGINT, &before, nullptr);
  const std::lock_guard lock(guard);
  waiting = nullptr;
}

}  // namespace devcomm::python
