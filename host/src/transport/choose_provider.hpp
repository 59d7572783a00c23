/// \file choose_provider.hpp
/// Which of libfabric's providers a communicator's contexts go over.
#pragma once

#include "rank/rank_context.hpp"
#include "transport/libfabric.hpp"

#include <string>

namespace devcomm::host::detail {

/// *Collective*, before the first endpoint of a communicator is opened; it leaves later calls nothing to do. The
/// provider that `DEVCOMM_GIN_PROVIDER` names on every rank. Where none is named: between hosts the first that drives
/// network cards and that every rank can use, else `default_provider`.
void choose_provider(rank_context& context, const std::string& call);

/// What every fabric of this rank is opened for, but whether it reaches the memory of devices.
[[nodiscard]] endpoint_wish wish_of(const rank_context& context);

}  // namespace devcomm::host::detail
