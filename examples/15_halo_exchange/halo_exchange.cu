/// Heat spreads over a plane that is cut into stripes, one for each rank. In each step a rank needs the row beyond each
/// of its two edges: it gets them from its neighbors in the same kernel that computes, as a group of two sends and two
/// receives that go straight into the neighbors' halos.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

#include <vector>

using namespace devcomm;

/// A rank's rows, of which the first and the last are halos; two copies, for even and odd steps.
struct stripe {
  sym_ptr<float> cells;
  int rows;  ///< without halos
  int columns;

  __host__ __device__ std::int64_t row(int step, int r) const {
    return (static_cast<std::int64_t>(step % 2) * (rows + 2) + r) * columns;
  }
};

/// One block a rank, so that its own sync orders what it computes and what it sends.
__global__ void spread_heat(device_comm comm, channel::connection_handle connections, stripe mine, int steps) {
  __shared__ channel::message room[4];
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  const team ranks = comm.lsa();
  const int up = ranks.rank - 1;  // the plane ends at the first rank and at the last
  const int down = ranks.rank + 1 < ranks.size ? ranks.rank + 1 : -1;
  const auto width = static_cast<std::uint64_t>(mine.columns);
  float* const cells = mine.cells.local();
  for (int step = 0; step < steps; ++step) {
    const collective::halo_side<float> sides[] = {
        {up, cells + mine.row(step, 1), mine.cells + mine.row(step, 0), width},
        {down, cells + mine.row(step, mine.rows), mine.cells + mine.row(step, mine.rows + 1), width}};
    collective::halo_exchange(session, sides, room);
    for (int i = static_cast<int>(threadIdx.x); i < mine.rows * mine.columns; i += static_cast<int>(blockDim.x)) {
      const int column = i % mine.columns;
      const float* at = cells + mine.row(step, 1 + i / mine.columns) + column;
      const float left = column > 0 ? at[-1] : 0;
      const float right = column + 1 < mine.columns ? at[1] : 0;
      cells[mine.row(step + 1, 1 + i / mine.columns) + column] =
          (left + right + at[-mine.columns] + at[mine.columns]) / 4;
    }
    block{}.sync();  // before the rows are sent
  }
}

/// The same of the whole plane, on the host.
std::vector<float> spread_on_host(std::vector<float> plane, int rows, int columns, int steps) {
  for (int step = 0; step < steps; ++step) {
    std::vector<float> next(plane.size());
    const auto at = [&](int r, int c) {
      return r < 0 || r >= rows || c < 0 || c >= columns ? 0.0F : plane[static_cast<std::size_t>(r * columns + c)];
    };
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c)
        next[static_cast<std::size_t>(r * columns + c)] =
            (at(r, c - 1) + at(r, c + 1) + at(r - 1, c) + at(r + 1, c)) / 4;
    plane = next;
  }
  return plane;
}

void run_case(host::communicator& comm, const host::device_communicator& device_comm,
              const channel::connection_handle& connections, const host::symmetric_memory& memory, stripe mine) {
  constexpr int steps = 7;
  const int rows = mine.rows * comm.size();
  std::vector<float> plane(static_cast<std::size_t>(rows * mine.columns));
  for (std::size_t i = 0; i < plane.size(); ++i) plane[i] = example::value(0, i);
  const auto own = static_cast<std::ptrdiff_t>(comm.rank()) * mine.rows * mine.columns;
  const auto cells = static_cast<std::size_t>(mine.rows * mine.columns);
  const std::vector<float> start(plane.begin() + own, plane.begin() + own + static_cast<std::ptrdiff_t>(cells));

  check_cuda(cudaMemset(memory.data(), 0, 2 * static_cast<std::size_t>((mine.rows + 2) * mine.columns) * sizeof(float)),
             "cudaMemset");
  float* const first = mine.cells.local();
  example::copy_now(first + mine.row(0, 1), start.data(), cells * sizeof(float));
  comm.barrier();  // neighbors write halos
  launch(spread_heat, {.grid = 1, .block = 128, .stream = cudaStreamPerThread}, device_comm.get(), connections, mine,
         steps);
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "spread_heat");
  device_comm.check();
  const std::vector<float> right = spread_on_host(plane, rows, mine.columns, steps);
  example::expect(first + mine.row(steps, 1), cells, "float",
                  [&](std::uint64_t i) { return right[static_cast<std::size_t>(own) + i]; });
  comm.barrier();
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const auto connections = needs.add(channel::connections{comm.lsa(), 1});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(1 << 16);
      int cases = 0;
      for (const int rows : {1, 5}) {
        for (const int columns : {1, 33, 256}) {
          run_case(comm, device_comm, connections, memory, {{memory.window(), 0}, rows, columns});
          ++cases;
        }
      }
      if (comm.rank() == 0) {
        std::printf("halo_exchange: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
    });
  });
}
