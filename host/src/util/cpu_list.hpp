/// \file cpu_list.hpp
/// Processors of the host, and threads that stay on some of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// Processors as the kernel lists them: "0-3,8". Nothing where the text is no such list.
[[nodiscard]] std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// Those near the PCI device at `place`, see `device_facts::pci`, as the system's files below `root` say. Empty where
/// they say nothing.
[[nodiscard]] std::vector<int> cpus_near(std::uint64_t place, const std::string& root = "/sys");

/// Those of `wanted` on which this thread may run.
[[nodiscard]] std::vector<int> usable_cpus(const std::vector<int>& wanted);

/// How many processors this thread may run on; at least 1.
[[nodiscard]] std::size_t usable_cpu_count();

/// This thread runs on `cpus` alone from here on; anywhere where there are none.
void stay_on(const std::vector<int>& cpus);

}  // namespace devcomm::host::detail
