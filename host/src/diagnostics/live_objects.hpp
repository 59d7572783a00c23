/// \file live_objects.hpp
/// Windows and device communicators that a rank has made and not yet destroyed.
#pragma once

#include <devcomm/host/code_place.hpp>

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

namespace devcomm::host::detail {

/// One per rank of a communicator. Every member may be called from any thread.
class live_objects {
 public:
  live_objects(int rank, int size);
  ~live_objects();
  live_objects(const live_objects&) = delete;
  live_objects& operator=(const live_objects&) = delete;

  /// In the list for as long as it lives.
  class entry;

  /// Writes a line to stderr for each entry that outlives the communicator.
  void report_left() noexcept;
  /// Writes a line to stderr for each entry of any list that was not reported yet; returns how many there are.
  static std::size_t report_all() noexcept;

 private:
  struct item {
    std::string what;
    code_place made;
    bool reported;
  };
  void report(const char* when) noexcept;

  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::list<item> items_;
};

class live_objects::entry {
 public:
  /// `what`: "window 'weights' of 4096 bytes".
  entry(std::shared_ptr<live_objects> list, const std::string& what, code_place made);
  ~entry();
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;

 private:
  std::shared_ptr<live_objects> list_;
  std::list<item>::iterator item_;
};

}  // namespace devcomm::host::detail
