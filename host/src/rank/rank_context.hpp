/// \file rank_context.hpp
/// State of one rank of a communicator after start-up.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "device/backend.hpp"
#include "diagnostics/abort_state.hpp"
#include "diagnostics/live_objects.hpp"
#include "rank/agreement.hpp"
#include "rank/network_state.hpp"
#include "rank/process_ranks.hpp"
#include "rank/topology.hpp"
#include "rank/window_table.hpp"
#include "util/process_stamp.hpp"
#include "util/unique_fd.hpp"
#include "util/unwinding.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

  /// This rank's part is over because of an exception that says `reason`: ends the waits of its kernels, and notifies
  /// the other ranks at once. Without it the destructor does, if it runs because of an exception.
  void leave(const std::string& reason) noexcept;

  /// Ends the waits of the kernels of all ranks, this one's first. From any thread.
  void abort() noexcept;

  [[nodiscard]] int rank() const noexcept { return agree.rank(); }
  [[nodiscard]] int size() const noexcept { return agree.size(); }
  [[nodiscard]] bool same_process(int other) const;
  /// The first ranks of the other processes that hold some of `ranks`, or members of the LSA team.
  [[nodiscard]] std::vector<int> other_processes(const std::vector<int>& ranks) const;
  [[nodiscard]] std::vector<int> other_processes() const { return other_processes(lsa_ranks); }
  /// Whether all ranks are on this rank's host.
  [[nodiscard]] bool is_one_host() const noexcept { return !watches_; }
  /// For steps in which the members of an LSA team exchange something.
  [[nodiscard]] agreement::group_name name_of_lsa() const;

  backend& devices;
  communicator_options options;  ///< after the environment's overrides
  agreement agree;
  handle_kind wanted = handle_kind::none;
  std::uint64_t identity = 0;  ///< of the communicator, the same on all ranks
  /// The ranks whose memory this one may reach: those of its host, or of its NVLink domain where that spans hosts.
  struct {
    agreement::group_name name{};
    std::vector<int> ranks;  ///< ascending
  } domain;
  // By rank. Of ranks outside the domain nothing is known: their elements are as made.
  std::vector<rank_info> peers;
  std::vector<device_info> device_infos;
  std::vector<int> local_ranks;  ///< of this process
  int device = -1;
  team lsa{0, 1, 0, 1};
  std::vector<int> lsa_ranks;                ///< world ranks of its members, ascending
  std::vector<int> lsa_ring;                 ///< its members in the order of `ring_over`
  std::shared_ptr<opened_memory> lsa_table;  ///< the same on the device; null where they are consecutive
  placement placed = placement::block;       ///< of all LSA teams, where there are rails
  /// Handle type of memory of this rank's LSA team; `none` when one process holds the team.
  handle_kind handle = handle_kind::none;
  std::size_t granularity = 0;  ///< the largest of all ranks' devices
  host::properties properties;
  capability nvlink;  ///< of this rank's device to all others of the LSA team
  std::shared_ptr<abort_state> aborts;
  std::shared_ptr<process_ranks> process;
  std::shared_ptr<live_objects> objects;  ///< its windows and device communicators
  std::shared_ptr<window_table> window_ids = std::make_shared<window_table>();  ///< its windows, by id
  network_state network;
  communicator_number number;
  std::uint64_t windows = 0;       ///< made so far
  std::uint64_t device_comms = 0;  ///< made so far
  std::uint64_t children = 0;      ///< splits so far
  std::uint64_t requirements = 0;  ///< handed out so far
  process_stamp made_in;

  /// Of the window that was made as the `count`th. Throws alike on all ranks where there are too many.
  [[nodiscard]] std::uint32_t window_id(std::uint64_t count) const {
    if (count >= window_ids_of_communicator) {
      throw not_supported("a communicator has at most " + std::to_string(window_ids_of_communicator - 1) +
                          " windows and places for captured buffers in its life; make another communicator");
    }
    return number.get() * window_ids_of_communicator + static_cast<std::uint32_t>(count);
  }

 private:
  unwinding_watch watch_;
  bool watches_ = false;  ///< whether there are ranks on other hosts, which the bootstrap watches
  bool left_ = false;

  /// Notifies the other ranks that this one ends: normally (`culprit` -1), or because `culprit` failed, as `text` says.
  /// Only the first call counts.
  void send_shutdown_notice(int culprit, const std::string& text) noexcept;

  /// Ranks of different cliques never share an LSA team.
  rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
               const rank_context* parent);
  void start(const std::string& call, const communicator_options& given, const rank_context* parent);
  /// *Collective*: finds out whom this rank reaches, and chooses its LSA team. `neighbors`: the ranks of its host.
  void form_team(const std::string& call, const std::vector<int>& neighbors);
  /// Takes the options; returns the clique.
  [[nodiscard]] int take_options(const communicator_options& given, const rank_context* parent);
  /// *Collective*: has `first` where that `is_chosen`, and else the next number that is free in all processes.
  void choose_number(const std::string& call, std::uint32_t first, bool is_chosen);
  void watch_other_hosts(const std::vector<int>& neighbors);
  void connect_links();
  /// A peer that is gone, or -1.
  [[nodiscard]] int first_lost() const noexcept;
  /// Why that one is gone, as it was reported here, so that all ranks report the same; empty where none is.
  [[nodiscard]] std::string text_of_loss() const;
  /// "rank 1".
  [[nodiscard]] std::string name() const;
  void choose_device();
  [[nodiscard]] device_info describe_device();
  /// Where its fabric handles, described by `fabric`, may reach devices of other hosts; the reason names the domain.
  [[nodiscard]] capability nvlink_domain_of_device(const capability& fabric) const;
  /// How this rank reaches each of all ranks.
  [[nodiscard]] std::vector<reach> reachable(std::string& obstacle);
  /// What one rank reaches, as all ranks need it.
  struct reach_summary {
    std::uint64_t granularity;
    std::uint32_t neighbors;  ///< ranks of its domain; the next two count among them
    std::uint32_t untried;
    std::uint32_t unreachable;
    std::uint32_t unused;
  };
  [[nodiscard]] reach_summary summarize(const std::vector<reach>& row) const;
  /// *Collective*: learns of the ranks of its NVLink domain that are on other hosts.
  void join_domain(const std::string& call);
  /// *Collective*: the ranks of the domain that try to reach this one's device.
  [[nodiscard]] std::vector<int> gather_triers(const std::string& call, const std::vector<reach>& row,
                                               std::size_t most);
  /// *Collective*: tries what is `untried` in `row`, this rank's. No domain has more than `most` ranks.
  void try_to_reach(const std::string& call, std::vector<reach>& row, std::size_t most, std::string& obstacle);
  /// Maps a peer's memory, by the descriptor where there is one, and else by the bytes of its handle; says why it
  /// cannot, or nothing.
  [[nodiscard]] std::string try_memory(handle_kind kind, const unique_fd& descriptor,
                                       std::span<const std::byte> exported, std::size_t bytes);
  /// Bits of the kinds of handles that a rank of the domain and this one can exchange.
  [[nodiscard]] std::uint32_t handles_offered(int peer) const;
  [[nodiscard]] handle_kind handle_with(int peer) const;
  [[nodiscard]] bool share_device(int a, int b) const;
  /// Every rank of the domain reaches every other.
  [[nodiscard]] reach_matrix whole_domain() const;
  /// *Collective*: who of the domain reaches whom, where `row` is this rank's.
  [[nodiscard]] reach_matrix gather_rows(const std::string& call, const std::vector<reach>& row, std::size_t most);
  /// *Collective*.
  void choose_lsa(const std::string& call, const reach_matrix& reached, const std::string& obstacle);
  void choose_handle();
  [[nodiscard]] capability nvlink_of_team() const;
  [[nodiscard]] capability ll128_capability() const;
  [[nodiscard]] capability multicast_of_team() const;
  [[nodiscard]] capability network_of_world();
  [[nodiscard]] capability pinned_of_team() const;
  [[nodiscard]] capability ipc_of_team() const;
  [[nodiscard]] capability own_device() const;
  /// Why a wait may have timed out on this host, other than for a mistake; empty for nothing.
  [[nodiscard]] std::string cause_of_timeouts() const;
};

}  // namespace devcomm::host::detail
