/// \file process_ranks.hpp
/// The ranks of one communicator that live in this process, and what they share.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "health.hpp"
#include "peer_links.hpp"
#include "shared_window.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Names a child of a communicator among all that it ever split off.
struct child_key {
  std::uint64_t split;  ///< which call of `split`
  int root;             ///< the child's rank 0, as a rank of the parent

  friend auto operator<=>(const child_key&, const child_key&) = default;
};

/// One for each communicator and process, found by the communicator's id; lives as long as a local
/// rank holds it.
class process_ranks {
 public:
  /// The object of communicator `id`, made by the first local rank that asks.
  [[nodiscard]] static std::shared_ptr<process_ranks> join(std::uint64_t id);

  explicit process_ranks(std::uint64_t id) : id_(id) {}
  ~process_ranks();
  process_ranks(const process_ranks&) = delete;
  process_ranks& operator=(const process_ranks&) = delete;

  /// `lost` peers of this process are reported to each rank that was added and not removed.
  void add(int rank, std::shared_ptr<health> watched);
  /// Tells other processes that `rank` leaves: in peace (`culprit` -1), or because of `culprit`.
  void remove(int rank, int culprit) noexcept;

  /// Made by the first local rank, before any other uses them: `open`, then, in a later step, use.
  void open_links();
  [[nodiscard]] peer_links& links() noexcept;

  /// Window `number` of the LSA team that starts at world rank `lsa_first`, shared by its local ranks.
  [[nodiscard]] std::shared_ptr<shared_window> window(std::uint64_t number, int lsa_first, int lsa_size);

  /// Hands a bootstrap to another local rank of a child communicator. What a failed split left is
  /// dropped by the next.
  void leave_bootstrap(child_key child, int child_rank, std::shared_ptr<bootstrap> ranks);
  /// Null when nothing was left.
  [[nodiscard]] std::shared_ptr<bootstrap> take_bootstrap(child_key child, int child_rank);

 private:
  void lose(int rank, const std::string& text) noexcept;

  const std::uint64_t id_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<health>> ranks_;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<shared_window>> windows_;
  std::map<std::pair<child_key, int>, std::shared_ptr<bootstrap>> bootstraps_;
  std::unique_ptr<peer_links> links_;  // destroyed first: its thread uses the rest
};

}  // namespace devcomm::host::detail
