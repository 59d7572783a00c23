/// \file resources.hpp
/// How to ask for multimem on the resource window.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm::multimem {

/// What was asked of multicast for a window.
enum class policy : uint32_t {
  none = 0,     ///< nothing: the window has no multicast address
  required,     ///< creation fails, and says why, where there is no multicast
  or_software,  ///< where there is none, the same calls load from and store to each member
};

/// What was asked of multicast for the resource window.
DEVCOMM_HOST_DEVICE constexpr policy policy_of(const requirements& needs) {
  return static_cast<policy>(needs.required(demand::multicast));
}

/// Makes the resource window one that `multimem::ptr` takes:
/// `needs.with(multimem::resources{multimem::policy::required})`. Barriers, mailboxes and buffers of the device
/// communicator then have a multicast address. Where it is asked for more than once, `required` wins.
struct resources {
  policy asked = policy::or_software;

  DEVCOMM_HOST_DEVICE constexpr resource_handle add_to(requirements& needs) const {
    needs.require(demand::multicast, static_cast<uint32_t>(asked));
    constexpr uint64_t of_multimem = 2;  // distinct from shapes of other sizes in the fingerprint
    return needs.add_items(0, 1, {of_multimem, static_cast<uint64_t>(asked)}, 0, 0);
  }
};

}  // namespace devcomm::multimem
