#include "bootstrap/tcp/idle_watch.hpp"

#include "util/quiet_thread.hpp"

#include <devcomm/host/error.hpp>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace devcomm::host::detail {
namespace {

void report_failure(const std::function<idle_watch::report(const std::string&)>& failed, const char* why) noexcept {
  try {
    if (const idle_watch::report found = failed(why)) found();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "devcomm: losses of other ranks are not noticed between calls any more: %s\n", problem.what());
  }
}

}  // namespace

void idle_watch::start(int descriptor, std::function<report()> poll,
                       std::function<report(const std::string& why)> failed, int wake) {
  descriptor_ = descriptor;
  poller_ = unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event wish{EPOLLIN, {.u64 = 0}};
  if (!poller_ || !stop_ || ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, descriptor_, &wish) != 0 ||
      (wake >= 0 && ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, wake, &wish) != 0)) {
    throw system_error(std::string("watching the connections to other ranks failed: ") + std::strerror(errno));
  }
  const auto watch = [poll = std::move(poll), gone = gone_, poller = poller_.get(), stop = stop_.get()] {
    for (;;) {
      pollfd entries[] = {{poller, POLLIN, 0}, {stop, POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0) continue;  // interrupted
      if (entries[1].revents != 0) return;
      if (const report found = poll()) {
        found();
        if (*gone) return;
      }
    }
  };
  thread_ = std::make_unique<std::thread>(quiet_thread([watch, failed = std::move(failed), gone = gone_] {
    try {
      watch();
    } catch (const std::exception& problem) {
      if (!*gone) report_failure(failed, problem.what());
    }
  }));
}

void idle_watch::wait_for(std::uint32_t events) noexcept {
  if (!thread_ || !made_in_.here()) return;
  epoll_event wish{events, {.u64 = 0}};
  // Fails once the descriptor is closed; then there is nothing to watch.
  static_cast<void>(::epoll_ctl(poller_.get(), EPOLL_CTL_MOD, descriptor_, &wish));
}

idle_watch::busy::~busy() { watch_.wait_for(EPOLLIN); }

idle_watch::~idle_watch() {
  if (!thread_) return;
  if (!made_in_.here()) {
    static_cast<void>(thread_.release());  // the thread is the parent's, and so is what would end it
    return;
  }
  *gone_ = true;
  if (thread_->get_id() == std::this_thread::get_id()) {
    thread_->detach();  // it ends once the report returns that ended its owner
    return;
  }
  const std::uint64_t one = 1;
  // The counter is far from its limit, so this cannot fail.
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  thread_->join();
}

}  // namespace devcomm::host::detail
