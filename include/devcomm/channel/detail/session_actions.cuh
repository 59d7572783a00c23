/// \file session_actions.cuh
/// What a session does with each of its ends, as reported to the simulator. Named, as NVRTC takes a generic lambda for
/// a host function (CUDA 13.0).
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/observed.hpp>

namespace devcomm::detail {

struct begin_action {
  template <class Id>
  DEVCOMM_DEVICE void operator()(const Id& id) const {
    arch::begin_session(id);
  }
};

struct leave_action {
  template <class Id>
  DEVCOMM_DEVICE void operator()(const Id& id) const {
    arch::leave_session(id);
  }
};

struct call_action {
  session_call call;

  template <class Id>
  DEVCOMM_DEVICE void operator()(const Id& id) const {
    arch::call_session(id, call);
  }
};

}  // namespace devcomm::detail
