#include "rank/peer_links.hpp"

#include <devcomm/host/error.hpp>

#include "util/hex.hpp"
#include "util/number_list.hpp"
#include "util/quiet_thread.hpp"
#include "util/random.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t max_pending = 64;

// The poller's tags of events. The number of a link, or a pending connection's descriptor, is in the lower half.
enum class watched : std::uint32_t { wake, listener, pending, socket, process };
constexpr std::uint64_t tag_of(watched what, std::size_t number = 0) {
  return static_cast<std::uint64_t>(what) << 32 | number;
}
constexpr std::chrono::milliseconds hello_limit = 5s;
constexpr std::chrono::milliseconds leave_limit = 1s;

[[noreturn]] void fail(const char* call) {
  throw system_error(std::string("links between processes: ") + call + " failed: " + std::strerror(errno));
}

unique_fd new_socket(int flags = 0) {
  unique_fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd) fail("socket");
  return fd;
}

/// An abstract address: no file is left behind.
socklen_t fill_address(const link_address& from, sockaddr_un& to) {
  to = {};
  to.sun_family = AF_UNIX;
  const std::string name = "devcomm-" + to_hex(std::as_bytes(std::span(from.name)));
  const char* const out = std::copy(name.begin(), name.end(), to.sun_path + 1);
  return static_cast<socklen_t>(out - reinterpret_cast<const char*>(&to));
}

/// Whether somebody listens there, which ends with the process.
bool is_listening(const link_address& address) {
  const unique_fd socket = new_socket(SOCK_NONBLOCK);
  sockaddr_un where;
  const socklen_t bytes = fill_address(address, where);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where), bytes) == 0 || errno != ECONNREFUSED;
}

bool same_user(int fd, ucred& who) {
  socklen_t bytes = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid();
}

/// Readable once the process has ended, even while a child of it keeps its sockets open. Where the kernel or a
/// namespace refuses it, only the closed socket shows the end.
unique_fd watch_process(pid_t pid) {
  if (pid <= 0) return unique_fd();
  return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

struct peer_links::message {
  enum class type : std::uint32_t { hello = 0x64636c31, memory, leave, abandon, abort, depart };
  type kind;
  std::int32_t rank;
  std::int32_t culprit;
  std::uint32_t place;  // of the sender; for memory, the `window_piece`
  std::uint64_t number;
  std::array<std::uint8_t, 16> token;
  std::array<char, 456> text{};

  void set_text(const std::string& from) noexcept {
    const std::size_t length = std::min(from.size(), text.size() - 1);
    std::copy_n(from.data(), length, text.data());
    text[length] = '\0';
  }
};

struct peer_links::link {
  std::size_t number = 0;  // in `links_`
  std::vector<int> ranks;  // that have not left
  std::vector<int> all_ranks;
  std::size_t place = 0;  // among the processes of the host
  pid_t pid = 0;
  unique_fd socket;
  unique_fd process;
  bool closed = false;
  int culprit = -1;  // the lost rank because of which its ranks left

  void open(unique_fd connected, pid_t peer) {
    socket = std::move(connected);
    pid = peer;
    process = watch_process(peer);
  }
};

/// A connection whose hello has not arrived.
struct peer_links::pending_connection {
  unique_fd socket;
  pid_t pid = 0;
  deadline until{hello_limit};
};

peer_links::peer_links(loss_handler lost, abandon_handler abandoned, abort_handler aborted, departure_handler departed)
    : lost_(std::move(lost)),
      abandoned_(std::move(abandoned)),
      aborted_(std::move(aborted)),
      departed_(std::move(departed)) {
  listen();
}

peer_links::~peer_links() {
  if (!reader_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  // The counter is far from its limit, so this cannot fail.
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  reader_.join();
}

void peer_links::listen() {
  address_ = random_value<link_address>();
  listener_ = new_socket();
  sockaddr_un where;
  const socklen_t bytes = fill_address(address_, where);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&where), bytes) != 0) fail("bind");
  if (::listen(listener_.get(), SOMAXCONN) != 0) fail("listen");
}

void peer_links::connect(const std::vector<link_peer>& peers, std::size_t own, std::chrono::milliseconds limit) {
  const deadline until(limit);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (i == own) continue;
    link to;
    to.ranks = to.all_ranks = peers[i].ranks;
    to.place = i;
    if (i < own) open_link(to, peers[i], own, limit);
    to.number = links_.size();
    links_.push_back(std::move(to));
  }
  if (links_.empty()) {
    listener_.reset();
    return;
  }
  start();
  wait_for_links(peers, until);
}

void peer_links::open_link(link& made, const link_peer& to, std::size_t own, std::chrono::milliseconds limit) {
  unique_fd socket = new_socket();
  const timeval send_limit{std::max<time_t>(1, limit.count() / 1000), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &send_limit, sizeof send_limit);
  sockaddr_un where;
  const socklen_t bytes = fill_address(to.address, where);
  const auto fail_to_connect = [&] {
    const int error = errno;
    const std::string text = "links between processes: connecting to the process of " + rank_list(to.ranks) +
                             " failed: " + std::strerror(error) + "; look for that process's own error";
    // It listened before, so it has ended.
    if (error == ECONNREFUSED || error == ECONNRESET || error == EPIPE) throw remote_error(text, to.ranks.front());
    throw system_error(text);
  };
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where), bytes) != 0) fail_to_connect();
  ucred who{};
  if (!same_user(socket.get(), who)) {
    throw system_error("links between processes: the process of " + rank_list(to.ranks) +
                       " runs as another user; start all ranks as one user");
  }
  const message hello{message::type::hello, 0, -1, static_cast<std::uint32_t>(own), 0, to.address.token};
  const ssize_t sent = ::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(sizeof hello)) fail_to_connect();
  made.open(std::move(socket), who.pid);
}

void peer_links::wait_for_links(const std::vector<link_peer>& peers, const deadline& until) {
  std::unique_lock lock(mutex_);
  const auto all_stand = [&] {
    return std::all_of(links_.begin(), links_.end(), [](const link& l) { return l.socket.get() >= 0 || l.closed; });
  };
  constexpr std::chrono::milliseconds between_checks = 100ms;
  while (!until.passed()) {
    const auto next = std::min(until.when(), std::chrono::steady_clock::now() + between_checks);
    if (changed_.wait_until(lock, next, all_stand)) return;
    for (const link& l : links_) {
      if (l.socket || l.closed || is_listening(peers[l.place].address)) continue;
      throw remote_error("links between processes: the process of " + rank_list(l.all_ranks) +
                             " ended before it connected; look for that process's own error",
                         l.all_ranks.front());
    }
  }
  std::vector<int> missing;
  for (const link& l : links_) {
    if (!l.socket) missing.insert(missing.end(), l.all_ranks.begin(), l.all_ranks.end());
  }
  std::sort(missing.begin(), missing.end());
  throw timeout_error("links between processes: waited " + until.limit_text() + " for the process of " +
                      rank_list(missing) + " to connect; " +
                      (refused_because_.empty() ? "look for that process's own error"
                                                : "no connection could be accepted (" + refused_because_ +
                                                      "): raise the limit on open files (ulimit -n)"));
}

void peer_links::start() {
  wake_ = unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) fail("eventfd");
  poller_ = unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller_) fail("epoll_create1");
  if (!watch(wake_, tag_of(watched::wake)) || !watch(listener_, tag_of(watched::listener))) fail("epoll_ctl");
  for (const link& l : links_) {
    if (l.socket && !watch(l)) fail("epoll_ctl");
  }
  reader_ = quiet_thread([this] { read_all(); });
}

bool peer_links::watch(const unique_fd& what, std::uint64_t tag) const {
  epoll_event wish{EPOLLIN, {.u64 = tag}};
  return ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, what.get(), &wish) == 0;
}

bool peer_links::watch(const link& l) const {
  // Without the process the closed socket shows the end, as where it has no descriptor.
  if (l.process) static_cast<void>(watch(l.process, tag_of(watched::process, l.number)));
  return watch(l.socket, tag_of(watched::socket, l.number));
}

/// By the reading thread, and not left to closing: a child that was forked keeps what this process has opened open, and
/// the poller would go on to tell of it.
void peer_links::unwatch(const unique_fd& what) const {
  if (what) static_cast<void>(::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, what.get(), nullptr));
}

void peer_links::drop(pending_connection& gone) const {
  unwatch(gone.socket);
  gone.socket.reset();
}

/// Only this thread opens accepted links and closes any, so it may use their descriptors unlocked. How long it takes to
/// look goes by what has happened, not by the number of links.
void peer_links::read_all() {
  std::array<epoll_event, 64> events;
  for (;;) {
    bool complete = listener_.get() >= 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (std::size_t i = 0; complete && i < links_.size(); ++i) complete = links_[i].socket || links_[i].closed;
    }
    if (complete) {
      unwatch(listener_);
      listener_.reset();
      for (pending_connection& each : pending_) drop(each);
      pending_.clear();
    }
    int timeout = -1;
    for (const pending_connection& s : pending_) {
      const int left = s.until.poll_milliseconds();
      timeout = timeout < 0 ? left : std::min(timeout, left);
    }
    const int got = ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (got < 0) continue;  // interrupted

    bool connects = false;
    for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(got))) {
      const auto number = static_cast<std::size_t>(each.data.u64 & 0xffff'ffffu);
      switch (static_cast<watched>(each.data.u64 >> 32)) {
        case watched::wake: break;
        case watched::listener: connects = true; break;
        case watched::pending: read_hello(static_cast<int>(number)); break;
        case watched::socket:
        case watched::process: {
          link& l = links_[number];
          if (l.closed) break;             // by an earlier one of these events
          const bool open = read_link(l);  // first: `leave` messages may precede the end
          if (!open || static_cast<watched>(each.data.u64 >> 32) == watched::process) close_link(l);
          break;
        }
      }
    }
    for (pending_connection& s : pending_) {
      if (s.until.passed()) drop(s);
    }
    std::erase_if(pending_, [](const pending_connection& s) { return !s.socket; });
    if (connects) accept_connection();
  }
}

void peer_links::refuse_connection() {
  {
    const std::lock_guard lock(mutex_);
    refused_because_ = std::strerror(errno);
  }
  if (pending_.empty()) return;
  drop(pending_.front());
  pending_.erase(pending_.begin());
}

void peer_links::accept_connection() {
  if (!listener_) return;
  pending_connection s;
  s.socket = unique_fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!s.socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    refuse_connection();
    std::this_thread::sleep_for(10ms);  // the connection stays in the queue; descriptors may become free
    return;
  }
  ucred who{};
  if (!s.socket || !same_user(s.socket.get(), who)) return;
  s.pid = who.pid;
  // A peer sends its hello at once, so the connection that has been silent longest is dropped.
  if (pending_.size() == max_pending) {
    drop(pending_.front());
    pending_.erase(pending_.begin());
  }
  if (!watch(s.socket, tag_of(watched::pending, static_cast<std::size_t>(s.socket.get())))) return refuse_connection();
  pending_.push_back(std::move(s));
}

/// Takes the connection if its hello has the token of this process and the index of a process that is still missing.
void peer_links::read_hello(int descriptor) {
  const auto from = std::find_if(pending_.begin(), pending_.end(),
                                 [&](const pending_connection& s) { return s.socket.get() == descriptor; });
  if (from == pending_.end()) return;
  message hello{};
  const ssize_t got = ::recv(descriptor, &hello, sizeof hello, MSG_DONTWAIT);
  const bool right =
      got == static_cast<ssize_t>(sizeof hello) && hello.kind == message::type::hello && hello.token == address_.token;
  unwatch(from->socket);
  const std::lock_guard lock(mutex_);
  const auto to = std::find_if(links_.begin(), links_.end(),
                               [&](const link& l) { return l.place == hello.place && !l.socket && !l.closed; });
  if (right && to != links_.end()) {
    to->open(std::move(from->socket), from->pid);
    if (watch(*to)) {
      changed_.notify_all();
    } else {
      refused_because_ = std::strerror(errno);
      to->socket.reset();
      unwatch(to->process);
      to->process.reset();
    }
  }
  pending_.erase(from);
}

/// Takes all that has arrived; false once the other side has closed.
bool peer_links::read_link(link& from) {
  bool was_reset = false;
  for (;;) {
    message what{};
    iovec data{&what, sizeof what};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(from.socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    // The other side closed before it read all that was sent to it. What it sent itself is still here.
    if (got < 0 && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;

    unique_fd descriptor;
    const cmsghdr* const extra = CMSG_FIRSTHDR(&header);
    if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(extra), sizeof fd);
      descriptor = unique_fd(fd);
    }
    if (got != static_cast<ssize_t>(sizeof what)) continue;
    what.text.back() = '\0';
    const std::string text = what.text.data();

    std::unique_lock lock(mutex_);
    if (what.kind == message::type::memory) {
      if (what.number < first_kept_) continue;
      inbox_[{what.number, what.rank, static_cast<window_piece>(what.place)}] = std::move(descriptor);
      changed_.notify_all();
    } else if (what.kind == message::type::leave) {
      std::erase(from.ranks, what.rank);
      if (what.culprit != what.rank) from.culprit = what.culprit;
      // The loss of a rank that has a link to this process is detected on that link.
      if (what.culprit < 0 || (what.culprit != what.rank && link_of(what.culprit) != nullptr)) continue;
      lock.unlock();
      lost_(what.culprit, text);
    } else if (what.kind == message::type::abandon && abandoned_) {
      lock.unlock();
      abandoned_(what.rank, what.number, text);
    } else if (what.kind == message::type::abort && aborted_) {
      lock.unlock();
      aborted_(what.rank, text);
    } else if (what.kind == message::type::depart && departed_) {
      lock.unlock();
      departed_(what.rank, what.number);
    }
  }
}

void peer_links::close_link(link& gone) {
  std::vector<int> ranks;
  {
    const std::lock_guard lock(mutex_);
    unwatch(gone.socket);
    unwatch(gone.process);
    gone.socket.reset();
    gone.process.reset();
    gone.closed = true;
    ranks = gone.ranks;
    changed_.notify_all();
  }
  if (ranks.empty()) return;
  lost_(ranks.front(), "the process (pid " + std::to_string(gone.pid) + ") of " + rank_list(ranks) +
                           " ended without destroying its communicator");
}

peer_links::link* peer_links::link_of(int rank) {
  for (link& l : links_) {
    if (std::find(l.all_ranks.begin(), l.all_ranks.end(), rank) != l.all_ranks.end()) return &l;
  }
  return nullptr;
}

void peer_links::throw_gone(const link& gone, std::unique_lock<std::mutex>& lock) {
  // The reading thread may not have read its last messages yet.
  changed_.wait_for(lock, 100ms, [&] { return gone.closed; });
  throw_if_left_for_a_loss(gone, gone.all_ranks.front());
  throw remote_error("links between processes: the process of " + rank_list(gone.all_ranks) + " is gone",
                     gone.all_ranks.front());
}

void peer_links::send(link& to, const message& what, int descriptor, const deadline& until) {
  message copy = what;
  iovec data{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const extra = CMSG_FIRSTHDR(&header);
    extra->cmsg_level = SOL_SOCKET;
    extra->cmsg_type = SCM_RIGHTS;
    extra->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(extra), &descriptor, sizeof descriptor);
  }
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (to.closed || !to.socket) throw_gone(to, lock);
      if (::sendmsg(to.socket.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof copy)) return;
      if (errno == EPIPE || errno == ECONNRESET) throw_gone(to, lock);
      // ETOOMANYREFS: too many descriptors on their way; the receiver takes them out.
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ETOOMANYREFS) fail("sendmsg");
    }
    if (until.passed()) {
      throw timeout_error("links between processes: " + rank_list(to.all_ranks) + " took nothing for " +
                          until.limit_text() + "; check what delays that process");
    }
    std::this_thread::sleep_for(1ms);
  }
}

void peer_links::send_memory(int receiver, std::uint64_t number, int rank, int descriptor, const deadline& until,
                             window_piece piece) {
  link* const to = link_of(receiver);
  if (to == nullptr) throw system_error("links between processes: no link to rank " + std::to_string(receiver));
  send(*to, {message::type::memory, rank, -1, static_cast<std::uint32_t>(piece), number, {}}, descriptor, until);
}

void peer_links::throw_if_left_for_a_loss(const link& gone, int rank) {
  if (gone.culprit < 0) return;
  throw remote_error("links between processes: rank " + std::to_string(rank) + " left because rank " +
                         std::to_string(gone.culprit) + " was lost",
                     gone.culprit);
}

unique_fd peer_links::take_memory(std::uint64_t number, int rank, const deadline& until, window_piece piece) {
  const link* const from = link_of(rank);
  std::unique_lock lock(mutex_);
  const auto here = [&] { return inbox_.find({number, rank, piece}); };
  const bool done = changed_.wait_until(lock, until.when(),
                                        [&] { return here() != inbox_.end() || from == nullptr || from->closed; });
  if (const auto found = here(); found != inbox_.end()) {
    unique_fd descriptor = std::move(found->second);
    inbox_.erase(found);
    if (descriptor) return descriptor;
    throw system_error("links between processes: memory of rank " + std::to_string(rank) +
                       " arrived, but this process can open no more files: raise the limit on open files (ulimit -n)");
  }
  if (done) {
    if (from != nullptr) throw_if_left_for_a_loss(*from, rank);
    throw remote_error(
        "links between processes: the process of rank " + std::to_string(rank) + " ended before its memory arrived",
        rank);
  }
  throw timeout_error("links between processes: waited " + until.limit_text() + " for memory of rank " +
                      std::to_string(rank) + "; check what delays that process");
}

void peer_links::forget_memory(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  first_kept_ = std::max(first_kept_, number + 1);
  std::erase_if(inbox_, [&](const auto& entry) { return std::get<0>(entry.first) <= number; });
}

void peer_links::leave(int rank, int culprit, const std::string& text) noexcept {
  message what{message::type::leave, rank, culprit, 0, 0, {}};
  what.set_text(text);
  send_to_all(what);
}

void peer_links::abandon(int rank, std::uint64_t number, const std::string& text) noexcept {
  message what{message::type::abandon, rank, rank, 0, number, {}};
  what.set_text(text);
  send_to_all(what);
}

void peer_links::depart(int rank, std::uint64_t number) noexcept {
  send_to_all({message::type::depart, rank, -1, 0, number, {}});
}

void peer_links::abort(int rank, const std::string& text) noexcept {
  message what{message::type::abort, rank, rank, 0, 0, {}};
  what.set_text(text);
  send_to_all(what);
}

void peer_links::send_to_all(const message& what) noexcept {
  for (link& to : links_) {
    try {
      send(to, what, -1, deadline(leave_limit));
    } catch (const std::exception&) {
      // The peer is gone, or sees the link close.
    }
  }
}

}  // namespace devcomm::host::detail
