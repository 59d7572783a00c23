/// \file frame_stream.hpp
/// Authenticated messages over a connection whose two sides proved the job's secret.
///
/// A frame is a head (type, round, sequence number, payload size), HMAC(key of the sender, head), the payload, and
/// HMAC(key of the sender, head + SHA-256(payload)). Sequence numbers count from 0 on each side, so a
/// frame that is forged, repeated, dropped or out of order closes the connection. A head is authenticated, and its
/// size checked against what the receiver can expect, before memory is taken for the payload.
#pragma once

#include "util/process_stamp.hpp"
#include "util/sha256.hpp"
#include "util/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace devcomm::host::detail {

enum class frame_type : std::uint32_t {
  part = 1,           ///< rank: my bytes of this round
  bad_arguments = 2,  ///< rank: I take part, but my arguments were wrong; text
  gave_up = 3,        ///< rank: my limit passed; whether I waited for rank 0 (4 bytes), and text
  result = 4,         ///< rank 0: all ranks' bytes
  progress = 5,       ///< rank 0: takes part, and waits for the ranks in the text
  failure = 6,        ///< rank 0: the round failed; see `round_failure`
  leave = 7,          ///< its part is over: the culprit (4 bytes), or -1, and text
  aborted = 8,        ///< a rank (4 bytes) ended the waits of its kernels, and text; rank 0 passes it on
};

struct frame {
  frame_type type;
  std::uint32_t round;
  std::vector<std::byte> payload;
};

/// Bytes that several connections send; hashed once.
class shared_payload {
 public:
  explicit shared_payload(std::vector<std::byte> data)
      : data_(std::make_shared<const std::vector<std::byte>>(std::move(data))), hash_(sha256::of(*data_)) {}

  [[nodiscard]] const std::vector<std::byte>& data() const noexcept { return *data_; }
  [[nodiscard]] const digest& hash() const noexcept { return hash_; }

 private:
  std::shared_ptr<const std::vector<std::byte>> data_;
  digest hash_;
};

class frame_stream {
 public:
  /// With its proof.
  static constexpr std::size_t head_bytes = 24 + sizeof(digest);
  static constexpr std::size_t longest_text = 4096;

  frame_stream(unique_fd connection, const digest& send_key, const digest& receive_key)
      : connection_(std::move(connection)), send_key_(send_key), receive_key_(receive_key) {}
  ~frame_stream();
  frame_stream(const frame_stream&) = delete;
  frame_stream& operator=(const frame_stream&) = delete;

  /// Largest payload taken from the other side.
  void accept_payloads_up_to(std::size_t bytes) noexcept { longest_payload_ = bytes; }

  void queue(frame_type type, std::uint32_t round, const shared_payload& payload);
  /// Sends what the connection takes now.
  void flush();
  [[nodiscard]] bool unsent() const noexcept { return !outgoing_.empty() && !closed(); }
  /// Bytes of memory that an unfinished frame holds.
  [[nodiscard]] std::size_t held() const noexcept { return body_.capacity(); }

  /// The next whole frame if it is there now. Frames that arrived before the other side closed come
  /// before `closed()` turns true.
  [[nodiscard]] std::optional<frame> receive();

  [[nodiscard]] int descriptor() const noexcept { return connection_.get(); }
  /// An epoll instance that has the connection: it is taken out when it closes, which the kernel does only when no
  /// forked child has a copy any more.
  void leave_on_close(int poller) noexcept { poller_ = poller; }
  [[nodiscard]] bool closed() const noexcept { return !connection_; }
  /// Why it is closed.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  void close(std::string problem);

 private:
  struct outgoing {
    std::array<std::byte, head_bytes> head;
    shared_payload payload;
    digest proof;
    std::size_t sent = 0;
  };

  [[nodiscard]] bool head_is_sound();

  process_stamp made_in_;
  unique_fd connection_;
  int poller_ = -1;
  digest send_key_;
  digest receive_key_;
  std::uint64_t next_sent_ = 0;
  std::uint64_t next_received_ = 0;
  std::size_t longest_payload_ = longest_text;

  std::deque<outgoing> outgoing_;
  std::array<std::byte, head_bytes> head_{};
  std::size_t head_size_ = 0;
  frame incoming_{};
  std::vector<std::byte> body_;  ///< payload and proof, as far as they arrived
  std::size_t body_size_ = 0;
  std::string problem_;
};

/// Sent by a rank whose part is over.
struct shutdown_notice {
  int culprit = -1;
  std::string text;

  [[nodiscard]] std::vector<std::byte> encode() const;
  [[nodiscard]] static shutdown_notice decode(const std::vector<std::byte>& data);
};

/// Sent by rank 0 for a round that failed.
struct round_failure {
  enum class kind : std::uint32_t { invalid = 0, remote = 1, timeout = 2, lost = 3, unequal = 4 };

  kind what = kind::remote;
  int culprit = 0;     ///< for `remote` and `lost`
  bool final = false;  ///< no later round can succeed
  std::string text;

  [[nodiscard]] std::vector<std::byte> encode() const;
  [[nodiscard]] static std::optional<round_failure> decode(const std::vector<std::byte>& data);
  /// Throws it as an exception; `text` follows `call`.
  [[noreturn]] void raise(const std::string& call) const;
};

}  // namespace devcomm::host::detail
