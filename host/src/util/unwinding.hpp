/// \file unwinding.hpp
/// Whether an exception destroys an object, for its destructor.
#pragma once

#include <exception>

namespace devcomm::host::detail {

/// A member of the object in question, made with it.
class unwinding_watch {
 public:
  /// For destructors: whether the calling thread unwinds because of an exception that was thrown since. An object that
  /// is made and destroyed by a destructor during unwinding ends in order.
  [[nodiscard]] bool unwinding() const noexcept { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace devcomm::host::detail
