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
  /// Ranks of different cliques never share an LSA team.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
               const rank_context* parent);
  [[nodiscard]] rank_info describe_rank(const communicator_options& given, const rank_context* parent);
  void choose_device();
  [[nodiscard]] device_info describe_device();
  [[nodiscard]] std::vector<reach> reachable(std::string& obstacle);
  void choose_lsa(const std::vector<reach>& reaches, const std::string& obstacle);
  void choose_handle();
  [[nodiscard]] capability whole_lines() const;
};

}  // namespace devcomm::host::detail
