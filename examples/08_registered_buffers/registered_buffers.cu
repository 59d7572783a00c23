/// An inference engine's all-reduce, as vLLM's custom all-reduce does it: tensors that somebody else allocated by
/// `cudaMalloc` are registered once, and captured graphs of several batch sizes, which all use them, are replayed in
/// any order. The plan says which algorithm a size is best served by.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/all_reduce_plan.hpp>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;
using element = __nv_bfloat16;

namespace {

constexpr unsigned max_blocks = 4;
constexpr unsigned threads = 64;
constexpr std::size_t max_count = 1 << 13;

template <class Session, bool TwoShot, class Handle>
__global__ void through_packets(device_comm comm, Handle mailboxes, element* tensor, std::uint64_t count) {
  const collective::from_memory<element> source{tensor, count};
  const collective::to_memory<element> destination{tensor, count};
  Session session{block{}, comm, mailboxes, blockIdx.x};
  const collective::slice packs = collective::slice_of_block(collective::packs_of<element>(count));
  if constexpr (TwoShot) {
    collective::all_reduce_two_shot<element>(session, packs, source, destination, sum{});
  } else {
    collective::all_reduce_one_shot<element>(session, packs, source, destination, sum{});
  }
}

__global__ void through_windows(device_comm comm, sym_ptr<element> tensor, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_two_shot_zero_copy<element>(barrier, tensor, tensor, count, sum{});
}

/// What the kernels of a rank work on.
struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::lamport_handle lamport;
  element* tensor;
  sym_ptr<element> window;
};

/// Puts the all-reduce that the plan chose on a stream: of the first `count` elements of the tensor, in place.
void start(const host::all_reduce_plan& plan, const resources& have, std::uint64_t count, cudaStream_t stream) {
  const launch_config shape{.grid = plan.blocks, .block = threads, .stream = stream};
  const auto over = [&]<class Session>(auto mailboxes) {
    if (plan.algorithm == host::all_reduce_algorithm::two_shot) {
      launch(through_packets<Session, true, decltype(mailboxes)>, shape, have.comm, mailboxes, have.tensor, count);
    } else {
      launch(through_packets<Session, false, decltype(mailboxes)>, shape, have.comm, mailboxes, have.tensor, count);
    }
  };
  switch (plan.protocol) {
    case host::all_reduce_protocol::ll: return over.template operator()<lsa::ll_session<block>>(have.ll);
    case host::all_reduce_protocol::lamport: return over.template operator()<lsa::lamport_session<block>>(have.lamport);
    case host::all_reduce_protocol::ll128:  // not asked for
    case host::all_reduce_protocol::simple: break;
  }
  launch(through_windows, shape, have.comm, have.window, count);
}

}  // namespace

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      requirements needs = comm.requirements().lsa_barriers(max_blocks).with(lsa::whole_world{});
      constexpr std::uint32_t packs = 256;  // of each block in one round
      const lsa::ll_handle ll =
          needs.add(lsa::ll_mailboxes{comm.lsa(), max_blocks, lsa::ll_session<block>::packets_for(packs)});
      const lsa::lamport_handle lamport = needs.add(lsa::lamport_mailboxes{comm.lsa(), max_blocks, packs});
      const host::device_communicator device_comm = comm.create_device_comm(needs);

      // The framework's tensor: its address differs from rank to rank.
      const auto memory = example::device_array(max_count * sizeof(element));
      auto* const tensor = reinterpret_cast<element*>(memory.get());
      const host::symmetric_memory window = comm.register_memory(tensor, max_count * sizeof(element));

      const resources have{device_comm.get(), ll, lamport, tensor, window.pointer<element>()};

      cudaStream_t stream = nullptr;
      check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
      const std::size_t counts[] = {64, 1000, 4096, max_count};
      std::vector<example::captured_graph> graphs;
      for (const std::size_t count : counts) {
        const host::all_reduce_plan plan = host::plan_all_reduce(
            {.bytes = count * sizeof(element), .ranks = comm.size(), .max_blocks = max_blocks, .in_windows = true});
        if (comm.rank() == 0) std::printf("%zu elements: %s\n", count, plan.why.c_str());
        graphs.emplace_back(stream, [&](cudaStream_t to) { start(plan, have, count, to); });
      }

      constexpr int rounds = 12;
      for (int round = 0; round < rounds; ++round) {
        const auto which = static_cast<std::size_t>(round * 7 + 3) % std::size(counts);
        example::fill(tensor, max_count, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
        comm.barrier();  // peers read the registered tensor
        graphs[which].replay();
        check_cuda(cudaStreamSynchronize(stream), "the replay");
        device_comm.check();
        comm.barrier();  // peers write it, too
        example::expect(tensor, max_count, "round " + std::to_string(round), [&](std::uint64_t i) {
          return i < counts[which] ? example::sum_of_values(comm.size(), i, round)
                                   : example::value(comm.rank(), i, round);
        });
      }

      graphs.clear();
      check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
      if (comm.rank() == 0) {
        std::printf("registered_buffers: %d replays correct on %d ranks (%s), tensors reached by %s\n", rounds,
                    comm.size(), comm.properties().device_name.c_str(), window.handle_type().c_str());
      }
      comm.barrier();
    });
  });
}
