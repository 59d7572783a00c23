/// \file plot.hpp
/// Rows as a picture.
#pragma once

#include "perf/row.hpp"

#include <string>
#include <vector>

namespace perf {

/// Writes an SVG with the latency and the bus bandwidth over the size, a line for each implementation and algorithm; of
/// several rows of one, the fastest. Throws `std::runtime_error` when the file cannot be written.
void write_plot(const std::string& path, const std::vector<row>& rows);

}  // namespace perf
