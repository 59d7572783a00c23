/// \file plain_words.hpp
/// The words and descriptors of queues as a thread of the host reaches them.
#pragma once

#include "device/backend.hpp"

namespace devcomm::host::detail {

/// For a proxy with a thread of its own. Host memory that kernels use is reached by ordinary atomic accesses.
class plain_words final : public network_port {};

}  // namespace devcomm::host::detail
