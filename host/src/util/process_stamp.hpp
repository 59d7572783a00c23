/// \file process_stamp.hpp
/// Whether an object is the original or a forked child's copy.
#pragma once

#include <unistd.h>

namespace devcomm::host::detail {

/// A member of the object in question, made with it. A forked child has a copy of the memory, but none of the threads;
/// connections and devices are still its parent's.
class process_stamp {
 public:
  /// Whether this process made the object.
  [[nodiscard]] bool here() const noexcept { return ::getpid() == process_; }

 private:
  pid_t process_ = ::getpid();
};

/// Why a call is refused in a forked child.
inline constexpr const char* text_of_forked_child =
    "this process is a forked child of the one that made the communicator, which alone has its threads and "
    "connections; call it there, and fork before communicators are made";

}  // namespace devcomm::host::detail
