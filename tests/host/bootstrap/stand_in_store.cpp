#include "stand_in_store.hpp"

#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace devcomm_test {
namespace {

/// One connection. Anything that goes wrong is an `ended`.
class client {
 public:
  struct ended {};

  client(int fd, bool trickling) : fd_(fd), trickling_(trickling) {}

  void read(void* data, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t got = ::recv(fd_, static_cast<char*>(data) + at, bytes - at, 0);
      if (got <= 0) throw ended{};
      at += static_cast<std::size_t>(got);
    }
  }
  template <class T>
  [[nodiscard]] T number() const {
    T value;
    read(&value, sizeof value);
    return value;
  }
  [[nodiscard]] std::string text() const {
    const auto bytes = number<std::uint64_t>();
    if (bytes > 8192) throw ended{};
    std::string value(bytes, '\0');
    read(value.data(), value.size());
    return value;
  }

  void write(const void* data, std::size_t bytes) const {
    const std::size_t step = trickling_ ? 1 : bytes;
    for (std::size_t at = 0; at < bytes; at += step) {
      if (trickling_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (::send(fd_, static_cast<const char*>(data) + at, step, MSG_NOSIGNAL) <= 0) throw ended{};
    }
  }
  template <class T>
  void write_number(T value) const {
    write(&value, sizeof value);
  }
  void write_text(const std::string& value) const {
    write_number<std::uint64_t>(value.size());
    write(value.data(), value.size());
  }

 private:
  int fd_;
  bool trickling_;
};

class server {
 public:
  server(int listener, store_kind kind, std::atomic<int>& asked) : listener_(listener), kind_(kind), asked_(asked) {}

  [[noreturn]] void run() {
    for (;;) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      if (kind_ == store_kind::silent) continue;  // it stays open
      try {
        serve(client(fd, kind_ == store_kind::trickling));
      } catch (const client::ended&) {
        // The next one, please.
      }
      ::close(fd);
    }
  }

 private:
  void serve(const client& from) {
    if (kind_ == store_kind::greeting) from.write("SSH-2.0-OpenSSH_9.2p1\r\n", 23);
    const auto first = from.number<std::uint8_t>();
    ++asked_;
    if (kind_ == store_kind::old || first != 0 || from.number<std::uint32_t>() != 0x3C85F7CE) throw client::ended{};
    for (;;) answer(from.number<std::uint8_t>(), from);
  }

  void answer(std::uint8_t query, const client& from) {
    if (query == 13) {
      const auto number = from.number<std::uint32_t>();
      from.write_number(kind_ == store_kind::wrong_number ? ~number : number);
    } else if (query == 2) {
      const std::string name = from.text();
      const std::string expected = from.text();
      const std::string desired = from.text();
      const auto found = values_.find(name);
      if (found == values_.end() && expected.empty()) values_[name] = desired;
      if (found != values_.end() && found->second == expected) found->second = desired;
      answer_value(values_.contains(name) ? values_[name] : expected, from);
    } else {
      throw client::ended{};
    }
  }

  void answer_value(const std::string& value, const client& from) {
    const bool starts = std::chrono::steady_clock::now() - start_ < std::chrono::seconds(1);
    const bool cuts = kind_ == store_kind::cut_always || (kind_ == store_kind::cut_once && !cut_) ||
                      (kind_ == store_kind::cut_at_first && starts);
    if (cuts) {
      cut_ = true;
      from.write_number<std::uint64_t>(value.size());
      from.write(value.data(), value.size() / 2);
      throw client::ended{};
    }
    if (kind_ == store_kind::endless_value) {
      from.write_number(std::uint64_t{1} << 40);
      for (;;) from.write(value.data(), value.size());
    }
    from.write_text(kind_ == store_kind::short_value ? value.substr(1) : value);
  }

  int listener_;
  store_kind kind_;
  std::atomic<int>& asked_;
  std::map<std::string, std::string> values_;
  bool cut_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string to_string(store_kind kind) {
  switch (kind) {
    case store_kind::honest: return "honest";
    case store_kind::trickling: return "trickling";
    case store_kind::absent: return "absent";
    case store_kind::late: return "late";
    case store_kind::silent: return "silent";
    case store_kind::old: return "old";
    case store_kind::cut_once: return "cut once";
    case store_kind::cut_at_first: return "cut at first";
    case store_kind::cut_always: return "cut always";
    case store_kind::wrong_number: return "wrong number";
    case store_kind::greeting: return "greeting";
    case store_kind::short_value: return "short value";
    case store_kind::endless_value: return "endless value";
  }
  return "unknown";
}

stand_in_store::stand_in_store(store_kind kind, const std::string& address) {
  listener_ = devcomm::host::detail::bind_for(address, 0, "the store");
  // It serves one connection after another, and waits for each.
  if (::fcntl(listener_.get(), F_SETFL, 0) != 0) throw std::runtime_error("fcntl failed");
  port_ = devcomm::host::detail::bound_port(listener_.get());
  void* const page = ::mmap(nullptr, sizeof *asked_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("mmap failed");
  asked_ = new (page) std::atomic<int>(0);
  if (kind == store_kind::absent) return;
  const auto listen = [this] {
    if (::listen(listener_.get(), 64) != 0) throw std::runtime_error("listen failed");
  };
  if (kind != store_kind::late) listen();
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kind == store_kind::late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      listen();
    }
    server(listener_.get(), kind, *asked_).run();
  }
}

stand_in_store::~stand_in_store() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::munmap(asked_, sizeof *asked_);
}

}  // namespace devcomm_test
