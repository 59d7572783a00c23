/// \file report.hpp
/// Rows as a table, as CSV and as lines of JSON.
#pragma once

#include "perf/options.hpp"
#include "perf/row.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace perf {

/// Prints rows as they come; files are written as the options say. For one rank, usually 0.
class report {
 public:
  /// Throws `std::runtime_error` naming a file that cannot be written.
  explicit report(const options& settings);
  report(const report&) = delete;
  report& operator=(const report&) = delete;
  ~report();

  /// `left_out`: what is not measured though it was asked for, a line each.
  void print_header(const std::string& machine, const std::vector<std::string>& left_out = {}) const;
  /// Says what is under way, on a terminal.
  void progress(const std::string& what);
  /// One line for a call both ways; either may be null.
  void add(const row* out_of_place, const row* in_place);

  [[nodiscard]] const std::vector<row>& rows() const { return rows_; }
  [[nodiscard]] bool any_wrong() const;

 private:
  void write(const row& line);
  [[nodiscard]] bool shows_lateness() const { return !settings_.late.empty() || !settings_.jitter.empty(); }

  options settings_;
  std::FILE* csv_ = nullptr;
  std::FILE* json_ = nullptr;
  bool shows_progress_ = false;
  std::vector<row> rows_;
};

}  // namespace perf
