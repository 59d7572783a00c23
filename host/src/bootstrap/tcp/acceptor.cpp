#include "bootstrap/tcp/acceptor.hpp"

#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/tcp/tcp_job.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace devcomm::host::detail {
namespace {

constexpr std::chrono::milliseconds min_wait(250);

/// The send buffer of a new connection holds these few bytes; a peer that misses them runs into its time limit.
void send_at_once(int fd, const std::vector<std::byte>& data) {
  (void)::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
}

}  // namespace

acceptor::acceptor(unique_fd listener, int size, secret_view secret, std::chrono::milliseconds silence)
    : listener_(std::move(listener)),
      size_(size),
      silence_(silence),
      secret_(secret.begin(), secret.end()),
      addresses_(static_cast<std::size_t>(size)) {
  if (::listen(listener_.get(), std::clamp(2 * size, 128, 4096)) != 0) {
    throw system_error(std::string("tcp_bootstrap on rank 0: cannot listen: ") + std::strerror(errno) +
                       "; is another rank 0 or another job there? Choose another port");
  }
}

std::size_t acceptor::max_pending(int size) noexcept {
  return static_cast<std::size_t>(std::clamp(2 * size, 64, 1024));
}

bool acceptor::takes_more() const noexcept {
  return pending_.size() < max_pending(size_) || deadline::clock::now() - pending_.front().since >= min_wait;
}

void acceptor::add_to(std::vector<pollfd>& entries) const {
  entries.push_back({listener_.get(), static_cast<short>(takes_more() ? POLLIN : 0), 0});
  for (const pending_connection& s : pending_) entries.push_back({s.connection.get(), POLLIN, 0});
}

std::vector<acceptor::joined_rank> acceptor::serve(const std::vector<pollfd>& entries, std::size_t first) {
  std::vector<joined_rank> joined;
  const std::size_t polled = pending_.size();
  for (std::size_t i = 0; i < polled; ++i) {
    pending_connection& s = pending_[i];
    if (entries[first + 1 + i].revents != 0 && advance(s, joined) == progress::done) {
      s.connection.reset();
    } else if (s.until.passed()) {
      refuse(s, "it did not prove the secret within " + s.until.limit_text());
      s.connection.reset();
    }
  }
  std::erase_if(pending_, [](const pending_connection& s) { return !s.connection; });
  if (entries[first].revents != 0) accept_all();
  return joined;
}

void acceptor::accept_all() {
  // Ends under a flood too: a new connection is never closed for another new one.
  while (takes_more()) {
    std::string address;
    unique_fd connection = accept_from(listener_.get(), address, silence_);
    if (!connection) {
      const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!no_room) return;
      if (pending_.empty()) {
        throw system_error(std::string("tcp_bootstrap on rank 0: cannot accept a connection: ") + std::strerror(errno) +
                           "; raise the limit on open files (ulimit -n)");
      }
    }
    if (!connection || pending_.size() == max_pending(size_)) {
      refuse(pending_.front(), "it waited longest when too many connections waited to prove the secret");
      pending_.erase(pending_.begin());
    }
    if (connection) pending_.push_back({std::move(connection), std::move(address), deadline(handshake_limit)});
  }
}

acceptor::progress acceptor::advance(pending_connection& s, std::vector<joined_rank>& joined) {
  for (;;) {
    const std::size_t wanted = s.challenged ? sizeof(digest) : hello::wire_bytes;
    std::string problem;
    const std::ptrdiff_t count =
        receive_some(s.connection.get(), std::span<std::byte>(s.data).subspan(s.filled, wanted - s.filled), problem);
    if (count == 0) return progress::waits;
    if (count < 0) {
      refuse(s, "before it proved the secret, " + problem);
      return progress::done;
    }
    s.filled += static_cast<std::size_t>(count);
    if (s.filled < wanted) continue;
    s.filled = 0;
    if (s.challenged) return check_proof(s, joined);
    if (read_hello(s) == progress::done) return progress::done;
  }
}

acceptor::progress acceptor::read_hello(pending_connection& s) {
  const auto said = hello::decode(s.data);
  if (!said) {
    refuse(s, "it does not speak this protocol");
    return progress::done;
  }
  s.said = *said;
  s.asked.fresh = random_value<nonce>();
  send_at_once(s.connection.get(), s.asked.encode());
  if (said->version != protocol_version) {
    refuse(s, "it speaks protocol version " + std::to_string(said->version) + " and not " +
                  std::to_string(protocol_version));
    return progress::done;
  }
  s.challenged = true;
  return progress::waits;
}

acceptor::progress acceptor::check_proof(pending_connection& s, std::vector<joined_rank>& joined) {
  const transcript seen(s.said, s.asked);
  digest proof;
  std::memcpy(proof.data(), s.data.data(), proof.size());
  verdict answer;
  if (!same_digest(proof, seen.rank_proof(secret_))) {
    refuse(s, "it has another secret");
    send_at_once(s.connection.get(), answer.encode(seen, secret_));
    return progress::done;
  }
  answer.text = why_not(s.said);
  answer.outcome = answer.text.empty() ? verdict::code::accepted : verdict::code::refused;
  send_at_once(s.connection.get(), answer.encode(seen, secret_));
  if (!answer.text.empty()) {
    refuse(s, answer.text);
    if (why_never_.empty() && s.said.size != static_cast<std::uint32_t>(size_)) {
      why_never_ = "a process at " + s.address + " was started as rank " + std::to_string(s.said.rank) + " of " +
                   std::to_string(s.said.size) + ", but rank 0 for " + std::to_string(size_) +
                   " ranks; start all ranks with one size";
    }
    return progress::done;
  }
  addresses_[s.said.rank] = s.address;
  joined.push_back({static_cast<int>(s.said.rank), s.address,
                    std::make_unique<frame_stream>(std::exchange(s.connection, unique_fd()), seen.key_of_root(secret_),
                                                   seen.key_of_rank(secret_))});
  return progress::done;
}

std::string acceptor::why_not(const hello& said) const {
  const std::string rank = "rank " + std::to_string(said.rank);
  const std::string claim = rank + " of " + std::to_string(said.size);
  if (said.size != static_cast<std::uint32_t>(size_)) {
    return "it is " + claim + ", but rank 0 was started for " + std::to_string(size_) +
           "; start all ranks with one size";
  }
  if (said.rank == 0 || said.rank >= said.size) {
    return "it claims " + claim + "; ranks that join rank 0 count from 1 up to size - 1";
  }
  const std::string& address = addresses_[said.rank];
  if (address.empty()) return {};
  return rank + " has already joined from " + address + "; give every process a rank of its own";
}

void acceptor::refuse(const pending_connection& s, const std::string& why) {
  ++refused_;
  if (first_refusals_.size() < 4) first_refusals_.push_back(s.address + ": " + why);
}

std::string acceptor::refusals() const {
  if (refused_ == 0) return {};
  std::string text = "refused so far: ";
  for (std::size_t i = 0; i < first_refusals_.size(); ++i) text += (i == 0 ? "" : " | ") + first_refusals_[i];
  if (refused_ > first_refusals_.size()) {
    text += " | and " + std::to_string(refused_ - first_refusals_.size()) + " more";
  }
  return text;
}

}  // namespace devcomm::host::detail
