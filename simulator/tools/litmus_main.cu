/// \file litmus_main.cu
/// The main function of the tests of devcomm-litmus. In the simulator, with the race detector: every interleaving of
/// each test, then random schedules with late stores. With LITMUS_ON_GPU: many copies at once on GPUs. Writes what was
/// seen.
#include "devcomm_litmus.hpp"

#ifndef LITMUS_ON_GPU
#  include <devcomm/simulator/explore.hpp>
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// Memory of `instances` of any test, and a stream for each GPU of it; GPUs that are not there share the others.
class ground {
 public:
  explicit ground(int instances) : instances_(instances) {
    check(cudaGetDeviceCount(&devices_), "cudaGetDeviceCount");
    const auto words = static_cast<std::size_t>(instances * memory_.words_each());
    check(cudaMalloc(reinterpret_cast<void**>(&memory_.words), words * 4), "cudaMalloc");
    check(cudaMalloc(reinterpret_cast<void**>(&memory_.registers), registers() * 4), "cudaMalloc");
    check(cudaMalloc(reinterpret_cast<void**>(&arrived_), static_cast<std::size_t>(instances) * 4), "cudaMalloc");
    for (int gpu = 0; gpu < max_gpus; ++gpu) {
      check(cudaSetDevice(gpu % devices_), "cudaSetDevice");
      if (gpu > 0 && gpu < devices_) check(cudaDeviceEnablePeerAccess(0, 0), "cudaDeviceEnablePeerAccess");
      check(cudaStreamCreateWithFlags(&streams_[gpu], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
  }

  /// Plays `instances` in each of `copies` blocks; `result(memory)` is called for each.
  template <class Result>
  void play(const litmus::test& played, int copies, int instances, int stride, bool meets, Result result) {
    const int all = copies * instances;
    memory_.stride = stride;
    memory_.arrived = meets ? arrived_ : nullptr;
    words_.assign(static_cast<std::size_t>(all * memory_.words_each()), 0);
    registers_.assign(static_cast<std::size_t>(all * litmus::memory::registers_each), 0);
    const litmus::memory here{words_.data(), registers_.data(), nullptr, stride};
    for (int instance = 0; instance < all; ++instance)
      for (std::size_t i = 0; i < played.locations.size(); ++i)
        *here.instance(instance).at(static_cast<int>(i)) = played.locations[i].initial;
    copy(memory_.words, words_);
    copy(memory_.registers, registers_);
    if (meets) check(cudaMemset(arrived_, 0, static_cast<std::size_t>(all) * 4), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaMemcpy");
    for (std::size_t gpu = 0; gpu < played.blocks.size(); ++gpu)
      launch(played, copies, instances, static_cast<int>(gpu));
    for (std::size_t gpu = 0; gpu < played.blocks.size(); ++gpu)
      check(cudaStreamSynchronize(streams_[gpu]), played.name.c_str());
    check(cudaSetDevice(0), "cudaSetDevice");
    copy_back(words_, memory_.words);
    copy_back(registers_, memory_.registers);
    for (int instance = 0; instance < all; ++instance) result(here.instance(instance));
  }

 private:
  static constexpr int max_gpus = litmus::max_threads;

  [[nodiscard]] std::size_t registers() const {
    return static_cast<std::size_t>(instances_ * litmus::memory::registers_each);
  }
  void launch(const litmus::test& played, int copies, int instances, int gpu) {
    const std::vector<unsigned>& blocks = played.blocks[static_cast<std::size_t>(gpu)];
    const auto grid = static_cast<unsigned>(copies) * static_cast<unsigned>(blocks.size());
    check(cudaSetDevice(gpu % devices_), "cudaSetDevice");
    played.kernel<<<grid, 32 * *std::max_element(blocks.begin(), blocks.end()), 0, streams_[gpu]>>>(memory_, instances,
                                                                                                    gpu);
    check(cudaGetLastError(), played.name.c_str());
  }
  static void copy(std::uint32_t* to, const std::vector<std::uint32_t>& from) {
    check(cudaMemcpy(to, from.data(), from.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  static void copy_back(std::vector<std::uint32_t>& to, const std::uint32_t* from) {
    check(cudaMemcpy(to.data(), from, to.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

  int instances_;
  int devices_ = 0;
  litmus::memory memory_{};
  std::uint32_t* arrived_ = nullptr;
  cudaStream_t streams_[max_gpus] = {};
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> registers_;
};

/// What has been seen of one test.
class player {
 public:
  player(const litmus::test& played, ground& where) : played_(played), where_(where) {}

#ifdef LITMUS_ON_GPU
  static constexpr int copies = 64, instances = 64;

  void play(std::uint64_t rounds) {
    constexpr int strides[] = {32, 1, 8, 4};
    for (std::uint64_t i = 0; i * copies * instances < rounds; ++i) play(copies, instances, strides[i % 4], true);
  }
#else
  static constexpr int copies = 1, instances = 20;

  void play(std::uint64_t rounds) {
    constexpr std::uint64_t longest_delay = 64;  // steps
    devcomm::simulator::set_store_delay(0);
    explore();
    devcomm::simulator::set_store_delay(longest_delay);
    for (std::uint64_t i = 0; i * instances < rounds && problem_.empty() && !raced_; ++i) {
      devcomm::simulator::set_seed(i + 1);
      play(copies, instances, 32, false);
    }
  }
#endif

  void write(std::ostream& out) const {
    out << "{\"race\": " << (raced_ ? "true" : "false") << ", \"problem\": \"" << problem_ << "\", \"outcomes\": [";
    const char* between = "";
    for (const auto& [values, times] : seen_) {
      out << between << "{\"times\": " << times << ", \"values\": [";
      for (std::size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "" : ", ") << values[i];
      out << "]}";
      between = ", ";
    }
    out << "]}";
  }

 private:
#ifndef LITMUS_ON_GPU
  void explore() {
    devcomm::simulator::explore_options options;
    options.executions = 20000;
    options.schedule_file.clear();
    const auto result = devcomm::simulator::explore(options, [this] { play(1, 1, 32, false); });
    if (result.complete || raced_) return;
    problem_ = result.failure.empty() ? "too many executions" : result.failure.substr(0, result.failure.find('\n'));
    std::replace(problem_.begin(), problem_.end(), '"', '\'');
  }
#endif

  void play(int copies_now, int instances_now, int stride, bool meets) {
    where_.play(played_, copies_now, instances_now, stride, meets,
                [this](const litmus::memory& instance) { ++seen_[outcome(instance)]; });
#ifndef LITMUS_ON_GPU
    if (devcomm::simulator::race_reports() == 0) return;
    raced_ = true;  // what it computes says nothing
    devcomm::simulator::clear_races();
#endif
  }

  [[nodiscard]] std::vector<std::uint32_t> outcome(const litmus::memory& instance) const {
    std::vector<std::uint32_t> values;
    for (const std::string& name : played_.observed) values.push_back(value_of(instance, name));
    return values;
  }
  [[nodiscard]] std::uint32_t value_of(const litmus::memory& instance, const std::string& name) const {
    for (std::size_t i = 0; i < played_.locations.size(); ++i)
      if (played_.locations[i].name == name) return *instance.at(static_cast<int>(i));
    for (std::size_t thread = 0; thread < played_.registers.size(); ++thread)
      for (std::size_t i = 0; i < played_.registers[thread].size(); ++i)
        if (played_.registers[thread][i] == name) return instance.registers[thread * litmus::max_registers + i];
    return 0;
  }

  const litmus::test& played_;
  ground& where_;
  std::map<std::vector<std::uint32_t>, std::uint64_t> seen_;
  bool raced_ = false;
  std::string problem_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: %s RESULTS ROUNDS\n", arguments[0]);
    return 2;
  }
  try {
    std::ofstream out(arguments[1]);
    ground where(player::copies * player::instances);
    const char* before = "[";
    const std::vector<litmus::test> tests = litmus::all_tests();
    for (const litmus::test& one : tests) {
      player played(one, where);
      played.play(std::strtoull(arguments[2], nullptr, 10));
      out << before;
      played.write(out);
      before = ",\n";
    }
    out << "]\n";
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
