/// \file error.hpp
/// The exceptions of the host library.
#pragma once

#include <stdexcept>
#include <string>

namespace devcomm::host {

/// Base of all. `what()` names the call, the rank, and what to do.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller broke a precondition of a host call.
class invalid_argument : public error {
 public:
  using error::error;
};

/// The machine, driver, topology or environment cannot do what was asked; the text says why.
class not_supported : public error {
 public:
  using error::error;
};

/// A blocking step exceeded its time limit; the text names the ranks that are missing.
class timeout_error : public error {
 public:
  using error::error;
};

/// Another rank failed, or its process ended; the text names it and carries its message.
class remote_error : public error {
 public:
  remote_error(const std::string& what, int rank) : error(what), rank_(rank) {}

  /// World rank that failed.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The operating system or the CUDA driver refused a call.
class system_error : public error {
 public:
  using error::error;
};

/// A kernel's wait failed: timeout, abort or launch mismatch. Thrown by `check` of a
/// communicator or a device communicator.
class kernel_error : public error {
 public:
  using error::error;
};

}  // namespace devcomm::host
