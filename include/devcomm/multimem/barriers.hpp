/// \file barriers.hpp
/// Barriers that ranks arrive at by one multicast instruction: how to ask for them, and how their words are laid out.
/// `multimem::barrier_session` uses them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/multimem/resources.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::multimem {

/// Independent barriers of the LSA team. Plain data; pass it to the kernel.
struct barrier_handle : resource_handle {};

/// Where the parts of `count` barriers of `members` ranks are, in bytes from the handle's offset: first the counters of
/// arrivals, two of each, and the flags that replace them in software, then what only this rank uses, and the launch
/// contracts of checked launches.
struct barrier_layout {
  uint32_t count;
  uint32_t members;

  /// The arrivals of barrier `index` in even or odd epochs.
  DEVCOMM_HOST_DEVICE constexpr uint64_t arrivals(uint32_t index, uint64_t epoch) const {
    return (uint64_t{index} * 2 + epoch % 2) * sizeof(uint32_t);
  }
  /// The flag of barrier `index` that member `writer` stores to in software.
  DEVCOMM_HOST_DEVICE constexpr uint64_t flag(uint32_t index, uint32_t writer) const {
    return detail::round_up_to_line(arrivals(count, 0)) + (uint64_t{index} * members + writer) * sizeof(uint32_t);
  }
  /// This rank's epoch of barrier `index`: twice the epoch, plus one where it has arrived at the next.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const {
    return detail::round_up_to_line(flag(count, 0)) + uint64_t{index} * 2 * sizeof(uint64_t);
  }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return epoch(index) + sizeof(uint64_t); }
  /// The contract of barrier `index` that member `writer` stores to for an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t writer, uint64_t epoch_of) const {
    return contracts() + ((uint64_t{index} * 2 + epoch_of % 2) * members + writer) * sizeof(launch_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return detail::round_up_to_line(contracts() + uint64_t{2} * count * members * sizeof(launch_contract));
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t contracts() const { return detail::round_up_to_line(epoch(count)); }
};

/// Asks for `count` barriers of the LSA team, and for multimem on the resource window:
/// `needs.add(multimem::barriers{blocks, multimem::policy::required})`.
struct barriers {
  uint32_t count;
  policy asked = policy::or_software;

  DEVCOMM_HOST_DEVICE constexpr barrier_handle add_to(requirements& needs) const {
    needs.with(resources{asked});
    const auto size = static_cast<uint32_t>(needs.lsa().size);
    return {needs.add_items(barrier_layout{count, size}.bytes(), 128,
                            {size, count, static_cast<uint64_t>(operation::multimem_barrier)}, count, size)};
  }
};

}  // namespace devcomm::multimem
