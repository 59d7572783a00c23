/// \file interrupt.hpp
/// Ctrl-C while a call of the library waits.
#pragma once

namespace devcomm::python {

struct rank_state;

/// While it lives on the main thread, SIGINT also ends the waits of `rank`, on the host and in its kernels; its end
/// then raises what Python's handler does. On other threads it does nothing. *Requires* the interpreter's lock at both
/// ends.
class interruptible {
 public:
  explicit interruptible(rank_state* rank);
  ~interruptible();
  interruptible(const interruptible&) = delete;
  interruptible& operator=(const interruptible&) = delete;

 private:
  bool active_ = false;
};

/// Call on the main thread, which alone receives signals.
void remember_main_thread();

}  // namespace devcomm::python
