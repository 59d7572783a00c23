/// \file chakra.hpp
/// Schedules as Chakra execution traces (mlcommons/chakra, schema/protobuf/et_def.proto), which ASTRA-sim reads as the
/// implementation of a collective.
#pragma once

#include "model/schedule.hpp"

#include <string>
#include <vector>

namespace model {

/// The file of one rank: messages of protocol buffers, each behind its length as a varint: first `GlobalMetadata`, then
/// a `Node` for each operation, with ids from 1 on. Sums take as long as `memory` (bytes a microsecond) needs to read
/// two numbers and write one, in whole microseconds, as the format has it.
[[nodiscard]] std::string chakra_trace(const std::vector<operation>& schedule, int rank, double memory,
                                       const std::string& description);

}  // namespace model
