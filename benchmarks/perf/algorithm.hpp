/// \file algorithm.hpp
/// What is measured: operations, and the ways to do them.
#pragma once

#include "perf/data_type.hpp"

#include <devcomm/host/communicator.hpp>

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace perf {

/// Grid and block of a launch; zeros where the implementation chooses for itself.
struct launch_shape {
  unsigned blocks = 0;
  unsigned threads = 0;
};

/// One call of an operation on one rank.
struct work {
  int rank = 0;
  int ranks = 1;
  std::uint64_t bytes = 0;  ///< per rank, as the operation counts them
  data_type type = data_type::bf16;
  std::uint64_t hidden = 0;  ///< elements of a row, for operations on rows
  std::uint64_t depth = 0;   ///< columns of A, for matrix products
  bool in_place = false;
  void* input = nullptr;
  void* output = nullptr;
  launch_shape shape;
  bool dependent = false;  ///< by programmatic dependent launch
  cudaStream_t stream = nullptr;

  [[nodiscard]] std::uint64_t count() const { return bytes / bytes_of(type); }
  /// Elements of a rank's shard, for operations that share the vector out.
  [[nodiscard]] std::uint64_t shard() const { return count() / static_cast<std::uint64_t>(ranks); }
  /// This rank's shard of the vector at `whole`.
  [[nodiscard]] void* shard_of(void* whole) const {
    return static_cast<std::byte*>(whole) + static_cast<std::uint64_t>(rank) * shard() * bytes_of(type);
  }
};

/// What a rank has for its algorithms: inputs lie in the first half of the window, outputs in the second.
struct rank_context {
  devcomm::host::communicator* comm = nullptr;
  const devcomm::host::symmetric_memory* window = nullptr;
  std::uint64_t max_bytes = 0;  ///< of one call's inputs, and of its outputs
};

/// One way to do an operation; each rank has its own. *Collective*: making and destroying it, and `memory`.
class algorithm {
 public:
  algorithm() = default;
  algorithm(const algorithm&) = delete;
  algorithm& operator=(const algorithm&) = delete;
  virtual ~algorithm() = default;

  [[nodiscard]] virtual std::string implementation() const { return "devcomm"; }
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string protocol() const = 0;
  /// As users and reports name it.
  [[nodiscard]] std::string whole_name() const { return name() + "_" + protocol(); }
  /// Why it cannot do this, or nothing.
  [[nodiscard]] virtual std::string why_not(const work& what) const = 0;
  /// Whether a call may find its input where its output goes.
  [[nodiscard]] virtual bool can_be_in_place() const { return true; }
  /// Whether it can take part in programmatic dependent launch.
  [[nodiscard]] virtual bool can_be_dependent() const { return false; }
  /// The planned shape, or one of fewer blocks where there are not as many barriers.
  [[nodiscard]] virtual launch_shape fitted(const work& what) const { return what.shape; }
  /// Shapes worth trying; one of zeros where the implementation chooses for itself.
  [[nodiscard]] virtual std::vector<launch_shape> shapes(const work& what) const = 0;
  /// Memory of this rank that calls must lie in, of twice `rank_context::max_bytes`; null where any will do.
  [[nodiscard]] virtual std::byte* memory() { return nullptr; }
  /// What of the operation one call does so many times, one after the other; times are of one.
  [[nodiscard]] virtual int times_in_call(const work&) const { return 1; }
  /// Puts the call on its stream.
  virtual void start(const work& what) = 0;
  /// Throws what went wrong in the kernels.
  virtual void check() {}
};

using algorithms = std::vector<std::unique_ptr<algorithm>>;

/// What `auto` runs, and why.
struct choice {
  std::string algorithm;
  std::string protocol;
  launch_shape shape;
  std::string why;
};

/// What ranks do together, with inputs and results that can be checked.
class operation {
 public:
  virtual ~operation() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// What it does, and of what a call's bytes are, in a few words.
  [[nodiscard]] virtual std::string about() const = 0;
  /// Bus bandwidth over algorithm bandwidth, as nccl-tests define them.
  [[nodiscard]] virtual double bus_factor(int ranks) const = 0;
  /// Bytes that a call's must be a multiple of.
  [[nodiscard]] virtual std::uint64_t granularity(const work& what) const { return bytes_of(what.type); }
  /// Bytes that all inputs of a call take together, or all outputs, whichever is more.
  [[nodiscard]] virtual std::uint64_t region(const work& what) const { return what.bytes; }
  /// Whether a call may find its input where its output goes.
  [[nodiscard]] virtual bool can_be_in_place() const { return true; }
  /// Whether its algorithms reach ranks of other LSA teams.
  [[nodiscard]] virtual bool crosses_hosts() const { return false; }
  /// Where a call's input and output are, given where those of the whole vector would be.
  virtual void place(work&) const {}
  /// In at most `blocks` blocks.
  [[nodiscard]] virtual choice choose(const work& what, unsigned blocks) const = 0;
  [[nodiscard]] virtual algorithms make_algorithms(const rank_context& context) const = 0;
  /// The same by NCCL. Throws where it cannot be loaded, or this program was built without its headers.
  [[nodiscard]] virtual algorithms make_nccl_algorithms(const rank_context& context) const = 0;
  /// Random input of the rank, a function of the seed alone.
  virtual void fill(const work& what, std::uint64_t seed) const = 0;
  /// Elements of the output that are further from the exact result than rounding explains.
  [[nodiscard]] virtual std::uint64_t count_wrong(const work& what, std::uint64_t seed) const = 0;
};

/// Every operation of this program, by name. One adds itself by `register_operation` in its own file.
const std::vector<std::unique_ptr<operation>>& operations();
bool register_operation(std::unique_ptr<operation> added);

/// Launches that a graph holds when none are asked for: enough that the ranks' different starts do not count.
constexpr int usual_launches(std::uint64_t bytes) { return bytes <= 65536 ? 200 : bytes <= (4u << 20) ? 50 : 10; }

}  // namespace perf
