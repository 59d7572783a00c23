/// \file any_group.cuh
/// One type for every kind of group, for code that must not be a template.
#pragma once

#include <devcomm/group.cuh>

namespace devcomm {

/// Holds any of devcomm's groups and acts as that group does, at the price of a branch a call.
class any_group {
 public:
  DEVCOMM_DEVICE any_group(thread) : kind_(kind::thread) {}
  DEVCOMM_DEVICE any_group(block) : kind_(kind::block) {}
  DEVCOMM_DEVICE any_group(const warp_span& span) : kind_(kind::warp_span), span_(span) {}
  DEVCOMM_DEVICE any_group(const lanes& group) : kind_(kind::lanes), lanes_(group) {}
  template <int Size>
  DEVCOMM_DEVICE any_group(tile<Size> group) : kind_(kind::lanes), lanes_(group.mask()) {}

  DEVCOMM_DEVICE uint32_t thread_rank() const { return visit<uint32_t>(rank_action{}); }
  DEVCOMM_DEVICE uint32_t size() const { return visit<uint32_t>(size_action{}); }
  DEVCOMM_DEVICE void sync() const { visit<void>(sync_action{}); }
  DEVCOMM_DEVICE void sync_apart() const { visit<void>(sync_apart_action{}); }
  DEVCOMM_DEVICE bool any(bool predicate) const { return visit<bool>(any_action{predicate}); }
  template <class T>
  DEVCOMM_DEVICE T broadcast(const T& value, uint32_t root) const {
    return visit<T>(broadcast_action<T>{value, root});
  }

 private:
  enum class kind : uint32_t { thread, lanes, warp_span, block };

  // Named, as NVRTC takes a generic lambda for a host function (CUDA 13.0).
  struct rank_action {
    template <class Group>
    DEVCOMM_DEVICE uint32_t operator()(const Group& group) const {
      return group.thread_rank();
    }
  };
  struct size_action {
    template <class Group>
    DEVCOMM_DEVICE uint32_t operator()(const Group& group) const {
      return group.size();
    }
  };
  struct sync_action {
    template <class Group>
    DEVCOMM_DEVICE void operator()(const Group& group) const {
      group.sync();
    }
  };
  struct sync_apart_action {
    template <class Group>
    DEVCOMM_DEVICE void operator()(const Group& group) const {
      detail::sync_at_end(group);
    }
  };
  struct any_action {
    bool predicate;
    template <class Group>
    DEVCOMM_DEVICE bool operator()(const Group& group) const {
      return group.any(predicate);
    }
  };
  template <class T>
  struct broadcast_action {
    const T& value;
    uint32_t root;
    template <class Group>
    DEVCOMM_DEVICE T operator()(const Group& group) const {
      return group.broadcast(value, root);
    }
  };

  template <class Result, class Action>
  DEVCOMM_DEVICE Result visit(Action action) const {
    switch (kind_) {
      case kind::lanes: return action(lanes_);
      case kind::warp_span: return action(span_);
      case kind::block: return action(block());
      case kind::thread: break;
    }
    return action(thread());
  }

  kind kind_;
  union {
    lanes lanes_;
    warp_span span_;
  };
};

}  // namespace devcomm
