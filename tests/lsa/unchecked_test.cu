// Misuse that kernels without checks survive: compiled as programs for GPUs are that do not ask for checked mode.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>

using namespace devcomm;

namespace {

/// All ranks' packets to all, of a group that may have a part of a warp.
__global__ void exchange_lines(device_comm comm, lsa::ll128_handle mailboxes, float* values, status* outcomes) {
  lsa::ll128_session session{block{}, comm, mailboxes, 0};
  const collective::slice packs{0, 8};
  collective::all_reduce_one_shot<float>(session, packs, collective::from_memory<float>{values, 32},
                                         collective::to_memory<float>{values, 32}, sum{});
  outcomes[threadIdx.x] = session.agree();
}

}  // namespace

TEST_CASE("an LL128 session of a group with a part of a warp is dead from the start, and says why") {
  for (const unsigned threads : {48u, 64u}) {
    INFO(threads << " threads");
    test::on_ranks(test::ranks_that_meet(2), [&](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto mailboxes = needs.add(lsa::mailboxes_for<lsa::ll128_session<block>>(comm.lsa(), 1, 64));
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<float> values(32);
      const test::device_array<status> outcomes(threads, 0xff);
      launch(exchange_lines, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
             values.get(), outcomes.get());
      test::finish("exchange_lines");
      for (const status one : outcomes.read())
        test::require((one == status::success) == (threads == 64), std::string("a thread has ") + to_string(one));
      std::string said;
      try {
        device_comm.check();
      } catch (const host::kernel_error& error) {
        said = error.what();
      }
      const char* const why =
          "its group has 48 threads, and LL128 needs whole warps: give it a multiple of 32, or use LL";
      test::require((said.find(why) != std::string::npos) == (threads == 48), "check said: " + said);
      comm.barrier();
    });
  }
}
