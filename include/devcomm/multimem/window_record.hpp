/// \file window_record.hpp
/// What kernels find behind a window of which multimem was asked.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm::multimem {

/// In device memory of each rank, see `window::multicast`. Written once, before the window is handed out.
struct window_record {
  char* address;     ///< multicast address of the window's first byte; null where multimem is in software
  uint64_t members;  ///< ranks that a store to `address` reaches
};

static_assert(sizeof(window_record) == 16, "layout is read by kernels; change device_comm::layout_version with it");

}  // namespace devcomm::multimem
