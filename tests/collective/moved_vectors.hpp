/// \file moved_vectors.hpp
/// What tests of collectives that only move elements share: elements that tell where they come from, rooms with
/// margins, and checks that nothing else is written.
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace test {

using image = std::vector<std::byte>;

/// Element `i` of what `from` sends to `to` in call `call`, of `size` bytes; no NaN of any floating-point type.
inline void put_element(std::byte* place, std::size_t size, int call, int from, int to, std::uint64_t i) {
  std::uint64_t x =
      i * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>((call * 64 + from) * 64 + to + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  x ^= x >> 32;
  for (std::size_t b = 0; b < size; ++b) place[b] = static_cast<std::byte>(x >> 8 * (b % 8) & 0x5b);
}

/// One rank's calls, which follow one another in a stream without the host, as a graph that is replayed.
class moves {
 public:
  static constexpr std::size_t room = 1 << 19;  // bytes for inputs, and as many for outputs

  moves(devcomm::host::communicator& comm, const devcomm::requirements& needs)
      : comm_(comm),
        input_(comm.allocate(room)),
        output_(comm.allocate(room)),
        device_comm_(comm.create_device_comm(needs)),
        in_(room, std::byte{0x3c}),
        out_(room, std::byte{0x5a}) {}

  [[nodiscard]] const devcomm::device_comm& device_comm() const { return device_comm_.get(); }
  [[nodiscard]] devcomm::host::communicator& comm() const { return comm_; }
  /// Number of the next call, from 1 on.
  [[nodiscard]] int call() const { return static_cast<int>(launches_.size()) + 1; }

  /// A place for `bytes` bytes of input and output, the same on all ranks.
  [[nodiscard]] std::uint64_t reserve(std::uint64_t bytes) {
    const std::uint64_t place = used_;
    used_ += (bytes + 128 + 127) / 128 * 128;
    require(used_ <= room, "the test's windows are too small");
    return place;
  }
  /// The window of inputs, or, of calls in place, of outputs.
  [[nodiscard]] const devcomm::window& inputs(bool in_place = false) const {
    return (in_place ? output_ : input_).window();
  }
  [[nodiscard]] const devcomm::window& outputs() const { return output_.window(); }

  /// Puts elements of `size` bytes, those that this rank sends to `to`, there before the calls.
  void fill(std::uint64_t place, std::uint64_t count, std::size_t size, int to, bool in_place = false) {
    image& source = in_place ? out_ : in_;
    for (std::uint64_t i = 0; i < count; ++i) put_element(&source[place + i * size], size, call(), comm_.rank(), to, i);
  }
  /// Expects the elements that `from` sends to this rank there after the calls.
  void expect(std::uint64_t place, std::uint64_t count, std::size_t size, int from, const std::string& what) {
    const int number = call();
    checks_.emplace_back([=, this](image& got) {
      image right(size);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::byte* at = &got[place + i * size];
        put_element(right.data(), size, number, from, comm_.rank(), i);
        require(std::memcmp(at, right.data(), size) == 0, [&] {
          return what + ", call " + std::to_string(number) + ": element " + std::to_string(i) + " of " +
                 std::to_string(count) + ", of " + std::to_string(size) + " bytes, from rank " + std::to_string(from) +
                 ", is wrong on rank " + std::to_string(comm_.rank()) + " of " + std::to_string(comm_.size());
        });
        std::memcpy(at, &out_[place + i * size], size);  // what is left must be as it was
      }
    });
  }
  void add_launch(std::function<void(cudaStream_t)> launch) { launches_.push_back(std::move(launch)); }

  /// Captured in a graph, and replayed so many times.
  void replay(int times) {
    using devcomm::check_cuda;
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (const auto& launch_one : launches_) launch_one(stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int time = 0; time < times; ++time) {
      copy(input_.data(), in_.data(), stream);
      copy(output_.data(), out_.data(), stream);
      comm_.barrier();  // peers write outputs
      check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream), "the collectives");
      device_comm_.check();
      image got(room);
      copy(got.data(), output_.data(), stream);
      for (const auto& check : checks_) check(got);
      require(got == out_, "something is written around an output of rank " + std::to_string(comm_.rank()));
      comm_.barrier();
    }
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }

 private:
  static void copy(void* to, const void* from, cudaStream_t stream) {
    devcomm::check_cuda(cudaMemcpyAsync(to, from, room, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    devcomm::check_cuda(cudaStreamSynchronize(stream), "cudaMemcpyAsync");
  }

  devcomm::host::communicator& comm_;
  devcomm::host::symmetric_memory input_;
  devcomm::host::symmetric_memory output_;
  devcomm::host::device_communicator device_comm_;
  image in_;
  image out_;
  std::uint64_t used_ = 0;
  std::vector<std::function<void(cudaStream_t)>> launches_;
  std::vector<std::function<void(image&)>> checks_;
};

}  // namespace test
