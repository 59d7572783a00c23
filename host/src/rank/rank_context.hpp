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

  backend& devices;
  communicator_options options;  ///< after the environment's overrides
  agreement agree;
  handle_kind wanted = handle_kind::none;
  std::vector<rank_info> peers;
  std::vector<device_info> device_infos;
  std::vector<int> local_ranks;  ///< of this process
  int device = -1;
  team lsa{0, 1, 0, 1};
  /// Handle type of memory of this rank's LSA team; `none` when one process holds the team.
  handle_kind handle = handle_kind::none;
  std::size_t granularity = 0;  ///< the largest of all ranks' devices
  host::properties properties;
  std::shared_ptr<abort_state> aborts;
  std::shared_ptr<process_ranks> process;
  std::shared_ptr<live_objects> objects;  ///< its windows and device communicators
  std::uint64_t windows = 0;              ///< made so far
  std::uint64_t device_comms = 0;         ///< made so far
  std::uint64_t children = 0;             ///< splits so far

 private:
  unwinding_watch watch_;

  /// Ranks of different cliques never share an LSA team.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
               const rank_context* parent);
  void start(const std::string& call, const communicator_options& given, const rank_context* parent);
  [[nodiscard]] rank_info describe_rank(const communicator_options& given, const rank_context* parent);
  /// A peer that is gone, or -1.
  [[nodiscard]] int first_lost() const noexcept;
  /// "rank 1 left because rank 0 was lost", or empty.
  [[nodiscard]] std::string text_of_loss() const;
  /// "rank 1".
  [[nodiscard]] std::string name() const;
  void choose_device();
  [[nodiscard]] device_info describe_device();
  [[nodiscard]] std::vector<reach> reachable(std::string& obstacle);
  /// *Collective*: tries what is `untried` in `reaches`, which has a row for each rank.
  void try_to_reach(const std::string& call, std::vector<reach>& reaches, std::string& obstacle);
  [[nodiscard]] handle_kind handle_with(int peer) const;
  void choose_lsa(const std::vector<reach>& reaches, const std::string& obstacle);
  void choose_handle();
  [[nodiscard]] capability whole_lines() const;
  [[nodiscard]] capability multicast_of_team() const;
};

}  // namespace devcomm::host::detail
