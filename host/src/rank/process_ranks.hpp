/// \file process_ranks.hpp
/// The ranks of one communicator that live in this process, and what they share.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "diagnostics/abort_state.hpp"
#include "rank/peer_links.hpp"

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Identifies a child communicator among all children of its parent.
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

  /// Lost peers are reported to each rank that was added and not removed.
  void add(int rank, std::shared_ptr<abort_state> aborts);
  /// `rank` leaves: normally (`culprit` -1), or because `culprit` failed, as `text` says, of which all other ranks of
  /// this host are notified. Only the first call for a rank counts.
  void remove(int rank, int culprit, const std::string& text) noexcept;
  /// Notifies all other ranks of this host that `rank` abandoned device communicator `number`, as `text` says.
  void abandon(int rank, std::uint64_t number, const std::string& text) noexcept;

  /// Notifies all other ranks of this host that `rank` has destroyed device communicator `number` in order.
  void depart(int rank, std::uint64_t number) noexcept;

  /// Notifies all other ranks of this host that `rank` aborted, as `text` says.
  void spread_abort(int rank, const std::string& text) noexcept;

  /// Called by the first local rank, in a collective step before the others use `links`.
  void open_links();
  [[nodiscard]] peer_links& links() noexcept;

  /// What the local ranks of the LSA team that starts at world rank `lsa_first` share of window `number`, always an
  /// `Object`: the first one to ask makes it from `arguments`.
  template <class Object, class... Arguments>
  [[nodiscard]] std::shared_ptr<Object> share(std::uint64_t number, int lsa_first, const Arguments&... arguments) {
    return std::static_pointer_cast<Object>(
        share_any(number, lsa_first, [&] { return std::make_shared<Object>(arguments...); }));
  }

  /// Keeps the bootstrap of local rank `child_rank` of a child until `take_bootstrap`. The next split drops what a
  /// failed one left.
  void store_bootstrap(child_key child, int child_rank, std::shared_ptr<bootstrap> ranks);
  /// Null when there is none.
  [[nodiscard]] std::shared_ptr<bootstrap> take_bootstrap(child_key child, int child_rank);

 private:
  [[nodiscard]] std::shared_ptr<void> share_any(std::uint64_t number, int lsa_first,
                                                const std::function<std::shared_ptr<void>()>& make);
  void lose(int rank, const std::string& text) noexcept;
  void lose_device_communicator(std::uint64_t number, int rank, const std::string& text) noexcept;
  void abort_by(int rank, const std::string& text) noexcept;
  void note_departure(std::uint64_t number, int rank) noexcept;

  const std::uint64_t id_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<abort_state>> ranks_;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<void>> shared_;  // by window and LSA team
  std::map<std::pair<child_key, int>, std::shared_ptr<bootstrap>> bootstraps_;
  std::unique_ptr<peer_links> links_;  // destroyed first: its thread uses the rest
};

}  // namespace devcomm::host::detail
