/// \file fifo.hpp
/// A queue for objects that have many of them, most of which are empty.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Takes no memory until something is put in, where a `std::deque` takes 600 bytes.
template <class T>
class fifo {
 public:
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  [[nodiscard]] bool empty() const { return first_ == all_.size(); }
  [[nodiscard]] std::size_t size() const { return all_.size() - first_; }
  [[nodiscard]] iterator begin() { return all_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] iterator end() { return all_.end(); }
  [[nodiscard]] const_iterator begin() const { return all_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] const_iterator end() const { return all_.end(); }
  [[nodiscard]] T& front() { return all_[first_]; }
  [[nodiscard]] const T& front() const { return all_[first_]; }
  [[nodiscard]] T& operator[](std::size_t i) { return all_[first_ + i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return all_[first_ + i]; }

  void push_back(T one) { all_.push_back(std::move(one)); }
  /// Moves what is left to the front of the memory when half of that is free: twice for each element at most.
  void pop_front() {
    all_[first_] = T{};
    if (2 * ++first_ < all_.size()) return;
    all_.erase(all_.begin(), begin());
    first_ = 0;
  }
  void erase(iterator at) { all_.erase(at); }
  void erase(iterator from, iterator to) { all_.erase(from, to); }
  void clear() {
    all_.clear();
    first_ = 0;
  }

 private:
  std::vector<T> all_;
  std::size_t first_ = 0;
};

}  // namespace devcomm::host::detail
