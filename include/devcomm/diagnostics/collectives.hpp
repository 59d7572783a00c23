/// \file collectives.hpp
/// The collectives, as traces, checked launches and plans name them.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

// The one list of collectives, each named as its function in devcomm/collective/.
#define DEVCOMM_COLLECTIVES(X)        \
  X(all_reduce_one_shot)              \
  X(all_reduce_two_shot)              \
  X(all_reduce_one_shot_zero_copy)    \
  X(all_reduce_two_shot_zero_copy)    \
  X(all_reduce_two_shot_chunked)      \
  X(reduce_scatter)                   \
  X(reduce_scatter_zero_copy)         \
  X(all_gather)                       \
  X(all_gather_zero_copy)             \
  X(broadcast)                        \
  X(broadcast_zero_copy)              \
  X(exchange)                         \
  X(exchange_zero_copy)               \
  X(all_to_all)                       \
  X(all_to_all_zero_copy)             \
  X(all_to_all_v)                     \
  X(all_to_all_v_zero_copy)           \
  X(all_reduce_one_shot_multimem)     \
  X(all_reduce_two_shot_multimem)     \
  X(reduce_scatter_multimem)          \
  X(all_gather_multimem)              \
  X(broadcast_multimem)               \
  X(all_to_all_hybrid)                \
  X(all_reduce_hierarchical)          \
  X(all_reduce_hierarchical_ring)     \
  X(all_reduce_ring)                  \
  X(all_reduce_tree)                  \
  X(all_reduce_hierarchical_one_shot) \
  X(all_to_all_one_shot)              \
  X(reduce_scatter_chunked)

/// Which collective is called. A new one is added to the list above; its span, its contract and its name come with it.
enum class collective_call : uint8_t {
  none = 0,
#define DEVCOMM_X(function) function,
  DEVCOMM_COLLECTIVES(DEVCOMM_X)
#undef DEVCOMM_X
};

/// Name of the function.
DEVCOMM_HOST_DEVICE constexpr const char* to_string(collective_call call) {
  switch (call) {
    case collective_call::none: return "no collective";
#define DEVCOMM_X(function) \
  case collective_call::function: return #function;
      DEVCOMM_COLLECTIVES(DEVCOMM_X)
#undef DEVCOMM_X
  }
  return "unknown collective";
}

#undef DEVCOMM_COLLECTIVES

}  // namespace devcomm
