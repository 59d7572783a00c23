/// \file rank_context.hpp
/// State of one rank of a communicator after start-up.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "device/backend.hpp"
#include "diagnostics/abort_state.hpp"
#include "diagnostics/live_objects.hpp"
#include "rank/agreement.hpp"
#include "rank/process_ranks.hpp"
#include "rank/topology.hpp"
#include "rank/window_table.hpp"
#include "util/process_stamp.hpp"
#include "util/unwinding.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

struct rank_context {
  /// *Collective*.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given);
  /// *Collective*, of the child's ranks: a part of `parent`, with its settings.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const rank_context& parent);
  ~rank_context();
  rank_context(const rank_context&) = delete;
  rank_context& operator=(const rank_context&) = delete;

  /// This rank's part is over because of an exception that says `reason`: ends the waits of its kernels, and tells the
  /// other ranks at once. Without it the destructor does, if it runs because of an exception.
  void leave(const std::string& reason) noexcept;

  [[nodiscard]] int rank() const noexcept { return agree.rank(); }
  [[nodiscard]] int size() const noexcept { return agree.size(); }
  [[nodiscard]] bool same_process(int other) const;
  /// Whether all ranks are on this rank's host.
  [[nodiscard]] bool is_one_host() const noexcept { return !watches_; }
  /// For steps in which the members of an LSA team exchange something.
  [[nodiscard]] agreement::group_name name_of_lsa() const;

  backend& devices;
  communicator_options options;  ///< after the environment's overrides
  agreement agree;
  handle_kind wanted = handle_kind::none;
  std::uint64_t identity = 0;  ///< of the communicator, the same on all ranks
  // By rank. Of ranks on other hosts nothing is known: their elements are as made.
  std::vector<rank_info> peers;
  std::vector<device_info> device_infos;
  std::vector<int> local_ranks;  ///< of this process
  int device = -1;
  team lsa{0, 1, 0, 1};
  /// Handle type of memory of this rank's LSA team; `none` when one process holds the team.
  handle_kind handle = handle_kind::none;
  std::size_t granularity = 0;  ///< the largest of all ranks' devices
  host::properties properties;
  std::string provider;  ///< libfabric's, which GIN needs here; empty: all ranks are in this process
  std::shared_ptr<abort_state> aborts;
  std::shared_ptr<process_ranks> process;
  std::shared_ptr<live_objects> objects;  ///< its windows and device communicators
  std::shared_ptr<window_table> window_ids = std::make_shared<window_table>();  ///< its windows, by id
  std::uint64_t windows = 0;                                                    ///< made so far
  std::uint64_t device_comms = 0;                                               ///< made so far
  std::uint64_t children = 0;                                                   ///< splits so far
  process_stamp made_in;

 private:
  unwinding_watch watch_;
  bool watches_ = false;  ///< whether there are ranks on other hosts, which the bootstrap watches
  bool left_ = false;

  /// Tells the other ranks that this one ends: normally (`culprit` -1), or because `culprit` failed, as `text` says.
  /// Only the first call counts.
  void say_farewell(int culprit, const std::string& text) noexcept;

  /// Ranks of different cliques never share an LSA team.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
               const rank_context* parent);
  void start(const std::string& call, const communicator_options& given, const rank_context* parent);
  /// Takes the options; returns the clique.
  [[nodiscard]] int take_options(const communicator_options& given, const rank_context* parent);
  void watch_other_hosts(const std::vector<int>& neighbours);
  void connect_links();
  /// A peer that is gone, or -1.
  [[nodiscard]] int first_lost() const noexcept;
  /// "rank 1 left because rank 0 was lost", or empty.
  [[nodiscard]] std::string text_of_loss() const;
  /// "rank 1".
  [[nodiscard]] std::string name() const;
  void choose_device();
  [[nodiscard]] device_info describe_device();
  /// How this rank reaches each of all ranks.
  [[nodiscard]] std::vector<reach> reachable(std::string& obstacle);
  /// What all ranks have to know of what one of them reaches.
  struct reach_summary {
    size_mask sizes;
    std::uint64_t granularity;
    std::uint32_t neighbours;  ///< ranks on its host
    std::uint32_t untried;
  };
  [[nodiscard]] reach_summary summarize(const std::vector<reach>& row) const;
  /// *Collective*: tries what is `untried` in `row`, this rank's. No host has more than `most` ranks.
  void try_to_reach(const std::string& call, std::vector<reach>& row, std::size_t most, std::string& obstacle);
  [[nodiscard]] handle_kind handle_with(int peer) const;
  void choose_lsa(const std::vector<reach_summary>& summaries, const std::string& obstacle);
  void choose_handle();
  [[nodiscard]] capability whole_lines() const;
  [[nodiscard]] capability multicast_of_team() const;
  [[nodiscard]] capability network_of_world();
  [[nodiscard]] capability ipc_of_team() const;
  [[nodiscard]] capability own_device() const;
};

}  // namespace devcomm::host::detail
