/// \file peer_reads.hpp
/// Bytes that ranks read from each other over a fabric before there are windows.
#pragma once

#include "transport/fabric.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class peer_reads {
 public:
  /// Where a peer has offered bytes.
  struct part {
    int peer;
    remote_address from;
    std::size_t bytes;
  };

  /// Peers can read `bytes` from here on. Called once.
  [[nodiscard]] remote_address offer(fabric& reached, std::vector<std::byte> bytes);
  /// Reads `parts`. *Requires* that nothing is being read.
  void begin(fabric& reached, const std::vector<part>& parts);
  /// Hands the fabric what it takes now.
  void step(fabric& reached);
  /// The read of part `slot` is over.
  void handle_read(std::size_t slot, const std::string& error);
  /// All parts, one behind the other, once they are there; throws `system_error` where one could not be read.
  [[nodiscard]] std::optional<std::vector<std::byte>> take();
  /// Nothing is the fabric's from here on.
  void close();

 private:
  struct read {
    part of;
    std::size_t offset;  // in `bytes_`
  };

  std::vector<std::byte> offered_;
  std::unique_ptr<fabric_region> offered_region_;
  std::vector<read> reads_;
  std::deque<std::size_t> waiting_;  // for the fabric to take them
  std::size_t left_ = 0;
  std::string error_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<fabric_region> region_;
};

}  // namespace devcomm::host::detail
