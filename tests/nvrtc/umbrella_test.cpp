#include "nvrtc/compile.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace {

/// Options for large kernels that only have to compile.
std::vector<std::string> quickly() {
  int major = 0;
  int minor = 0;
  REQUIRE(nvrtcVersion(&major, &minor) == NVRTC_SUCCESS);
  return major < 13 ? std::vector<std::string>{} : std::vector<std::string>{"--Ofast-compile=max"};
}

const std::string barrier_kernel = R"(
#include <devcomm/devcomm.cuh>
extern "C" __global__ void meet(devcomm::device_comm comm, devcomm::sym_ptr<float> data) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync(devcomm::memory_order::acq_rel);
  *data.local() += *data.lsa(0);
}
)";

/// Something of every header, so that each template is instantiated.
const std::string all_headers_kernel = R"(
#include <devcomm/devcomm.cuh>
using namespace devcomm;

template <class Group>
__device__ double everything(Group group, const device_comm& comm, sym_ptr<float> data, unsigned index) {
  lsa::barrier_session<Group> barrier{group, comm, index};
  double result = group.broadcast(3.0, 0);
  barrier.arrive();
  barrier.wait();
  if (barrier.sync_for(milliseconds(5)) != status::success || barrier.agree() != status::success) return -1;
  lsa::signal_session<Group> signal{group, comm, data.as<uint64_t>() + 40};
  signal.add(comm.lsa_rank(), 1);
  signal.take(comm.lsa_rank(), 1, memory_order::relaxed);
  signal.wait(lsa::any_peer, [](uint64_t seen) { return seen > 2; });
  if (signal.take_for(0, milliseconds(5)) != status::success || signal.load() == 9) signal.store(0, 7);
  copy(group, data.local(), data.lsa(0), 100);
  auto source = [&](int rank) { return data.lsa(rank); };
  auto destination = [&](int) { return data.local(); };
  reduce_copy<float>(group, comm.lsa_size, source, 1, destination, 100, sum{});
  return result;
}

extern "C" __global__ void all_headers(device_comm comm, sym_ptr<float> data, double* results) {
  double total = everything(block{}, comm, data, 0);
  total += everything(warp{}, comm, data, 1 + threadIdx.x / 32);
  total += everything(tile<8>{}, comm, data, 33 + threadIdx.x / 8);
  total += everything(thread{}, comm, data, 200 + threadIdx.x);
  total += everything(lanes(0xffffu), comm, data, 0);
  total += everything(warp_span(0, 2, 1), comm, data, 0);
  total += everything(any_group(block{}), comm, data, 0);
  total += double_tree(comm.lsa(), 0).parent + ring_all_reduce_step(comm.lsa(), 0).sends;
  const pack<float> values = load_pack(data.local());
  store_pack(data.local(), values);
  results[threadIdx.x] = total;
}
)";

const std::string collectives_kernel = R"(
#include <devcomm/devcomm.cuh>
using namespace devcomm;
using namespace devcomm::collective;

extern "C" __global__ void collectives(device_comm comm, lsa::ll_handle mailboxes, lsa::ll128_handle lines,
                                       chunk_buffers chunks, gin::context_handle contexts,
                                       channel::connection_handle connections, sym_ptr<float> data, uint64_t count,
                                       memory_order order, scope at) {
  float* own = data.local();
  const from_memory<float> source{own, count};
  const to_memory<float> result{own, count};
  const slice packs = slice_of_block(packs_of<float>(count));
  __shared__ uint64_t table[64];
  {
    lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
    all_reduce_one_shot<float>(session, packs, source, result, average{});
    all_reduce_two_shot<float>(session, packs, source, result, scaled_sum{2.0f});
    reduce_scatter<float>(session, packs, from_shards<float>{own, count, count}, result, maximum{});
    all_gather<float>(session, packs, source, to_shards<float>{own, count, count});
    broadcast<float>(session, 0, packs, source, result);
    exchange<float>(session, partners{no_member, no_member}, packs, source, result);
    all_to_all<float>(session, packs, from_shards<float>{own, count, count}, to_shards<float>{own, count, count});
    all_to_all_v<float>(session, table, table, from_pieces<float>{own, table, table}, to_packed_pieces<float>{own, table, count});
  }
  {
    lsa::ll128_session session{block{}, comm, lines, blockIdx.x};
    all_reduce_two_shot<float>(session, packs, source, result, sum{});
    broadcast<float>(session, 0, packs, source, result);
  }
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  all_reduce_two_shot_zero_copy<float>(barrier, data, data, count, sum{});
  const chunk_scratch scratch = chunk_scratch::of_group(comm, chunks, chunks.packs_for(gridDim.x, comm.lsa_size), blockIdx.x);
  all_reduce_two_shot_chunked<float>(barrier, scratch, packs, source, result, sum{});
  all_reduce_two_shot_chunked<float>(barrier, scratch, packs, source, to_window<float>{data, count}, sum{});
  reduce_scatter_chunked<float>(barrier, scratch, packs, from_shards<float>{own, count, count}, result, sum{});
  reduce_scatter_zero_copy<float>(barrier, data, own, count, sum{});
  all_gather_zero_copy<float>(barrier, own, data, count);
  broadcast_zero_copy<float>(barrier, 0, own, data, count);
  exchange_zero_copy<float>(barrier, partners{0, 0}, own, data, count);
  all_to_all_zero_copy<float>(barrier, own, data, count);
  lsa::ll128_session session{block{}, comm, lines, blockIdx.x};
  exchange_zero_copy<float>(barrier, packet_ends<lsa::ll128_session<block>>{session, 1, 2}, partners{0, 0}, own, data, count);
  all_to_all_v_zero_copy<float>(barrier, session, from_pieces<float>{own, table, table}, table, data, count);
  barrier_session hosts{block{}, comm, contexts, gin::all_contexts(), blockIdx.x};
  all_to_all_hybrid<float>(hosts, data, data, count);
  all_reduce_hierarchical<float>(hosts, data, data, data, count, sum{});
  const rail_memory<float> rails{rail_exchange_for(count, 2, 8), data, rail_ring_handle{}};
  all_reduce_hierarchical<float>(hosts, data, data, rails, count, average{});
  if (hosts.sync_for(milliseconds(5)) != status::success) return;
  multimem::ptr<float> all{data};
  all.store(all.load_reduce<sum>(order, at), order, at);
  all.reduce<sum>(1.0f, order, at);
  __shared__ channel::message messages[64];
  channel::group_session moved{block{}, comm, connections, channel::stripe_of_block()};
  gather(moved, 0, own, data, count, messages);
  channel::group_session of_warp{warp{}, comm, connections, channel::stripe_of_block()};
  static_cast<void>(of_warp.transfer_for({messages, 0, 0, nullptr}, milliseconds(5)));
  gin::context net{warp{}, comm, contexts, 0};
  net.put(0, data, data, count, gin::signal_add{0}, gin::counter_increment{0});
  net.fence(0);
  gin::barrier_session rail{warp{}, comm, comm.rail(), contexts, gin::one_context(0), 1};
  rail.arrive(gin::fence_level::get);
  if (rail.wait_for(milliseconds(5)) == status::success) rail.sync(gin::fence_level::none);
}
)";

}  // namespace

TEST_CASE("NVRTC compiles the collectives") {
  const compilation result = compile(collectives_kernel, quickly());
  INFO(result.log);
  REQUIRE(result.succeeded);
}

TEST_CASE("NVRTC compiles every header's templates") {
  const compilation result = compile(all_headers_kernel, quickly());
  INFO(result.log);
  REQUIRE(result.succeeded);
}

TEST_CASE("NVRTC compiles a kernel that synchronizes at a barrier") {
  const compilation result = compile(barrier_kernel);
  INFO(result.log);
  REQUIRE(result.succeeded);
  // The barrier's two ends, at the scope that spans GPUs.
  CHECK(result.ptx.find("st.release.sys") != std::string::npos);
  CHECK(result.ptx.find("ld.acquire.sys") != std::string::npos);
}

TEST_CASE("NVRTC compiles checked mode") {
  const compilation result = compile(barrier_kernel, {"-DDEVCOMM_CHECKED=1"});
  INFO(result.log);
  REQUIRE(result.succeeded);
  CHECK(result.ptx.find("barrier index is past") == std::string::npos);  // messages are stored as bytes
  CHECK(result.ptx.find("fail_assertion") != std::string::npos);
}

TEST_CASE("NVRTC refuses a mistake in the user's kernel") {
  const compilation result =
      compile("#include <devcomm/devcomm.cuh>\n__global__ void f() { devcomm::tile<3>::sync(); }");
  REQUIRE_FALSE(result.succeeded);
  CHECK(result.log.find("a tile is 1, 2, 4, 8, 16 or 32 lanes") != std::string::npos);
}
