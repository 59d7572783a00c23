/// Exchange and all-to-all by copy engines: every vector arrives whole, no copy overruns a rank that is late, and a
/// missing rank leaves no stream waiting.
#include <devcomm/devcomm.cuh>

#include "collective/moved_vectors.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace devcomm;

namespace {

using collective::copy_buffers;
using collective::copy_engines;
using collective::partners;

partners partners_of(int which, int rank, int ranks) {
  switch (which % 4) {
    case 0: return partners::in_ring(rank, ranks);
    case 1: return {rank + 1 < ranks ? rank + 1 : collective::no_member, rank - 1};
    case 2: return {rank, rank};
    default: return partners::in_ring(rank, ranks, ranks - 1);
  }
}

class program {
 public:
  explicit program(host::communicator& comm)
      : all_(comm, needs_of(comm, signals_)), copies_(all_.device_comm(), signals_) {}

  /// Of elements of three bytes. `in_window`: whether it is the input that peers reach.
  void exchange(std::uint64_t count, int which, bool in_window, copy_buffers buffers) {
    const int rank = all_.comm().rank();
    const partners with = partners_of(which, rank, all_.comm().size());
    const std::uint64_t place = all_.reserve(count * sizeof(element)) + 1;
    if (with.to >= 0) all_.fill(place, count, sizeof(element), with.to);
    if (with.from >= 0) all_.expect(place, count, sizeof(element), with.from, "exchange by copy engines");
    const sym_ptr<element> input{all_.inputs(), place};
    const sym_ptr<element> output{all_.outputs(), place};
    all_.add_launch([=, this](cudaStream_t stream) {
      if (in_window) {
        copies_.exchange(with, input, output.local(), count, stream, buffers);
      } else {
        copies_.exchange(with, input.local(), output, count, stream, buffers);
      }
    });
  }

  void all_to_all(std::uint64_t count, bool in_window, copy_buffers buffers) {
    const int ranks = all_.comm().size();
    const std::uint64_t bytes = count * sizeof(element);
    const std::uint64_t place = all_.reserve(bytes * static_cast<std::uint64_t>(ranks)) + 1;
    for (int m = 0; m < ranks; ++m) {
      const std::uint64_t at = place + static_cast<std::uint64_t>(m) * bytes;
      all_.fill(at, count, sizeof(element), m);
      all_.expect(at, count, sizeof(element), m, "all-to-all by copy engines");
    }
    const sym_ptr<element> input{all_.inputs(), place};
    const sym_ptr<element> output{all_.outputs(), place};
    all_.add_launch([=, this](cudaStream_t stream) {
      if (in_window) {
        copies_.all_to_all(input, output.local(), count, stream, buffers);
      } else {
        copies_.all_to_all(input.local(), output, count, stream, buffers);
      }
    });
  }

  void replay(int times) { all_.replay(times); }

 private:
  struct element {
    char bytes[3];
  };

  static requirements needs_of(const host::communicator& comm, collective::copy_engine_handle& signals) {
    requirements needs = comm.requirements();
    signals = needs.add(collective::copy_engine_signals{comm.lsa()});
    return needs;
  }

  collective::copy_engine_handle signals_{};
  test::moves all_;
  copy_engines copies_;
};

constexpr std::uint64_t count = 96;

DEVCOMM_HOST_DEVICE std::uint32_t value_of(int rank, int round, std::uint64_t i) {
  return static_cast<std::uint32_t>(round * 1000 + rank * 100000 + 7) + static_cast<std::uint32_t>(i);
}

__global__ void write(std::uint32_t* to, int rank, int round) {
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = value_of(rank, round, i);
}

/// What arrives: from one rank its vector, or from each its shard for this one.
struct arrival {
  int round;
  int from;              // the first sender
  std::uint64_t length;  // from each
  std::uint64_t begin;   // where it was in the sender's vector
  unsigned pauses;       // before it is read
};
/// Adds to `wrong` what is not so.
__global__ void read(const std::uint32_t* from, arrival what, std::uint32_t* wrong) {
  for (unsigned i = 0; i < what.pauses; ++i) arch::sleep(1000);
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int sender = what.from + static_cast<int>(i / what.length);
    if (from[i] != value_of(sender, what.round, what.begin + i % what.length))
      arch::fetch_add<memory_order::relaxed, scope::device>(wrong, 1u);
  }
}

enum class call { exchange, all_to_all };

/// Rounds of writing, moving and reading on one stream that the host does not wait for; one rank reads late.
/// `in_window`: whether it is the input that peers reach.
void check_rounds(host::communicator& comm, call which, bool in_window, copy_buffers buffers) {
  requirements needs = comm.requirements();
  const auto signals = needs.add(collective::copy_engine_signals{comm.lsa()});
  const auto device_comm = comm.create_device_comm(needs);
  const auto memory = comm.allocate(2 * count * sizeof(std::uint32_t));
  const test::device_array<std::uint32_t> own(2 * count);
  const test::device_array<std::uint32_t> wrong(1);
  {
    copy_engines copies(device_comm.get(), signals);
    const partners with = partners::in_ring(comm.rank(), comm.size());
    const auto shard = count / static_cast<std::uint64_t>(comm.size());
    cudaStream_t const stream = cudaStreamPerThread;
    for (int round = 0; round < 6; ++round) {
      const std::int64_t turn = buffers == copy_buffers::reused ? 0 : round % 2;
      const auto shared = memory.pointer<std::uint32_t>() + turn * static_cast<std::int64_t>(count);
      std::uint32_t* const alone = own.get() + turn * static_cast<std::int64_t>(count);
      std::uint32_t* const input = in_window ? shared.local() : alone;
      launch(write, {.block = 32, .stream = stream}, input, comm.rank(), round);
      arrival expected{round, with.from, count, 0, comm.rank() == round % comm.size() ? 20u : 0u};
      if (which == call::all_to_all) {
        expected.from = 0;
        expected.length = shard;
        expected.begin = shard * static_cast<std::uint64_t>(comm.rank());
        if (in_window) copies.all_to_all(shared, alone, shard, stream, buffers);
        if (!in_window) copies.all_to_all(alone, shared, shard, stream, buffers);
      } else {
        if (in_window) copies.exchange(with, shared, alone, count, stream, buffers);
        if (!in_window) copies.exchange(with, alone, shared, count, stream, buffers);
      }
      launch(read, {.block = 32, .stream = stream}, in_window ? alone : shared.local(), expected, wrong.get());
    }
    test::finish("rounds of copies");
    device_comm.check();
    test::require(wrong.read()[0] == 0, "rank " + std::to_string(comm.rank()) + " read what it was not sent");
  }
  comm.barrier();
}

/// What a call with bad arguments says.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

void expect_text(const std::string& text, const std::string& part) {
  test::require(text.find(part) != std::string::npos, "not in the message: " + part + "; it is: " + text);
}

}  // namespace

TEST_CASE("copy engines bring every vector whole to its receiver, from and to windows, in graphs") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [&](host::communicator& comm) {
      program all(comm);
      for (const bool in_window : {false, true}) {
        for (const copy_buffers buffers : {copy_buffers::reused, copy_buffers::alternating}) {
          for (const std::uint64_t length : {1u, 0u, 129u, 700u})
            all.exchange(length, static_cast<int>(length), in_window, buffers);
          for (const std::uint64_t length : {0u, 77u, 5u}) all.all_to_all(length, in_window, buffers);
        }
        all.exchange(16, 2, in_window, copy_buffers::reused);
        all.exchange(33, 3, in_window, copy_buffers::reused);
      }
      all.replay(2);
    });
  }
}

TEST_CASE("no copy by copy engines overruns a rank that is late") {
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const bool in_window : {false, true})
        for (const copy_buffers buffers : {copy_buffers::reused, copy_buffers::alternating})
          for (const call which : {call::exchange, call::all_to_all}) check_rounds(comm, which, in_window, buffers);
    });
  }
}

TEST_CASE("a stream of copies ends when a rank never calls, and names it") {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(20);
  test::on_ranks(
      3,
      [](host::communicator& comm) {
        requirements needs = comm.requirements();
        const auto signals = needs.add(collective::copy_engine_signals{comm.lsa()});
        const auto device_comm = comm.create_device_comm(needs);
        const auto memory = comm.allocate(3 * sizeof(float));
        const test::device_array<float> own(3);
        std::string seen;
        {
          copy_engines copies(device_comm.get(), signals);
          if (comm.rank() != 2)
            for (int i = 0; i < 2; ++i) copies.all_to_all(own.get(), memory.pointer<float>(), 1, cudaStreamPerThread);
          test::finish("all-to-all without rank 2");
          seen = refusal([&] { device_comm.check(); });
        }
        expect_text(seen, comm.rank() == 2 ? "nothing" : "signal 2 waited for rank 2");
        comm.barrier();
      },
      options);
}

TEST_CASE("calls of copy engines with bad arguments say what to do") {
  test::on_ranks(2, [](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto signals = needs.add(collective::copy_engine_signals{comm.lsa()});
    const auto device_comm = comm.create_device_comm(needs);
    const auto memory = comm.allocate(64);
    const auto window = memory.pointer<float>();
    const test::device_array<float> own(16);
    copy_engines copies(device_comm.get(), signals);
    const partners next = partners::in_ring(comm.rank(), 2);
    expect_text(refusal([&] {
                  copies.exchange(partners{2, 0}, own.get(), window, 1, nullptr);
                }),
                "cannot be the partners of member");
    expect_text(refusal([&] { copies.exchange(next, own.get(), window + 1, 16, nullptr); }), "has room for 15");
    expect_text(refusal([&] { copies.all_to_all(window, own.get(), 9, nullptr); }), "2 x 9 elements");
    expect_text(refusal([&] { copy_engines(device_comm.get(), {}); }), "copy_engine_signals");
    sym_ptr<float> foreign = window;
    foreign.memory.lsa_size = 1;
    expect_text(refusal([&] { copies.all_to_all(own.get(), foreign, 1, nullptr); }), "another LSA team");
    comm.barrier();
  });
}
