/// \file open_files.hpp
/// Room for descriptors.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace devcomm::host::detail {

/// Makes room for `more` descriptors where they would take half of this process's limit on open files: raises that, as
/// far as the hard limit allows. Left alone otherwise, for the sake of programs that use `select`.
inline void allow_open_files(std::size_t more) noexcept {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0 || more < now.rlim_cur / 2) return;
  now.rlim_cur = now.rlim_max - now.rlim_cur < more ? now.rlim_max : now.rlim_cur + more;
  // Refusal shows when a descriptor cannot be opened, with what to do.
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &now));
}

}  // namespace devcomm::host::detail
