/// \file peer_links.hpp
/// Connections between those processes of one host that hold ranks of one communicator.
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
#include <tuple>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Where a process listens, and the token that a connection must present. Exchanged over the bootstrap.
struct link_address {
  std::array<std::uint8_t, 16> name{};   ///< of an abstract Unix socket
  std::array<std::uint8_t, 16> token{};  ///< a connection that does not present it is dropped
};

/// What a descriptor opens: its sender's memory of a window, the multicast object of the LSA team for it, or memory
/// with which the start-up tries whether devices reach each other.
enum class window_piece : std::uint32_t { memory, multicast, trial };

/// Another process of this host.
struct link_peer {
  link_address address;
  std::vector<int> ranks;  ///< world ranks that it holds, ascending
};

/// A sequenced-packet connection to each other process, and one thread that reads them all.
///
/// They carry file descriptors of memory, and detect the end of a process: a link that closes, or a process that exits,
/// before all of its ranks have sent `leave` is a loss. A process keeps its links while its ranks use the communicator.
class peer_links {
 public:
  /// `lost(rank, text)` is called on the reading thread, once for each loss.
  using loss_handler = std::function<void(int rank, const std::string& text)>;
  /// `abandoned(rank, number, text)` is called there when a peer called `abandon`.
  using abandon_handler = std::function<void(int rank, std::uint64_t number, const std::string& text)>;

  /// `aborted(rank, text)` is called there when a peer called `abort`.
  using abort_handler = loss_handler;
  /// `departed(rank, number)` is called there when a peer called `depart`.
  using departure_handler = std::function<void(int rank, std::uint64_t number)>;

  /// Listens from here on, so that peers can connect as soon as they know `address`.
  explicit peer_links(loss_handler lost, abandon_handler abandoned = {}, abort_handler aborted = {},
                      departure_handler departed = {});
  ~peer_links();
  peer_links(const peer_links&) = delete;
  peer_links& operator=(const peer_links&) = delete;

  [[nodiscard]] const link_address& address() const noexcept { return address_; }

  /// Connects to every process. `peers` are all processes of this host, in the same order in each; `own` is the index
  /// of this one. Returns when all links are connected; throws `timeout_error` naming the ranks of a process that did
  /// not connect.
  void connect(const std::vector<link_peer>& peers, std::size_t own, std::chrono::milliseconds limit);

  /// Sends a descriptor of `rank`'s memory for window `number` to the process that holds `receiver`.
  void send_memory(int receiver, std::uint64_t number, int rank, int descriptor, const deadline& until,
                   window_piece piece = window_piece::memory);
  /// The descriptor that `rank`'s process sent for window `number`; waits for it.
  [[nodiscard]] unique_fd take_memory(std::uint64_t number, int rank, const deadline& until,
                                      window_piece piece = window_piece::memory);
  /// Drops what arrived for windows up to `number`, and what arrives for them later.
  void forget_memory(std::uint64_t number);

  /// Notifies all peers that `rank` leaves: normally (`culprit` -1), or because `culprit` failed, as `text` says.
  void leave(int rank, int culprit, const std::string& text = {}) noexcept;
  /// Notifies all peers that `rank` abandoned device communicator `number`, as `text` says.
  void abandon(int rank, std::uint64_t number, const std::string& text) noexcept;
  /// Notifies all peers that `rank` has destroyed device communicator `number`.
  void depart(int rank, std::uint64_t number) noexcept;
  /// Notifies all peers that `rank` aborted, as `text` says.
  void abort(int rank, const std::string& text) noexcept;

 private:
  struct link;
  struct pending_connection;
  struct message;

  void listen();
  /// Connects to a process that listens.
  static void open_link(link& made, const link_peer& to, std::size_t own, std::chrono::milliseconds limit);
  /// Returns when all processes have connected.
  void wait_for_links(const std::vector<link_peer>& peers, const deadline& until);
  void start();
  void read_all();
  void accept_connection();
  /// `errno` says why a connection could not be taken.
  void refuse_connection();
  void read_hello(int descriptor);
  /// Adds it to the poller; false if that fails.
  [[nodiscard]] bool watch(const unique_fd& what, std::uint64_t tag) const;
  [[nodiscard]] bool watch(const link& l) const;
  void unwatch(const unique_fd& what) const;
  void drop(pending_connection& gone) const;
  [[nodiscard]] bool read_link(link& from);
  void close_link(link& gone);
  /// Throws when the ranks of a closed link left because another rank was lost, and names that one. Called with
  /// `mutex_`.
  static void throw_if_left_for_a_loss(const link& gone, int rank);
  /// Throws the error for a link whose other side is gone.
  [[noreturn]] void throw_gone(const link& gone, std::unique_lock<std::mutex>& lock);
  void send(link& to, const message& what, int descriptor, const deadline& until);
  void send_to_all(const message& what) noexcept;
  [[nodiscard]] link* link_of(int rank);

  const loss_handler lost_;
  const abandon_handler abandoned_;
  const abort_handler aborted_;
  const departure_handler departed_;
  link_address address_;
  unique_fd listener_;
  unique_fd wake_;
  unique_fd poller_;
  std::vector<pending_connection> pending_;  // reading thread only

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<link> links_;  // in the order of `connect`'s peers without this process; never resized later
  // No descriptor: this process could not open it.
  std::map<std::tuple<std::uint64_t, int, window_piece>, unique_fd> inbox_;
  std::uint64_t first_kept_ = 0;  // memory of earlier windows is dropped
  bool stopping_ = false;
  std::string refused_because_;  // why this process could not accept connections

  std::thread reader_;
};

}  // namespace devcomm::host::detail
