/// \file rank_context.hpp
/// What a rank of a communicator knows after start-up.
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
  communicator_options options;  ///< with the environment's say applied
  agreement agree;
  handle_kind wanted = handle_kind::none;
  std::vector<introduction> peers;
  std::vector<device_card> cards;
  std::vector<int> local_ranks;  ///< of this process
  int device = -1;
  team lsa{0, 1, 0, 1};
  /// How memory of this rank's LSA team travels; `none` when one process holds the team.
  handle_kind handle = handle_kind::none;
  std::size_t granularity = 0;  ///< the largest of all ranks' devices
  host::properties properties;
  std::shared_ptr<health> watched;
  std::shared_ptr<process_ranks> process;
  std::shared_ptr<ledger> made;    ///< what is there of its windows and device communicators
  std::uint64_t windows = 0;       ///< made so far
  std::uint64_t device_comms = 0;  ///< made so far
  std::uint64_t children = 0;      ///< splits so far

 private:
  /// Ranks of different islands never share an LSA team.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
               const rank_context* parent);
  [[nodiscard]] introduction introduce_self(const communicator_options& given, const rank_context* parent);
  void choose_device();
  [[nodiscard]] device_card describe_device();
  [[nodiscard]] std::vector<reach> reachable(std::string& obstacle);
  void choose_lsa(const std::vector<reach>& reaches, const std::string& obstacle);
  void choose_handle();
  [[nodiscard]] capability whole_lines() const;
};

}  // namespace devcomm::host::detail
