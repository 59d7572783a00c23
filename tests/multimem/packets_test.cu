/// All-reduces over packets that go to all ranks by one multimem store, on a simulated switch and in software.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 32;
constexpr unsigned blocks = 2;
constexpr std::uint32_t packs_of_round = 24;  // of each block, so that larger vectors take several

#if defined(DEVCOMM_SIMULATOR)
// A simulated switch is nobody else's.
const int on_a_switch = unsetenv("NCCL_NVLS_ENABLE") + unsetenv("DEVCOMM_NVLS_ENABLE");
#else
// GPUs whose NVLink switch others use as well are left without multicast.
const int in_software_on_gpus = setenv("DEVCOMM_NVLS_ENABLE", "0", 1);
#endif

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;

enum class shots { one, two };

template <class Session, class T>
__global__ void reduce(device_comm comm, typename Session::handle mailboxes, const T* input, T* output,
                       std::uint64_t count, shots how, unsigned* by_switch) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  const collective::slice mine = collective::slice_of_block(collective::packs_of<T>(count));
  const collective::from_memory<T> from{input, count};
  const collective::to_memory<T> to{output, count};
  if (how == shots::one) {
    collective::all_reduce_one_shot<T>(session, mine, from, to, sum{});
  } else {
    collective::all_reduce_two_shot<T>(session, mine, from, to, sum{});
  }
  if constexpr (!detail::is_same<Session, ll> && !detail::is_same<Session, lamport>)
    if (blockIdx.x == 0 && threadIdx.x == 0) *by_switch = session.is_hardware() ? 1 : 0;
}

template <class T>
T element(int rank, std::uint64_t i, int round) {
  return static_cast<T>(static_cast<float>(static_cast<int>(i % 7) + 3 * rank + round));
}

/// Rounds of launches, of every size: the packets of one are where those of the launch before last were.
template <class Session, class T>
void check(host::communicator& comm) {
  using by_multimem = multimem::packet_session<Session>;
  requirements needs = comm.requirements();
  needs.with(multimem::resources{multimem::policy::or_software});
  const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(needs.lsa(), blocks, packs_of_round));
  const auto device = comm.create_device_comm(needs);
  const launch_config config{.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
  test::device_array<unsigned> by_switch(1);
  int round = 0;
  for (const std::uint64_t count : {0u, 1u, 7u, 64u, 403u}) {
    for (const shots how : {shots::one, shots::two}) {
      ++round;
      std::vector<T> mine(count + 1);
      for (std::uint64_t i = 0; i < mine.size(); ++i) mine[i] = element<T>(comm.rank(), i, round);
      const test::device_array<T> input(mine);
      const test::device_array<T> output(std::vector<T>(count + 1, static_cast<T>(-1.0f)));
      comm.barrier();  // an allocation may wait for a kernel that waits for this rank
      // Every third call is by stores: the formats are the same, and so are the mailboxes.
      if (round % 3 == 0) {
        launch(reduce<Session, T>, config, device.get(), mailboxes, input.get(), output.get(), count, how,
               by_switch.get());
      } else {
        launch(reduce<by_multimem, T>, config, device.get(), mailboxes, input.get(), output.get(), count, how,
               by_switch.get());
      }
      test::finish("an all-reduce over packets by multimem");
      device.check();
      const std::vector<T> got = output.read();
      for (std::uint64_t i = 0; i < count; ++i) {
        float total = 0;
        for (int rank = 0; rank < comm.size(); ++rank) total += static_cast<float>(element<T>(rank, i, round));
        test::require(static_cast<float>(got[i]) == total, [&] {
          return "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                 std::to_string(static_cast<float>(got[i])) + ", not " + std::to_string(total);
        });
      }
      test::require(static_cast<float>(got[count]) == -1.0f, "the element after the output is overwritten");
    }
  }
  test::require(by_switch.read()[0] == (comm.properties().multicast.available ? 1u : 0u),
                "packets take another way than the resource window has");
  comm.barrier();
}

}  // namespace

#if defined(DEVCOMM_SIMULATOR)
namespace {

/// Packets between the first two ranks.
class session_of_two : public ll {
 public:
  __device__ session_of_two(block group, const device_comm& comm, lsa::ll_handle mailboxes, std::uint32_t index)
      : ll(group, comm, team{comm.lsa_rank(), 2, 0, 1}, mailboxes, index) {}
};

template <class Session>
__global__ void begin_by_multimem(device_comm comm, lsa::ll_handle mailboxes) {
  if (comm.lsa_rank() > 1) return;
  multimem::packet_session<Session> session{block{}, comm, mailboxes, 0};
  session.begin_round();
}

/// What the simulator says of a session over `members` of three ranks, on rank 0.
template <class Session>
std::string failure_of_session(int members) {
  std::string said;
  test::on_ranks(3, [&](host::communicator& comm) {
    requirements needs = comm.requirements();
    needs.with(multimem::resources{multimem::policy::or_software});
    const auto mailboxes = needs.add(lsa::mailboxes_for<ll>(team{comm.rank(), members, 0, 1}, 1, 1));
    const auto device = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      simulator::clear_failure();
      launch(begin_by_multimem<Session>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(),
             mailboxes);
      if (cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess) said = simulator::last_failure();
    }
    comm.barrier();
  });
  simulator::clear_failure();
  return said;
}

}  // namespace

TEST_CASE("a packet session by multimem is one of the whole LSA team") {
  CHECK(failure_of_session<ll>(3).empty());
  CHECK(failure_of_session<session_of_two>(2).find("reach the whole LSA team") != std::string::npos);
}
#endif

TEST_CASE("all-reduces over packets by multimem are right for every number of ranks, count and protocol") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      check<ll, float>(comm);
      check<lamport, float>(comm);
      check<ll, std::int32_t>(comm);
      check<ll, double>(comm);
      check<lamport, __half>(comm);
      check<lamport, __nv_bfloat16>(comm);
    });
  }
}
