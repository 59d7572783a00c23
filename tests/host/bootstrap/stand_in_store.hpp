/// \file stand_in_store.hpp
/// A process in the place of torchrun's store: an honest one, and ones that fail in every way.
#pragma once

#include "util/unique_fd.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace devcomm_test {

enum class store_kind {
  honest,
  trickling,     ///< honest, a byte at a time
  absent,        ///< nobody listens
  late,          ///< honest, but listens after half a second only
  silent,        ///< takes connections and says nothing
  old,           ///< before torch 2.5: ends connections at the first query
  cut_once,      ///< ends the first connection in the middle of its key, and is honest then
  cut_at_first,  ///< ends all connections there in its first second, as one that starts again, and is honest then
  cut_always,    ///< ends all connections there
  wrong_number,  ///< answers a ping with another number
  greeting,      ///< another program's, which speaks first
  short_value,   ///< has a value of another length
  endless_value  ///< has one of 2^40 bytes
};
[[nodiscard]] std::string to_string(store_kind kind);

/// It speaks the protocol of torch's TCPStore by code of its own and ends connections that do not.
class stand_in_store {
 public:
  explicit stand_in_store(store_kind kind, const std::string& address = "127.0.0.1");
  ~stand_in_store();
  stand_in_store(const stand_in_store&) = delete;
  stand_in_store& operator=(const stand_in_store&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Connections that sent anything.
  [[nodiscard]] int asked() const { return asked_->load(); }

 private:
  devcomm::host::detail::unique_fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<int>* asked_ = nullptr;  // shared with the process
  pid_t process_ = -1;
};

}  // namespace devcomm_test
