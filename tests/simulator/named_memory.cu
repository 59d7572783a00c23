/// Mistakes with windows: `named_memory NAME`. What is told of them has the window's name.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/run_ranks.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

using namespace devcomm;

namespace {

constexpr std::size_t bytes = 100;

/// One store of four bytes.
__global__ void write_at(char* memory, std::ptrdiff_t place) { *reinterpret_cast<int*>(memory + place) = 1; }

__global__ void write_at_both(char* memory, std::ptrdiff_t first, std::ptrdiff_t second) {
  *reinterpret_cast<int*>(memory + first) = 1;
  *reinterpret_cast<int*>(memory + second) = 1;
}

void run(char* memory, std::ptrdiff_t place) {
  launch(write_at, {.stream = cudaStreamPerThread}, memory, place);
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "write_at");
}

void misuse(const std::string& name, host::communicator& comm) {
  std::optional<host::symmetric_memory> data = comm.allocate(bytes, "data");
  void* buffer = nullptr;
  check_cuda(cudaMalloc(&buffer, bytes), "cudaMalloc");
  const host::symmetric_memory mine = comm.register_memory(buffer, bytes, "mine");
  const window view = data->window();
  comm.barrier();
  if (name == "race") {
    run(view.lsa_pointer(1), 8);  // of both ranks
  } else if (name == "race_behind") {
    launch(write_at_both, {.stream = cudaStreamPerThread}, view.lsa_pointer(1), std::ptrdiff_t{20000},
           std::ptrdiff_t{8});
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "write_at_both");
  } else if (comm.rank() == 0) {
    if (name == "past_end") run(view.lsa_pointer(1), bytes);
    if (name == "past_room") run(view.local, 4100);
    if (name == "far_past_end") run(view.lsa_pointer(1), 5000 * 4);
    if (name == "very_far_past_end") run(view.local, (std::ptrdiff_t{1} << 30) + 4);
    if (name == "far_before") run(view.lsa_pointer(0), -5000 * 4);
    if (name == "very_far_before") run(view.lsa_pointer(0), -(std::ptrdiff_t{1} << 30));
    if (name == "far_before_second") run(view.lsa_pointer(1), -5000 * 4);
    if (name == "past_registered") run(mine.window().table[1], bytes + 4);
    if (name == "before") run(view.local, -8);
    if (name == "past_buffer") {
      void* other = nullptr;
      check_cuda(cudaMalloc(&other, bytes), "cudaMalloc");
      run(static_cast<char*>(other), 128);
    }
  }
  comm.barrier();
  if (name == "freed") {
    data.reset();
    comm.barrier();
    if (comm.rank() == 0) run(view.local, 12);
    comm.barrier();
  }
  cudaFree(buffer);
}

void leak(const std::string& name, host::communicator& comm) {
  if (name == "leak_device_comm") {
    static_cast<void>(new host::device_communicator(comm.create_device_comm(comm.requirements().lsa_barriers(1))));
  } else if (name == "leak_beside") {
    static_cast<void>(new host::symmetric_memory(comm.allocate(bytes, "left")));
  } else if (name == "leak_all") {
    auto* child = comm.split(0, comm.rank()).release();
    static_cast<void>(new host::symmetric_memory(child->allocate(bytes)));
  } else {
    // Destroyed after main, which is in time.
    static std::unique_ptr<host::communicator> child[2];
    static std::optional<host::symmetric_memory> window[2];
    const auto self = static_cast<std::size_t>(comm.rank());
    child[self] = comm.split(0, comm.rank());
    window[self] = child[self]->allocate(bytes);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string name = arguments[1];
  host::run_options two;
  two.ranks = 2;
  host::run_ranks(two, [&](host::communicator& comm) {
    if (name.rfind("leak", 0) == 0) {
      leak(name, comm);
    } else {
      misuse(name, comm);
    }
  });
  return 0;
}
