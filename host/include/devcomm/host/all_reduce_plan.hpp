/// \file all_reduce_plan.hpp
/// Chooses algorithm and launch shape of an all-reduce from a table of measured times.
#pragma once

#include <devcomm/collective/all_reduce/algorithm.hpp>
#include <devcomm/operation.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host {

using collective::all_reduce_algorithm;
using collective::to_string;

/// What is under it: `lsa::ll_session`, `lsa::lamport_session`, `lsa::ll128_session`, or barriers; of rings and trees
/// the protocol of their FIFOs.
enum class all_reduce_protocol {
#define DEVCOMM_X(protocol, name) protocol,
  DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
      simple
};

[[nodiscard]] const char* to_string(all_reduce_protocol protocol);

/// Whether rows of a table may have this algorithm: one that all ranks get the same bits by.
[[nodiscard]] bool is_planned_all_reduce(const std::string& algorithm);

/// What is to be reduced. All ranks get the same bits, and without `multimem` the same in every run.
struct all_reduce_request {
  std::uint64_t bytes = 0;  ///< of each rank's vector
  int ranks = 1;            ///< GPUs of one LSA team
  unsigned max_blocks = 0;  ///< that a launch may take, to leave the rest to compute; 0: any number
  bool lamport = true;      ///< whether the elements are of a type with `lsa::is_lamport_type`
  bool in_windows = false;  ///< whether inputs and outputs lie in symmetric windows
  bool chunks = false;      ///< whether the kernel has `collective::chunk_buffers`
  bool ll128 = false;       ///< whether there may be LL128 mailboxes and FIFOs: `properties().ll128`
  /// With `in_windows`: whether these windows have a multicast address, `symmetric_memory::multimem()`, and sums of
  /// floating point may differ from run to run. Software multimem does not count: it is a two-shot between windows.
  bool multimem = false;
  bool fifos = false;  ///< whether the kernel has FIFO channels, for rings and trees
};

struct all_reduce_plan {
  all_reduce_algorithm algorithm = all_reduce_algorithm::one_shot;
  all_reduce_protocol protocol = all_reduce_protocol::ll;
  unsigned blocks = 1;
  unsigned threads = 128;
  double microseconds = 0;  ///< expected
  std::string why;          ///< the measurement that it is based on, as a sentence
};

/// One measured time. See host/plans for the table that the library brings.
struct all_reduce_time {
  int ranks;
  std::uint64_t bytes;
  all_reduce_algorithm algorithm;
  all_reduce_protocol protocol;
  unsigned blocks;
  unsigned threads;
  double microseconds;
};

/// The row as a line of a table.
[[nodiscard]] std::string to_string(const all_reduce_time& row);

/// A table of times. As text: a line for each, `ranks bytes algorithm protocol blocks threads microseconds`, with
/// blanks between, `#` before remarks. `devcomm-perf all_reduce --sweep --plan FILE` makes one on the user's machine.
class all_reduce_times {
 public:
  /// `name` is for messages. Throws `invalid_argument` with the line that cannot be read.
  [[nodiscard]] static all_reduce_times parse(const std::string& text, const std::string& name);
  /// Throws `system_error` when the file cannot be read.
  [[nodiscard]] static all_reduce_times read(const std::string& path);
  /// The file that `DEVCOMM_ALL_REDUCE_PLAN` names; without that, the library's own, measured on H200s.
  [[nodiscard]] static all_reduce_times usual();

  [[nodiscard]] const std::vector<all_reduce_time>& rows() const& noexcept { return rows_; }
  [[nodiscard]] std::vector<all_reduce_time> rows() && noexcept { return std::move(rows_); }

  /// The fastest of what was measured for that number of ranks and the next larger size. Where there is neither, it is
  /// estimated from the nearest row: by the ratio of the ranks, times the ratio of the bytes.
  /// Throws `invalid_argument` when the request makes no sense or no row can serve it.
  [[nodiscard]] all_reduce_plan choose(const all_reduce_request& request) const;

  /// Without the rows that `choose` would take for no request of up to 64 ranks: those for which another row is as
  /// fast, takes no more blocks, and needs no more of the request.
  [[nodiscard]] all_reduce_times pruned() const;

 private:
  std::vector<all_reduce_time> rows_;
  std::string name_;
};

/// `all_reduce_times::usual().choose(request)`, with the table read once. Ranks must follow one plan: give all the same
/// request, and the same table.
[[nodiscard]] all_reduce_plan plan_all_reduce(const all_reduce_request& request);

}  // namespace devcomm::host
