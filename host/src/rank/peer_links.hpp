/// \file peer_links.hpp
/// Connections between the processes of one host that hold ranks of one communicator.
#pragma once

#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Where a process listens, and the proof it asks for; travels over the bootstrap.
struct link_address {
  std::array<std::uint8_t, 16> name{};   ///< of an abstract Unix socket
  std::array<std::uint8_t, 16> token{};  ///< a connection that does not present it is dropped
};

/// Another process of this host.
struct link_peer {
  link_address address;
  std::vector<int> ranks;  ///< world ranks that it holds, ascending
};

/// A sequenced-packet connection to each other process, and one thread that reads them all.
///
/// They carry descriptors of memory, and tell when a process ends: a link that closes, or a process
/// that exits, before all its ranks said farewell is a loss. Every process must hold its links for as
/// long as its ranks want to be missed.
class peer_links {
 public:
  /// `lost(rank, text)` is called on the reading thread, once for each loss.
  using loss_handler = std::function<void(int rank, const std::string& text)>;

  /// Listens from here on, so that peers can connect as soon as they know `address`.
  explicit peer_links(loss_handler lost);
  ~peer_links();
  peer_links(const peer_links&) = delete;
  peer_links& operator=(const peer_links&) = delete;

  [[nodiscard]] const link_address& address() const noexcept { return address_; }

  /// Connects to every process. `peers` are all processes of this host in the same order everywhere;
  /// `own` is this one's place. Returns when every link stands; throws `timeout_error` naming the
  /// ranks of a process that did not connect.
  void connect(const std::vector<link_peer>& peers, std::size_t own, std::chrono::milliseconds limit);

  /// Sends a descriptor of `rank`'s memory for window `number` to the process that holds `receiver`.
  void send_memory(int receiver, std::uint64_t number, int rank, int descriptor, const deadline& until);
  /// The descriptor that `rank`'s process sent for window `number`; waits for it.
  [[nodiscard]] unique_fd take_memory(std::uint64_t number, int rank, const deadline& until);
  /// Drops what arrived for windows up to `number`.
  void forget_memory(std::uint64_t number);

  /// Tells all peers that `rank` leaves: in peace (`culprit` -1), or because of `culprit`.
  void farewell(int rank, int culprit) noexcept;

 private:
  struct link;
  struct stranger;
  struct message;

  void listen();
  void start();
  void read_all();
  void accept_strangers();
  void admit(stranger& from);
  [[nodiscard]] bool read_link(link& from);
  void close_link(link& gone);
  /// Names the rank because of which those of a closed link left. Called with `mutex_`.
  static void throw_if_driven_away(const link& gone, int rank);
  /// Throws because the other side of a link is gone.
  [[noreturn]] void throw_gone(const link& gone, std::unique_lock<std::mutex>& lock);
  void send(link& to, const message& what, int descriptor, const deadline& until);
  [[nodiscard]] link* link_of(int rank);

  const loss_handler lost_;
  link_address address_;
  unique_fd listener_;
  unique_fd wake_;
  std::vector<stranger> strangers_;  // reading thread only

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<link> links_;  // in the order of `connect`'s peers without this process; never resized later
  std::map<std::pair<std::uint64_t, int>, unique_fd> inbox_;
  bool stopping_ = false;
  std::string refused_because_;  // what kept this process from accepting connections

  std::thread reader_;
};

}  // namespace devcomm::host::detail
