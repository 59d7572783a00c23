/// \file bootstrap.hpp
/// How ranks find each other: one small interface, and the implementations that the library brings.
#pragma once

#include <devcomm/host/unique_id.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host {

/// What the library needs from outside: rank, size, and an all-gather of small blobs of equal size.
///
/// *Collective*: every rank calls `all_gather` the same number of times, in the same order, with the
/// same size. An implementation throws `timeout_error` naming the missing ranks when the limit
/// passes, `remote_error` when a rank is known to be gone.
class bootstrap {
 public:
  virtual ~bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// `all` receives `size() * mine.size()` bytes, rank 0's first.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                          std::chrono::milliseconds limit) = 0;

  /// This host's address on a connection to other ranks, at which those on other hosts reach it; empty where it is not
  /// known. Communicators made by `split` listen there.
  [[nodiscard]] virtual std::string local_address() const { return {}; }

  /// A secret for a part of these ranks, such as a communicator made by `split`: the same on all ranks that give the
  /// same label, and not to be had from what goes over the wire. None where the ranks share no secret of their own:
  /// then it is sent as data.
  using secret = std::array<std::byte, unique_id::secret_bytes>;
  [[nodiscard]] virtual std::optional<secret> derive_secret(std::span<const std::byte> label) const {
    static_cast<void>(label);
    return {};
  }

  /// Names a group of ranks: ranks that give the same name form one. Not all zero.
  using group_name = std::array<std::byte, 16>;
  /// A group whose parts rank 0 alone gets, if it gives this name too: for what is too much to be sent to all.
  static constexpr group_name for_first_rank{std::byte{1}};
  struct group_parts {
    std::vector<int> ranks;        ///< of this rank's group, ascending; this rank is among them
    std::vector<std::byte> parts;  ///< what each of them gave, in that order
  };
  /// In one step: `notes` receives the `note` of all ranks, as from `all_gather`, and ranks of one group get each
  /// other's `mine`. `note` and `mine` have each one size on all ranks.
  ///
  /// By default one `all_gather`, from which this rank keeps what is for it. An implementation that sends a rank no
  /// more than that lets thousands of ranks start in little time.
  [[nodiscard]] virtual group_parts exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                             const group_name& group, std::span<const std::byte> mine,
                                             std::chrono::milliseconds limit);

  /// Rank `culprit` is lost, and `why`: ends this rank's `all_gather`, and each later one, with `remote_error`, also
  /// while it waits. Called from another thread than `all_gather`. An implementation without it waits for its limit.
  virtual void interrupt(int culprit, const std::string& why) {
    static_cast<void>(culprit);
    static_cast<void>(why);
  }

  /// From here on `lost` is called, on a thread of the bootstrap, when a rank is lost, also while no rank calls
  /// anything: when its process or its host ends, or it calls `leave` with a culprit. Called once at most. An
  /// implementation without it notices losses in calls only.
  using loss_handler = std::function<void(int rank, const std::string& why)>;
  virtual void watch(const loss_handler& lost) { static_cast<void>(lost); }
  /// This rank ended the waits of its kernels, and `why`, which is sent to the others whether they call anything or
  /// not. Called from any thread, also while another one is in a call; it waits for nobody. An implementation without
  /// it tells nobody.
  virtual void abort(const std::string& why) noexcept { static_cast<void>(why); }
  /// From here on, and once `watch` was called, `aborted` is called for each other rank that calls `abort`. It only
  /// takes note: it may not call this object. Each call replaces the handler of the one before: as far as aborts are
  /// concerned, a bootstrap serves one communicator at a time.
  using abort_handler = std::function<void(int rank, const std::string& why)>;
  virtual void watch_aborts(const abort_handler& aborted) { static_cast<void>(aborted); }
  /// This rank's part is over: normally (`culprit` -1), so that its end is no loss, or because `culprit` failed, and
  /// `why`, which is sent to all ranks.
  virtual void leave(int culprit, const std::string& why) noexcept {
    static_cast<void>(culprit);
    static_cast<void>(why);
  }
};

/// Default limit of every blocking step of start-up; `DEVCOMM_BOOTSTRAP_TIMEOUT` (seconds) changes it.
[[nodiscard]] std::chrono::milliseconds default_bootstrap_limit();

/// Ranks that are threads of this process: element `i` belongs to rank `i`.
[[nodiscard]] std::vector<std::shared_ptr<bootstrap>> thread_bootstraps(int size);

/// Ranks that are processes anywhere, over TCP. `id` comes from `unique_id::create` on one rank and
/// reaches the others by the caller's own means. Rank 0 listens at the id's address. A connection
/// that does not prove the id's secret is refused.
[[nodiscard]] std::shared_ptr<bootstrap> tcp_bootstrap(const unique_id& id, int rank, int size,
                                                       std::chrono::milliseconds limit = default_bootstrap_limit());

/// Rank, size and local rank as torchrun, the launchers of MPI or srun (or a plain shell: `DEVCOMM_RANK`,
/// `DEVCOMM_SIZE`, `DEVCOMM_ROOT`) set them in the environment.
struct process_environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string launcher;  ///< "torchrun", "mpirun" (Open MPI), "hydra" (MPICH, Intel MPI), "pals", "srun" or "shell"
  std::string root;      ///< host:port at which rank 0 listens
};

/// Whether a launcher's variables are set. Throws `invalid_argument` naming the variable when they
/// are set to something invalid, or a rank's variable of a launcher that the library does not understand is set.
[[nodiscard]] bool launched_by_environment();
[[nodiscard]] process_environment read_process_environment();

/// TCP bootstrap from `read_process_environment()`. The secret that admits a connection is `DEVCOMM_SECRET` where set,
/// else made of a random key of the launcher's, of this user's on this host, or in torchrun's store. Where there is
/// none, rank 0 warns on stderr that others can guess it. Throws `not_supported` or `timeout_error` where the store
/// fails.
[[nodiscard]] std::shared_ptr<bootstrap> environment_bootstrap(
    std::chrono::milliseconds limit = default_bootstrap_limit());

/// The caller's own all-gather, for example `torch.distributed`'s. Gets this rank's bytes and room
/// for all ranks'; throws to report failure.
using all_gather_function = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;
[[nodiscard]] std::shared_ptr<bootstrap> callback_bootstrap(int rank, int size, all_gather_function gather);

/// TCP bootstrap of ranks that have an all-gather of their own, which is called twice, to share a fresh `unique_id`,
/// and no more: for `torch.distributed`, MPI and their like. Ranks then hear of deaths and aborts on other hosts, and
/// of missing ranks by name, which `callback_bootstrap` cannot tell. Where the ranks are on several hosts, rank 0
/// listens at `DEVCOMM_ADDRESS`, at the address of `DEVCOMM_INTERFACE`, or at that of the only interface that other
/// hosts reach; throws `not_supported` on all ranks where it has several.
[[nodiscard]] std::shared_ptr<bootstrap> tcp_bootstrap(int rank, int size, const all_gather_function& gather,
                                                       std::chrono::milliseconds limit = default_bootstrap_limit());

}  // namespace devcomm::host
