/// \file whole_world.hpp
/// The requirement of kernels that reach their peers by load and store alone.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm::lsa {

/// Requires that all ranks are one LSA team: `needs.with(lsa::whole_world{})`. A kernel that works among `comm.lsa()`
/// and takes the outcome for the world's is wrong where ranks are on several hosts, or `DEVCOMM_LSA_SIZE` is smaller:
/// each LSA team gets a result of its own. With this, creation of the device communicator fails on all ranks instead,
/// and says how large the LSA team is.
struct whole_world {
  DEVCOMM_HOST_DEVICE constexpr resource_handle add_to(requirements& needs) const {
    needs.require(demand::whole_world);
    return needs.add_items(0, 1, {1}, 0, 0);
  }
};

}  // namespace devcomm::lsa
