/// \file reference.hpp
/// Counted references to what many clocks share. Counts are plain: the detector runs under one lock.
#pragma once

#include <cstdint>
#include <utility>

namespace devcomm::simulator::race {

/// Points at a `T`, which has a member `references` and a static `destroy`.
template <class T>
class reference {
 public:
  reference() = default;
  explicit reference(T* object) : object_(object) { hold(); }
  reference(const reference& other) : object_(other.object_) { hold(); }
  reference(reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  reference& operator=(reference other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~reference() {
    // clang-tidy 14 does not follow counts, and takes the last reference for one of several.
    if (object_ != nullptr && --object_->references == 0) T::destroy(object_);  // NOLINT(clang-analyzer-cplusplus.*)
  }

  [[nodiscard]] T* get() const { return object_; }
  T* operator->() const { return object_; }  // NOLINT(clang-analyzer-cplusplus.*)
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const reference& other) const { return object_ == other.object_; }
  /// Whether this is the only reference to the object.
  [[nodiscard]] bool alone() const { return object_ != nullptr && object_->references == 1; }

 private:
  void hold() {
    if (object_ != nullptr) ++object_->references;  // NOLINT(clang-analyzer-cplusplus.*)
  }

  T* object_ = nullptr;
};

}  // namespace devcomm::simulator::race
