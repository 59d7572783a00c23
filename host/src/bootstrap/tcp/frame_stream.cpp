#include "bootstrap/tcp/frame_stream.hpp"

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/tcp/wire.hpp"

#include <devcomm/host/error.hpp>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace devcomm::host::detail {
namespace {

constexpr std::size_t fields_bytes = frame_stream::head_bytes - sizeof(digest);

/// Of a head's fields, and with the payload's hash of the whole frame; the two differ in length, so neither can stand
/// for the other.
digest head_proof(const digest& key, std::span<const std::byte> fields) {
  return hmac_sha256(key).update(fields).finish();
}
digest frame_proof(const digest& key, std::span<const std::byte> fields, const digest& payload_hash) {
  return hmac_sha256(key).update(fields).update(payload_hash).finish();
}

}  // namespace

frame_stream::~frame_stream() {
  if (closed() || !made_in_.here()) return;  // in a forked child the connection is the parent's, to end or to read
  // Unread bytes at close would make the kernel reset the connection, and a reset can overtake what
  // was sent before it.
  ::shutdown(connection_.get(), SHUT_WR);
  std::array<std::byte, 4096> ignored;
  std::string problem;
  for (int i = 0; i < 1024 && receive_some(connection_.get(), ignored, problem) > 0; ++i) continue;
}

void frame_stream::close(std::string problem) {
  problem_ = std::move(problem);
  if (poller_ >= 0 && !closed() && made_in_.here()) {
    // Fails where the instance is gone or never had it; then nothing is left to forget.
    static_cast<void>(::epoll_ctl(poller_, EPOLL_CTL_DEL, connection_.get(), nullptr));
  }
  connection_.reset();
  outgoing_.clear();
}

void frame_stream::queue(frame_type type, std::uint32_t round, const shared_payload& payload) {
  if (closed()) return;
  wire_writer head;
  head.integer(static_cast<std::uint32_t>(type)).integer(round).integer(next_sent_++);
  head.integer(static_cast<std::uint64_t>(payload.data().size()));
  outgoing entry{{}, payload, {}};
  entry.proof = frame_proof(send_key_, head.data(), payload.hash());
  head.bytes(head_proof(send_key_, head.data()));
  std::copy(head.data().begin(), head.data().end(), entry.head.begin());
  outgoing_.push_back(std::move(entry));
}

void frame_stream::flush() {
  while (unsent()) {
    outgoing& next = outgoing_.front();
    const std::vector<std::byte>& payload = next.payload.data();
    std::array<iovec, 3> pieces{};
    std::size_t count = 0;
    std::size_t skip = next.sent;
    const auto add = [&](const std::byte* data, std::size_t size) {
      const std::size_t done = std::min(skip, size);
      skip -= done;
      if (size > done) pieces[count++] = {const_cast<std::byte*>(data + done), size - done};
    };
    add(next.head.data(), next.head.size());
    add(payload.data(), payload.size());
    add(next.proof.data(), next.proof.size());
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(connection_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Frames that the other side sent before it closed are still to be read.
      if (errno == EPIPE || errno == ECONNRESET) {
        outgoing_.clear();
        return;
      }
      close(std::strerror(errno));
      return;
    }
    next.sent += static_cast<std::size_t>(sent);
    if (next.sent == next.head.size() + payload.size() + next.proof.size()) outgoing_.pop_front();
  }
}

bool frame_stream::head_is_sound() {
  digest proof;
  std::memcpy(proof.data(), head_.data() + fields_bytes, proof.size());
  if (!same_digest(proof, head_proof(receive_key_, std::span(head_).first(fields_bytes)))) {
    close("sent a message that does not prove the job's secret");
    return false;
  }
  wire_reader in(head_);
  const auto type = in.integer<std::uint32_t>();
  incoming_.round = in.integer<std::uint32_t>();
  const auto sequence = in.integer<std::uint64_t>();
  const auto length = in.integer<std::uint64_t>();
  if (type < static_cast<std::uint32_t>(frame_type::part) || type > static_cast<std::uint32_t>(frame_type::aborted)) {
    close("sent a message of unknown type");
    return false;
  }
  if (sequence != next_received_) {
    close("sent a message out of sequence");
    return false;
  }
  incoming_.type = static_cast<frame_type>(type);
  const bool data = incoming_.type == frame_type::part || incoming_.type == frame_type::result;
  if (length > (data ? longest_payload_ : longest_text)) {
    close("sent a message of " + std::to_string(length) + " bytes, more than agreed");
    return false;
  }
  body_.resize(static_cast<std::size_t>(length) + sizeof(digest));
  body_size_ = 0;
  return true;
}

std::optional<frame> frame_stream::receive() {
  while (!closed()) {
    const bool in_head = head_size_ < head_.size();
    const std::span<std::byte> room =
        in_head ? std::span<std::byte>(head_).subspan(head_size_) : std::span<std::byte>(body_).subspan(body_size_);
    std::string problem;
    const std::ptrdiff_t count = receive_some(connection_.get(), room, problem);
    if (count < 0) close(problem);
    if (count <= 0) return std::nullopt;
    (in_head ? head_size_ : body_size_) += static_cast<std::size_t>(count);
    if (head_size_ < head_.size()) continue;
    if (in_head && !head_is_sound()) return std::nullopt;
    if (body_size_ < body_.size()) continue;

    const std::size_t length = body_.size() - sizeof(digest);
    digest proof;
    std::memcpy(proof.data(), body_.data() + length, proof.size());
    body_.erase(body_.end() - std::ptrdiff_t{sizeof(digest)}, body_.end());
    if (!same_digest(proof, frame_proof(receive_key_, std::span(head_).first(fields_bytes), sha256::of(body_)))) {
      close("sent a message that does not prove the job's secret");
      return std::nullopt;
    }
    ++next_received_;
    head_size_ = 0;
    incoming_.payload = std::exchange(body_, {});
    return std::exchange(incoming_, {});
  }
  return std::nullopt;
}

std::vector<std::byte> shutdown_notice::encode() const {
  wire_writer out(frame_stream::longest_text);
  out.integer(static_cast<std::int32_t>(culprit));
  out.bytes(bytes_of(std::string_view(text).substr(0, frame_stream::longest_text - 4)));
  return out.data();
}

shutdown_notice shutdown_notice::decode(const std::vector<std::byte>& data) {
  wire_reader in(data);
  const int culprit = in.integer<std::int32_t>();
  return {in.good() ? culprit : -1, in.text()};
}

std::vector<std::byte> round_failure::encode() const {
  wire_writer out(frame_stream::longest_text);
  out.integer(static_cast<std::uint32_t>(what)).integer(static_cast<std::int32_t>(culprit));
  out.integer(static_cast<std::uint32_t>(final ? 1 : 0));
  out.bytes(bytes_of(std::string_view(text).substr(0, frame_stream::longest_text - 12)));
  return out.data();
}

std::optional<round_failure> round_failure::decode(const std::vector<std::byte>& data) {
  wire_reader in(data);
  round_failure f;
  const auto what = in.integer<std::uint32_t>();
  f.culprit = in.integer<std::int32_t>();
  f.final = in.integer<std::uint32_t>() != 0;
  if (!in.good() || what > static_cast<std::uint32_t>(kind::unequal)) return std::nullopt;
  f.what = static_cast<kind>(what);
  f.text = in.text();
  return f;
}

void round_failure::raise(const std::string& call) const {
  const std::string full = call + ": " + text;
  switch (what) {
    case kind::invalid: throw invalid_argument(full);
    case kind::unequal: throw unequal_sizes(full);
    case kind::timeout: throw timeout_error(full);
    case kind::remote:
    case kind::lost: break;
  }
  throw remote_error(full, culprit);
}

}  // namespace devcomm::host::detail
