/// The parts that go around a matrix product, each by itself: gate, publisher, reducer, and what they say of failures.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda/ptx>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;

std::string said_by(const host::device_communicator& comm) {
  try {
    comm.check();
  } catch (const host::kernel_error& error) {
    return error.what();
  }
  return "";
}

void require_said(const host::device_communicator& comm, const std::string& text) {
  const std::string said = said_by(comm);
  test::require(said.find(text) != std::string::npos, "it said: " + said);
}

host::communicator_options impatient() {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(40);
  return options;
}

launch_config one_block() { return {.grid = 1, .block = threads, .stream = cudaStreamPerThread}; }

constexpr gemm::problem_shape problem{8, 16, 8};
constexpr gemm::tile_shape shape{4, 16, 4};

bool has_bulk_copies() {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  return major >= 9;
}

// --- shared memory ---

/// Each rank publishes every tile from shared memory, and sums its own.
template <class T>
__global__ void publish_shared(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order, T* output) {
  __shared__ alignas(16) T rows[shape.m * shape.n];
  const gemm::session session{block{}, comm, partials.flags};
  {
    gemm::publisher publisher{block{}, comm, session, partials, order.grid()};
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      const gemm::tile t = order[i];
      for (unsigned e = threadIdx.x; e < t.rows * shape.n; e += blockDim.x)
        rows[e] = static_cast<T>(static_cast<float>((t.row * shape.n + e) % 16 + static_cast<unsigned>(comm.rank)));
      publisher.store_shared(t, rows);
    }
  }
  gemm::reducer reducer{block{}, comm, session, partials};
  const int owner = order.grid().members() == 1 ? 0 : comm.lsa_rank();
  for (std::uint32_t i = 0; i < order.grid().tiles_of(owner); ++i)
    reducer.reduce(
        order.grid().at(owner, i),
        gemm::to_matrix<T>{output, problem.n, order.grid().members() == 1 ? 0 : order.grid().first_row(owner)});
}

template <class T>
void shared_case(host::communicator& comm, int owners) {
  const auto grid = gemm::tile_grid::by_rows(problem, shape, owners);
  auto needs = comm.requirements().lsa_barriers(1);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, 1});
  const auto device_comm = comm.create_device_comm(needs);
  const int owner = owners == 1 ? 0 : comm.rank();
  const std::uint32_t first = grid.first_row(owner);
  const test::device_array<T> output(std::uint64_t{grid.first_row(owner + 1) - first} * problem.n, 0xff);
  const gemm::tile_order order{grid, owner, gemm::first_owner::next};
  launch(publish_shared<T>, one_block(), device_comm.get(), partials, order, output.get());
  test::finish("publish_shared");
  device_comm.check();
  const auto got = output.read();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t expected = ranks * ((first * problem.n + i) % 16) + ranks * (ranks - 1) / 2;
    test::require(static_cast<float>(got[i]) == static_cast<float>(expected), "a sum is wrong");
  }
}

// --- activations ---

__global__ void activate(float* x) {
  const float value = x[threadIdx.x];
  x[threadIdx.x] = gemm::relu{}(value);
  x[threads + threadIdx.x] = gemm::silu{}(value);
  x[2 * threads + threadIdx.x] = gemm::gelu{}(value);
}

// --- epochs ---

/// The epoch that each block finds.
__global__ void find_epochs(device_comm comm, gemm::flag_handle flags, std::uint64_t* found) {
  const gemm::session session{block{}, comm, flags};
  if (threadIdx.x == 0) found[blockIdx.x] = session.epoch();
}

/// Two warps find the epoch when they need it, the second after it has waited for a while.
__global__ void find_epochs_late(device_comm comm, gemm::flag_handle flags, std::uint64_t* found) {
  const gemm::session session{block{}, comm, flags};
  if (threadIdx.x >= 32) __nanosleep(1000);
  found[threadIdx.x] = gemm::flag_access{comm, flags}.epoch();
}

#if defined(DEVCOMM_SIMULATOR) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#  define HAS_BULK_COPIES
#endif

// --- bulk copies behind a gate ---

/// A thread loads each row by a bulk copy when its chunk is there, and all threads use it.
__global__ void load_rows(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, sym_ptr<float> a,
                          float* sums) {
#if defined(HAS_BULK_COPIES)
  alignas(128) __shared__ float row[16];
  __shared__ std::uint64_t full;
  const gemm::session session{block{}, comm, flags};
  const gemm::tile_grid& grid = chunks.grid();
  if (blockIdx.x == 1) {
    gemm::operand_sender sender{block{}, comm, session, chunks, 0};
    return sender.send(a, 0, 1);
  }
  namespace ptx = cuda::ptx;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  gemm::gate gate{thread{}, session, chunks};
  const gemm::tile_order order{grid, comm.lsa_rank(), gemm::first_owner::self};
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const gemm::tile t = order[i];
    if (threadIdx.x == 0) {
      gate.wait(t, 0);
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof row);
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, row, a.local() + t.row * 16, sizeof row, &full);
    }
    while (!ptx::mbarrier_try_wait_parity(&full, i % 2)) {
    }
    if (threadIdx.x < 16) sums[t.row * 16 + threadIdx.x] = row[threadIdx.x];
    __syncthreads();
  }
#endif
}

// --- failures ---

enum class part { gate, reducer, result };

/// Rank 0 waits for what rank 1, which launches nothing, would have sent; then publishes a tile of garbage.
__global__ void wait_in_vain(device_comm comm, gemm::partial_handle<float> partials, gemm::flag_handle flags,
                             gemm::operand_chunks chunks, part which, status* outcomes) {
  const gemm::session session{thread{}, comm, flags};
  const gemm::session sums{thread{}, comm, partials.flags};
  const gemm::tile_grid& grid = chunks.grid();
  const gemm::tile theirs = grid.at(1, 0);
  const gemm::tile mine = grid.at(0, 1);
  gemm::gate gate{thread{}, session, chunks};
  gemm::reducer reducer{thread{}, comm, sums, partials};
  sums.set(0, partials.tile_flag(0, 1));  // its own
  const auto store = [](std::uint32_t, std::uint32_t, int, const float(&)[4]) {};
  outcomes[0] = which == part::gate ? gate.wait_for(theirs, 4, microseconds(500))
                                    : reducer.reduce_for(mine, store, microseconds(500));
  if (which == part::gate) gate.wait(theirs, 4);
  if (which == part::reducer) outcomes[1] = reducer.reduce(mine, store) ? status::success : status::aborted;
  outcomes[2] = gate.wait_for(theirs, 0, milliseconds(60000));
  outcomes[3] = reducer.reduce_for(mine, store, milliseconds(60000));
  sums.set(1, partials.tile_flag(0, 0));
}

void check_record(part which, const std::string& text) {
  test::on_ranks(
      2,
      [&](host::communicator& comm) {
        const auto grid = gemm::tile_grid::by_rows({16, 4, 8}, {4, 4, 4}, 2);
        const gemm::operand_chunks chunks{grid, 4, 4};
        auto needs = comm.requirements();
        const auto partials = needs.add(gemm::partial_tiles<float>{comm.lsa(), grid, 1});
        const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), 1});
        const auto device_comm = comm.create_device_comm(needs);
        comm.barrier();
        if (comm.rank() == 0) {
          const test::device_array<status> outcomes(4, 0xff);
          launch(wait_in_vain, {.stream = cudaStreamPerThread}, device_comm.get(), partials, flags, chunks, which,
                 outcomes.get());
          test::finish("wait_in_vain");
          const auto got = outcomes.read();
          test::require(got[0] == status::timeout, "a deadline that passes is no timeout");
          test::require(which != part::reducer || got[1] == status::aborted, "a sum of tiles that did not come");
          test::require(got[2] == status::aborted && got[3] == status::aborted, "a wait after a failure goes on");
          test::require(device_comm.failures().size() == 1, "there is not one record");
          require_said(device_comm, text);
        }
        comm.barrier();
        if (comm.rank() == 1) {
          std::uint64_t flag = 1;
          check_cuda(cudaMemcpy(&flag, device_comm.get().resources.local + partials.flags.offset, 8, cudaMemcpyDefault),
                     "cudaMemcpy");
          test::require(flag == 0, "a rank that timed out publishes a tile");
        }
        comm.barrier();
      },
      impatient());
}

__global__ void sum_rows(device_comm comm, gemm::partial_handle<float> partials, gemm::tile_order order,
                         float* output) {
  const gemm::reference_product product{gemm::rows_of<float>{output, 0}, gemm::rows_of<float>{output, 0}, 0, 4};
  gemm::reduce_scatter(comm, partials, order, product,
                       gemm::to_matrix<float>{output, order.grid().problem().n, order.grid().first_row(comm.rank)});
}

__global__ void sum_gathered(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks,
                             gemm::tile_order order, sym_ptr<float> operand, float* output) {
  const gemm::rows_of<float> a{operand.local(), 8};
  gemm::all_gather(comm, flags, chunks, order, gemm::reference_product{a, a, 8, 4}, gemm::to_matrix<float>{output, 4});
}

}  // namespace

TEST_CASE("tiles go from shared memory to their owners, or to all ranks, by bulk copies") {
  if (!has_bulk_copies()) SKIP("bulk copies need compute capability 9.0");
  for (const int ranks : {1, 2, 3}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      shared_case<float>(comm, comm.size());
      shared_case<__nv_bfloat16>(comm, comm.size());
      shared_case<float>(comm, 1);
    });
  }
}

TEST_CASE("activations are what their names say") {
  test::on_ranks(1, [](host::communicator&) {
    std::vector<float> values(std::size_t{3} * threads);
    for (unsigned i = 0; i < threads; ++i) values[i] = (static_cast<float>(i) - 31.5f) / 4;
    const test::device_array<float> x(values);
    launch(activate, one_block(), x.get());
    test::finish("activate");
    const auto got = x.read();
    for (unsigned i = 0; i < threads; ++i) {
      const auto value = static_cast<double>(values[i]);
      const double expected[] = {value < 0 ? 0 : value, value / (1 + std::exp(-value)),
                                 value / 2 * (1 + std::erf(value / std::sqrt(2.0)))};
      for (unsigned which = 0; which < 3; ++which)  // the third is an approximation
        test::require(
            std::abs(static_cast<double>(got[which * threads + i]) - expected[which]) <= (which == 2 ? 1e-3 : 1e-5),
            "an activation is wrong");
    }
  });
}

TEST_CASE("epochs of blocks that a launch did not have go on, too") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr unsigned max_blocks = 70;
    auto needs = comm.requirements();
    const auto flags = needs.add(gemm::flags{comm.lsa(), 1, max_blocks});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<std::uint64_t> found(max_blocks);
    std::uint64_t epoch = 0;
    for (const unsigned blocks : {1u, 70u, 3u, 69u, 2u, 70u}) {
      launch(find_epochs, {.grid = blocks, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), flags,
             found.get());
      test::finish("find_epochs");
      ++epoch;
      const auto got = found.read();
      for (unsigned b = 0; b < blocks; ++b) test::require(got[b] == epoch, "a block finds another epoch");
    }
  });
}

TEST_CASE("parts that read the epoch late read that of their launch") {
  test::on_ranks(1, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto flags = needs.add(gemm::flags{comm.lsa(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<std::uint64_t> found(64);
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
      launch(find_epochs_late, one_block(), device_comm.get(), flags, found.get());
      test::finish("find_epochs_late");
      for (const std::uint64_t each : found.read()) test::require(each == epoch, "a late thread finds another epoch");
    }
  });
}

TEST_CASE("what comes through a gate is read by bulk copies of the thread that waited") {
  if (!has_bulk_copies()) SKIP("bulk copies need compute capability 9.0");
  test::on_ranks(3, [](host::communicator& comm) {
    const auto grid = gemm::tile_grid::by_rows({12, 16, 16}, {1, 16, 16}, comm.size());
    const gemm::operand_chunks chunks{grid, 1, 16};
    auto needs = comm.requirements().lsa_barriers(1);
    const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), 2});
    const auto device_comm = comm.create_device_comm(needs);
    const auto memory = comm.allocate(std::size_t{12} * 16 * sizeof(float), "operand");
    const sym_ptr<float> a = memory.pointer<float>();
    const test::device_array<float> sums(std::size_t{12} * 16, 0xff);
    const std::uint32_t first = grid.first_row(comm.rank()) * 16;
    for (int launched = 0; launched < 2; ++launched) {
      std::vector<float> mine;
      for (std::uint32_t i = 0; i < grid.shard_rows() * 16; ++i)
        mine.push_back(static_cast<float>(first + i) + static_cast<float>(launched) / 2);
      check_cuda(cudaMemcpyAsync(a.local() + first, mine.data(), mine.size() * sizeof(float), cudaMemcpyDefault,
                                 cudaStreamPerThread),
                 "cudaMemcpyAsync");
      launch(load_rows, {.grid = 2, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), flags, chunks, a,
             sums.get());
      test::finish("load_rows");
      device_comm.check();
      const auto got = sums.read();
      for (std::size_t i = 0; i < got.size(); ++i)
        test::require(got[i] == static_cast<float>(i) + static_cast<float>(launched) / 2, "a row is wrong");
    }
    comm.barrier();
  });
}

TEST_CASE("a chunk or tile that never comes leaves a record of its number and rank, and nothing is published then") {
  check_record(part::gate,
               "rank 0, block 0: operand chunk 5 waited for rank 1 to reach epoch 1 and last saw 0: timeout");
  check_record(part::reducer, "rank 0, block 0: tile 1 waited for rank 1 to reach epoch 1 and last saw 0: timeout");
}

TEST_CASE("what a rank copies after it has missed the others opens no gate") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const gemm::operand_chunks chunks{gemm::tile_grid::by_rows({16, 4, 8}, {4, 4, 4}, 2), 4, 4};
        auto needs = comm.requirements();
        const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), 1});
        const auto handle = needs.add(gemm::operand_copy_signals{comm.lsa()});
        const auto device_comm = comm.create_device_comm(needs);
        const auto window = comm.allocate(16 * 8 * sizeof(float), "operand");
        const auto multiply = [&] {
          const test::device_array<float> c(16 * 4);
          gemm::operand_copies copies{device_comm.get(), handle, flags, chunks};
          copies.begin(window.pointer<float>(), cudaStreamPerThread);
          launch(sum_gathered, one_block(), device_comm.get(), flags, chunks,
                 gemm::tile_order{chunks.grid(), comm.rank(), gemm::first_owner::self}, window.pointer<float>(),
                 c.get());
          copies.end(cudaStreamPerThread);
          test::finish("sum_gathered");
        };
        if (comm.rank() == 0) multiply();
        comm.barrier();
        if (comm.rank() == 1) multiply();
        require_said(device_comm,
                     comm.rank() == 0 ? "signal 1 waited for rank 1" : "waited for rank 0 to reach epoch 1");
        comm.barrier();
      },
      impatient());
}

TEST_CASE("copies of an operand with too few flags, or of another team's grid or window, are refused") {
  test::on_ranks(2, [](host::communicator& comm) {
    const gemm::operand_chunks chunks{gemm::tile_grid::by_rows({16, 4, 8}, {4, 4, 4}, 2), 4, 4};
    const gemm::operand_chunks alone{gemm::tile_grid::by_rows({16, 4, 8}, {4, 4, 4}, 1), 4, 4};
    auto needs = comm.requirements();
    const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), 1});
    const auto few = needs.add(gemm::flags{comm.lsa(), chunks.count() - 1, 1});
    const auto handle = needs.add(gemm::operand_copy_signals{comm.lsa()});
    const auto device_comm = comm.create_device_comm(needs);
    const auto window = comm.allocate(16 * 8 * sizeof(float), "operand");
    const auto refused = [](const auto& call, const std::string& text) {
      std::string said;
      try {
        call();
      } catch (const std::logic_error& error) {
        said = error.what();
      }
      test::require(said.find(text) != std::string::npos, "it said: " + said);
    };
    refused([&] { gemm::operand_copies{device_comm.get(), handle, few, chunks}; }, "7 flags for 8 chunks");
    refused([&] { gemm::operand_copies{device_comm.get(), handle, flags, alone}; }, "1 members, and the LSA team 2");
    gemm::operand_copies copies{device_comm.get(), handle, flags, chunks};
    const sym_ptr<float> behind =
        window.pointer<float>() + static_cast<std::int64_t>(window.pointer<float>().memory.bytes / 4 - 100);
    refused([&] { copies.begin(behind, cudaStreamPerThread); }, "A has 128 elements, more than");
  });
}

TEST_CASE("ranks with problems of different sizes get a launch mismatch") {
  host::communicator_options options = impatient();
  options.check_launch = true;
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto largest = gemm::tile_grid::by_rows({64, 16, 8}, shape, 2);
        auto needs = comm.requirements().lsa_barriers(1);
        const auto partials = needs.add(gemm::partial_tiles<float>{comm.lsa(), largest, 1});
        const auto device_comm = comm.create_device_comm(needs);
        const auto grid = gemm::tile_grid::by_rows({comm.rank() == 0 ? 32u : 24u, 16, 8}, shape, 2);
        const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next};
        const test::device_array<float> output(std::size_t{64} * 16);
        launch(sum_rows, one_block(), device_comm.get(), partials, order, output.get());
        test::finish("sum_rows");
        require_said(device_comm, "launch mismatch: ");
      },
      options);
}

#if defined(DEVCOMM_SIMULATOR)

#  include <devcomm/simulator/simulator.hpp>

namespace {

enum class mistake { none, blocks, grid, tiles, members, flag, twice, not_begun };

__global__ void misuse(device_comm comm, gemm::partial_handle<float> partials, gemm::tile_grid grid, mistake made) {
  if (made == mistake::twice) const gemm::session first{block{}, comm, partials.flags};
  const gemm::session session{block{}, comm, partials.flags};
  gemm::publisher publisher{block{}, comm, session, partials, grid};
  if (made == mistake::not_begun) publisher.end(grid.at(0, 0));
  if (made == mistake::flag && threadIdx.x == 0) session.set(0, partials.flags.count);
}

void check_misuse(mistake made, const std::string& text) {
  test::on_ranks(1, [&](host::communicator& comm) {
    const auto grid = gemm::tile_grid::by_rows(problem, shape, 1);
    auto needs = comm.requirements().lsa_barriers(2);
    const auto of_members = gemm::tile_grid::by_rows(problem, shape, 2);
    const auto partials =
        needs.add(gemm::partial_tiles<float>{comm.lsa(), made == mistake::members ? of_members : grid, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto wrong_grid = made == mistake::grid      ? gemm::tile_grid::by_rows({80, 16, 8}, shape, 1)
                            : made == mistake::members ? of_members
                            : made == mistake::tiles   ? gemm::tile_grid::by_rows(problem, {8, 16, 4}, 1)
                                                       : grid;
    launch(misuse, {.grid = made == mistake::blocks ? 2u : 1u, .block = threads, .stream = cudaStreamPerThread},
           device_comm.get(), partials, wrong_grid, made);
    const bool failed = cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess;
    const std::string said = failed ? simulator::last_failure() : "";
    test::require(failed == !text.empty() && said.find(text) != std::string::npos, "it said: " + said);
  });
}

}  // namespace

TEST_CASE("misuse of flags and of the memory for tiles is named") {
  check_misuse(mistake::none, "");
  check_misuse(mistake::blocks, "the launch has more blocks than the flags were made for");
  check_misuse(mistake::grid, "give gemm::partial_tiles the largest grid");
  check_misuse(mistake::tiles, "another tile shape");
  check_misuse(mistake::members, "the members of a grid are those of the LSA team: comm.lsa().size, or one");
  check_misuse(mistake::flag, "the flags were made for a smaller problem");
  check_misuse(mistake::not_begun, "call begin() before the stores of each tile");
  check_misuse(mistake::twice, "make one session for the launch, or give the second flags of its own");
}

#endif
