// What kernels record, and what becomes of it.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/error.hpp>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

using namespace devcomm;

namespace {

/// What `write(comm, path)` writes on `ranks` ranks, as text.
template <class Write>
std::string written_by(int ranks, Write write) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("devcomm_trace_" + std::to_string(::getpid()) + ".json");
  test::on_ranks(ranks, [&](host::communicator& comm) { write(comm, path); });
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

/// A trace of `body` on `ranks` ranks, as text.
template <class Body>
std::string trace_of(int ranks, std::uint32_t blocks, std::uint32_t spans, Body body) {
  return written_by(ranks, [&](host::communicator& comm, const std::string& path) {
    const auto device_comm =
        comm.create_device_comm(comm.requirements().lsa_barriers(blocks).with(tracing{blocks, spans}));
    body(comm, device_comm);
    comm.write_trace(device_comm, path);
  });
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

__global__ void nested_spans(device_comm comm, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const trace_span outer(block{}, comm, "outer");
    const trace_span inner(tile<32>{}, comm, {"inner", span_kind::copy});
  }
}

__global__ void nested_spans_with_pauses(device_comm comm, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const trace_span paused(block{}, comm, "paused");
    __syncthreads();
  }
}

__global__ void signal_each_other(device_comm comm, lsa::signal_handle signals) {
  lsa::signal_session signal{block{}, comm, signals, 2};
  signal.add(1 - comm.lsa_rank(), 5);
  signal.take(1 - comm.lsa_rank(), 5);
}

__global__ void meet_and_wait(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
  barrier.arrive();
  barrier.wait();
}

/// Each way to all-reduce `count` elements of one block, in place.
__global__ void reduce_each_way(device_comm comm, lsa::lamport_handle channels, sym_ptr<float> data,
                                std::uint64_t count) {
  const collective::from_memory<float> source{data.local(), count};
  const collective::to_memory<float> destination{data.local(), count};
  const collective::slice packs{0, collective::packs_of<float>(count)};
  {
    lsa::lamport_session channel{block{}, comm, channels, 0};
    collective::all_reduce_one_shot<float>(channel, packs, source, destination, sum{});
    collective::all_reduce_two_shot<float>(channel, packs, source, destination, sum{});
  }
  lsa::barrier_session barrier{block{}, comm, 0};
  collective::all_reduce_two_shot_zero_copy<float>(barrier, data, data, count, sum{});
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, const Arguments&... arguments) {
  launch(kernel, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, arguments...);
  test::finish("run");
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const host::error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("each block and rank has its spans, nested, and what the ring has lost is counted") {
  const std::string text = trace_of(2, 2, 16, [](host::communicator&, const host::device_communicator& comm) {
    run(nested_spans, 2, 32, comm.get(), 10);
  });
  CAPTURE(text);
  CHECK(count(text, "\"name\": \"outer\"") == 2 * 2 * 8);
  CHECK(count(text, "\"name\": \"inner\", \"cat\": \"copy\"") == 2 * 2 * 8);
  CHECK(count(text, "\"ph\": \"B\"") == count(text, "\"ph\": \"E\""));
  CHECK(count(text, "4 older spans lost: the ring holds 16") == 4);
  CHECK(text.find("\"lost_spans\": 16") != std::string::npos);
  CHECK(text.find("\"outer\"") < text.find("\"inner\""));
}

TEST_CASE("spans of blocks and warps without room are counted") {
  const std::string text = trace_of(1, 1, 64, [](host::communicator&, const host::device_communicator& comm) {
    run(nested_spans, 3, 64, comm.get(), 1);
  });
  CAPTURE(text);
  CHECK(count(text, "\"name\": \"outer\"") == 1);
  // Two blocks with an outer span and two inner ones each, and the second warp's inner one of the first block.
  CHECK(text.find("\"spans_without_room\": 7") != std::string::npos);
}

TEST_CASE("launches that run at the same time lose no spans of each other") {
  constexpr int streams = 4;
  const std::string text = trace_of(1, 1, 256, [](host::communicator&, const host::device_communicator& comm) {
    cudaStream_t each[streams] = {};
    for (cudaStream_t& stream : each) {
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      launch(nested_spans_with_pauses, {.grid = 1, .block = 32, .stream = stream}, comm.get(), 16);
    }
    for (cudaStream_t& stream : each) {
      check_cuda(cudaStreamSynchronize(stream), "nested_spans_with_pauses");
      check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    }
  });
  CAPTURE(text);
  CHECK(count(text, "\"name\": \"paused\"") == streams * 16);
}

TEST_CASE("a wait for a signal is a span with its value") {
  const std::string text = written_by(2, [](host::communicator& comm, const std::string& path) {
    auto needs = comm.requirements().with(tracing{1, 16});
    const auto signals = needs.add(lsa::signals{comm.lsa(), 3});
    const auto device_comm = comm.create_device_comm(needs);
    run(signal_each_other, 1, 32, device_comm.get(), signals);
    comm.write_trace(device_comm, path);
  });
  CAPTURE(text);
  CHECK(count(text, "\"name\": \"LSA signal 2\", \"args\": {\"value\": 5}, \"cat\": \"wait\"") == 2);
}

TEST_CASE("waits are recorded by themselves, with barrier and epoch") {
  const int ranks = test::ranks_that_meet(3);
  const std::string text = trace_of(ranks, 2, 16, [](host::communicator&, const host::device_communicator& comm) {
    run(meet_and_wait, 2, 64, comm.get());
  });
  CAPTURE(text);
  for (const char* barrier : {"LSA barrier 0", "LSA barrier 1"}) {
    for (const char* epoch : {"1", "2"}) {
      const std::string wait =
          std::string("\"name\": \"") + barrier + "\", \"args\": {\"epoch\": " + epoch + "}, \"cat\": \"wait\"";
      CHECK(count(text, wait) == ranks);
    }
  }
}

TEST_CASE("calls of collectives are recorded with their phases") {
  const std::string text = written_by(2, [](host::communicator& comm, const std::string& path) {
    auto needs = comm.requirements().lsa_barriers(1).with(tracing{1, 64});
    const auto channels = needs.add(lsa::lamport_mailboxes{comm.lsa(), 1, 16});
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::uint64_t elements = 40;
    const auto memory = comm.allocate(elements * sizeof(float));
    run(reduce_each_way, 1, 32, device_comm.get(), channels, memory.pointer<float>(), elements);
    device_comm.check();
    comm.write_trace(device_comm, path);
  });
  CAPTURE(text);
  const auto call = [](const std::string& name, const std::string& over, int count) {
    return "\"name\": \"" + name + "\", \"args\": {\"over\": \"" + over + "\", \"count\": " + std::to_string(count) +
           "}, \"cat\": \"call\"";
  };
  CHECK(count(text, call("all_reduce_one_shot", "Lamport mailbox", 10)) == 2);
  CHECK(count(text, call("all_reduce_two_shot", "Lamport mailbox", 10)) == 2);
  CHECK(count(text, call("all_reduce_two_shot_zero_copy", "LSA barrier", 40)) == 2);
  CHECK(count(text, "\"name\": \"send\", \"cat\": \"copy\"") == 4);
  CHECK(count(text, "\"name\": \"reduce\", \"cat\": \"reduction\"") == 4);
  CHECK(count(text, "\"name\": \"receive\", \"cat\": \"copy\"") == 2);
  CHECK(text.find("\"lost_spans\": 0") != std::string::npos);
}

TEST_CASE("what was cleared is in no trace") {
  const std::string text = trace_of(2, 1, 16, [](host::communicator& comm, const host::device_communicator& traced) {
    run(nested_spans, 1, 32, traced.get(), 3);
    comm.clear_trace(traced);
    run(meet_and_wait, 1, 32, traced.get());
  });
  CAPTURE(text);
  CHECK(count(text, "outer") == 0);
  CHECK(count(text, "LSA barrier 0") == 4);
}

TEST_CASE("a trace that cannot be written says why") {
  test::on_ranks(1, [](host::communicator& comm) {
    const auto without = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const std::string no_room = error_of([&] { comm.write_trace(without, "never_written.json"); });
    test::require(no_room.find("ask for it by requirements().with(tracing{...})") != std::string::npos, no_room);
    const auto traced = comm.create_device_comm(comm.requirements().lsa_barriers(1).with(tracing{1, 16}));
    const std::string nothing = error_of([&] { comm.write_trace(traced, "never_written.json"); });
    test::require(nothing.find("no span was recorded; compile the kernels with") != std::string::npos, nothing);
    run(meet_and_wait, 1, 32, traced.get());
    const std::string no_folder = error_of([&] { comm.write_trace(traced, "no/such/folder/trace.json"); });
    test::require(no_folder.find("cannot be written to no/such/folder/trace.json: No such file") != std::string::npos,
                  no_folder);
  });
}
