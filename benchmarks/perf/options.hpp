/// \file options.hpp
/// The command line of devcomm-perf.
#pragma once

#include <devcomm/host/memory_place.hpp>

#include "perf/data_type.hpp"
#include "perf/lateness.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace perf {

/// Room that devcomm's algorithms make for launches.
inline constexpr unsigned max_blocks = 132;
inline constexpr unsigned max_threads = 512;

/// The command line makes no sense; says which part, and what would.
class usage_error : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct options {
  std::string operation;         ///< or "limits"
  std::uint64_t begin = 1024;    ///< bytes
  std::uint64_t end = 64 << 20;  ///< bytes
  std::uint64_t factor = 2;      ///< from one size to the next
  int ranks = 0;                 ///< 0: one for each GPU
  data_type type = data_type::bf16;
  std::uint64_t hidden = 8192;                                               ///< elements of a row
  std::uint64_t depth = 4096;                                                ///< columns of A
  devcomm::host::memory_place memory = devcomm::host::memory_place::device;  ///< of inputs and outputs
  std::vector<std::string> algorithms = {"auto"};                            ///< "auto", "all", NAME or NAME_PROTOCOL
  std::vector<std::string> compare;                                          ///< "nccl"
  unsigned blocks = 0;                                                       ///< 0: the plan's, or all shapes
  unsigned threads = 0;
  unsigned max_blocks = 0;  ///< 0: any
  bool sweep = false;       ///< try all shapes, report the best
  bool in_place = true;     ///< report both ways
  bool out_of_place = true;
  std::vector<std::uint64_t> late;    ///< microseconds, a row for each; one of the two is empty
  std::vector<std::uint64_t> jitter;  ///< see `lateness`
  bool graph = true;                  ///< else launched one by one
  bool dependent = false;             ///< programmatic dependent launch where possible
  int launches = 0;                   ///< of one measurement; 0: by size
  int replays = 7;                    ///< measurements
  std::string csv;                    ///< files; empty: none
  std::string json;
  std::string plan;  ///< file to write a plan to

  /// What rows are measured with: none where none is asked for.
  [[nodiscard]] std::vector<lateness> latenesses() const;
};

/// Throws `usage_error`.
[[nodiscard]] options parse_options(const std::vector<std::string>& arguments);

/// A name, and in a few words what it stands for.
struct help_line {
  std::string name;
  std::string about;
};
/// What `--help` prints.
[[nodiscard]] std::string help(const std::vector<help_line>& operations);

/// "4K" is 4096; suffixes K, M and G. Throws `usage_error` naming `option`.
[[nodiscard]] std::uint64_t parse_bytes(const std::string& text, const std::string& option);
/// "4K" for 4096.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace perf
