/// \file peer_table.hpp
/// Bytes that ranks read from each other over a fabric before there are windows.
#pragma once

#include "transport/fabric.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// A table that is the same on all ranks in the end: one rank has it, and the others read it from ranks that have it.
class peer_table {
 public:
  /// The table has `bytes` from here on. Returns where peers read it.
  [[nodiscard]] remote_address offer(fabric& reached, std::size_t bytes);
  /// On the rank that has it.
  void fill(std::vector<std::byte> bytes);
  /// Begins to read all of it from `peer`, which has offered it at `from`.
  void begin_read(int peer, remote_address from);
  /// Hands the fabric what there is to read.
  void step(fabric& reached);
  /// A read is over.
  void handle_read(const std::string& error);
  /// The table, once it is read; throws `system_error` where it cannot be read.
  [[nodiscard]] std::optional<std::vector<std::byte>> found() const;
  /// Nothing is the fabric's from here on.
  void close() { region_.reset(); }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<fabric_region> region_;
  int peer_ = 0;
  remote_address from_;
  std::size_t left_ = 0;     // to be read
  std::size_t reading_ = 0;  // that the fabric reads now
  std::string error_;
};

}  // namespace devcomm::host::detail
