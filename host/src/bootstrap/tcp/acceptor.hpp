/// \file acceptor.hpp
/// Rank 0's listener: accepts the ranks of the job and refuses other connections.
#pragma once

#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/handshake.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Never blocks, and never throws because of a connection: one that is malformed, slow, silent or without the secret is
/// closed and recorded, and delays no other. At most `max_pending` connections may be unproven; when one more comes,
/// the oldest is closed, though not before it has had `min_wait`.
class acceptor {
 public:
  struct joined_rank {
    int rank;
    std::string address;
    std::unique_ptr<frame_stream> stream;
  };

  /// `listener` is bound. A rank that answers nothing for `silence` loses its connection. Throws `system_error` when it
  /// cannot listen.
  acceptor(unique_fd listener, int size, secret_view secret, std::chrono::milliseconds silence = default_peer_limit);

  /// Adds what to poll for.
  void add_to(std::vector<pollfd>& entries) const;
  /// Handles the entries that `add_to` added from `first` on, after `poll`. Returns the ranks that joined; each joins
  /// once.
  [[nodiscard]] std::vector<joined_rank> serve(const std::vector<pollfd>& entries, std::size_t first);

  /// How many connections to rank 0 of a job of `size` ranks may be unproven.
  [[nodiscard]] static std::size_t max_pending(int size) noexcept;

  /// "refused so far: ..." or empty.
  [[nodiscard]] std::string refusals() const;
  /// Why this job can never be complete, or empty: a rank of the job was started for another number of ranks.
  [[nodiscard]] const std::string& why_never() const noexcept { return why_never_; }

 private:
  struct pending_connection {
    unique_fd connection;
    std::string address;
    deadline until;
    deadline::clock::time_point since = deadline::clock::now();
    bool challenged = false;
    std::array<std::byte, hello::wire_bytes> data{};
    std::size_t filled = 0;
    hello said{};
    challenge asked{};
  };
  enum class progress { waits, done };

  [[nodiscard]] bool takes_more() const noexcept;
  void accept_all();
  [[nodiscard]] progress advance(pending_connection& s, std::vector<joined_rank>& joined);
  [[nodiscard]] progress read_hello(pending_connection& s);
  [[nodiscard]] progress check_proof(pending_connection& s, std::vector<joined_rank>& joined);
  /// Why the rank that `said` names cannot join, or empty.
  [[nodiscard]] std::string why_not(const hello& said) const;
  void refuse(const pending_connection& s, const std::string& why);

  unique_fd listener_;
  int size_;
  std::chrono::milliseconds silence_;
  std::vector<std::byte> secret_;
  std::vector<std::string> addresses_;  ///< by rank, of those that joined
  std::vector<pending_connection> pending_;
  std::vector<std::string> first_refusals_;
  std::size_t refused_ = 0;
  std::string why_never_;
};

}  // namespace devcomm::host::detail
