/// \file doorkeeper.hpp
/// Rank 0's listening side: lets the job's ranks in and keeps everybody else out.
#pragma once

#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/handshake.hpp"
#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Never blocks and never throws for what a connection does: one that is malformed, slow, silent or
/// without the secret is closed, noted, and delays nobody. At most `most_strangers()` connections wait
/// to prove the secret; when one more comes, the one that has waited longest makes room, but not
/// before it had `least_stay` to do so.
class doorkeeper {
 public:
  struct guest {
    int rank;
    std::string address;
    std::unique_ptr<frame_stream> stream;
  };

  /// `listener` is bound. Throws `system_error` when it cannot listen.
  doorkeeper(unique_fd listener, int size, secret_view secret);

  /// Adds what to poll for.
  void add_to(std::vector<pollfd>& entries) const;
  /// Goes on with what `add_to` added at `first`, now polled. Returns the ranks that came in; each rank
  /// comes in once.
  [[nodiscard]] std::vector<guest> serve(const std::vector<pollfd>& entries, std::size_t first);

  /// "refused so far: ..." or empty.
  [[nodiscard]] std::string refusals() const;

 private:
  struct stranger {
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

  [[nodiscard]] std::size_t most_strangers() const noexcept;
  [[nodiscard]] bool takes_more() const noexcept;
  void accept_all();
  [[nodiscard]] progress advance(stranger& s, std::vector<guest>& guests);
  [[nodiscard]] progress hear(stranger& s);
  [[nodiscard]] progress judge(stranger& s, std::vector<guest>& guests);
  /// Why the rank that `said` names cannot come in, or empty.
  [[nodiscard]] std::string why_not(const hello& said) const;
  void refuse(const stranger& s, const std::string& why);

  unique_fd listener_;
  int size_;
  std::vector<std::byte> secret_;
  std::vector<std::string> addresses_;  ///< by rank, of those that came in
  std::vector<stranger> strangers_;
  std::vector<std::string> first_refusals_;
  std::size_t refused_ = 0;
};

}  // namespace devcomm::host::detail
