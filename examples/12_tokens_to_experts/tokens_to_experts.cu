/// Expert parallelism: each rank's router sends its tokens to the ranks of their experts, which transform them and send
/// them back. How many tokens go where is known on the device alone; no count passes through the host.
///
///     route       how many tokens go to each rank, and in which order           a kernel of this rank
///     dispatch    rows to the ranks of their experts, with their number         all_to_all_v
///     combine     transformed rows back to where they came from                 all_to_all_v, with the counts received
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

constexpr int max_ranks = 64;

/// What the router makes of `tokens` tokens, in device memory.
struct routing {
  std::uint64_t* counts;  ///< elements for each rank
  std::uint32_t* order;   ///< tokens, those for rank 0 first
};

/// A thread for each rank.
__global__ void route(const std::uint32_t* expert, std::uint32_t tokens, std::uint32_t hidden, routing made) {
  std::uint32_t place = 0;
  for (std::uint32_t t = 0; t < tokens; ++t) place += expert[t] < threadIdx.x ? 1 : 0;
  std::uint32_t mine = 0;
  for (std::uint32_t t = 0; t < tokens; ++t)
    if (expert[t] == threadIdx.x) made.order[place + mine++] = t;
  made.counts[threadIdx.x] = std::uint64_t{mine} * hidden;
}

template <class T>
struct tensors {
  const T* tokens;  ///< rows of `hidden` elements, which fill whole packs
  T* at_expert;     ///< rows that came, those of rank 0 first
  T* results;       ///< rows, as `tokens`
  std::uint32_t hidden;
  std::uint64_t capacity;  ///< elements that `at_expert` has room for
};

/// Rows in an order of their own: pack `i` of what goes to, or comes from, `rank`.
template <class T>
struct rows_in_order {
  T* rows;
  const std::uint64_t* counts;
  const std::uint32_t* order;
  std::uint32_t hidden;

  __device__ T* place(int rank, std::uint64_t i) const {
    std::uint64_t before = i * pack<T>::size;
    for (int r = 0; r < rank; ++r) before += counts[r];
    return rows + std::uint64_t{order[before / hidden]} * hidden + before % hidden;
  }
};

template <class T>
__global__ void tokens_to_experts(device_comm comm, lsa::ll_handle mailboxes, routing routed, tensors<T> on) {
  __shared__ std::uint64_t received[max_ranks + 1];
  __shared__ std::uint64_t came_back[max_ranks + 1];
  const rows_in_order<const T> tokens{on.tokens, routed.counts, routed.order, on.hidden};
  const rows_in_order<T> results{on.results, routed.counts, routed.order, on.hidden};
  const collective::to_packed_pieces<T> at_expert{on.at_expert, received, on.capacity};

  lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_to_all_v<T>(
      session, routed.counts, received, [&](int rank, std::uint64_t i) { return load_pack(tokens.place(rank, i)); },
      [&](int rank, std::uint64_t i, pack<T> row) {
        for (int e = 0; e < pack<T>::size; ++e)  // the expert
          row[e] = static_cast<T>(static_cast<float>(row[e]) * static_cast<float>(comm.rank + 1));
        at_expert(rank, i, row);
      });

  // The same thread has stored a pack and sends it back, as the pieces have the same lengths.
  collective::all_to_all_v<T>(
      session, received, came_back,
      [&](int rank, std::uint64_t i) {
        std::uint64_t before = i * pack<T>::size;
        for (int r = 0; r < rank; ++r) before += received[r];
        return load_pack(on.at_expert + before);
      },
      [&](int rank, std::uint64_t i, const pack<T>& row) { store_pack(results.place(rank, i), row); });
}

/// The rank whose expert takes token `t` of `rank`: more of them go to the last ranks, and some ranks get none.
std::uint32_t expert_of(int rank, std::uint32_t t, int ranks) {
  const auto last = static_cast<std::uint32_t>(ranks - 1);
  const auto mixed = (t * 7 + static_cast<std::uint32_t>(rank)) % 11;
  return mixed < 5 ? last : mixed % static_cast<std::uint32_t>(ranks);
}

template <class T>
void run_case(host::communicator& comm, const host::device_communicator& device_comm, lsa::ll_handle mailboxes,
              std::byte* memory, std::uint32_t count, std::uint32_t hidden) {
  const int ranks = comm.size();
  const std::size_t elements = std::size_t{count} * hidden;
  const std::uint64_t capacity = elements * static_cast<std::uint64_t>(ranks);  // if all came here
  std::vector<std::uint32_t> experts(count);
  for (std::uint32_t t = 0; t < count; ++t) experts[t] = expert_of(comm.rank(), t, ranks);

  auto* const counts = reinterpret_cast<std::uint64_t*>(memory);
  auto* const expert = reinterpret_cast<std::uint32_t*>(counts + max_ranks);
  T* const tokens = reinterpret_cast<T*>(expert + 2 * 256);
  T* const results = tokens + elements;
  const routing routed{counts, expert + 256};
  if (count != 0) example::copy_now(expert, experts.data(), count * sizeof experts[0]);
  example::fill(tokens, elements, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
  example::poison(results, elements);

  launch(route, {.grid = 1, .block = static_cast<unsigned>(ranks), .stream = cudaStreamPerThread}, expert, count,
         hidden, routed);
  launch(tokens_to_experts<T>, {.grid = 2, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
         routed, tensors<T>{tokens, results + elements, results, hidden, capacity});
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "tokens_to_experts");
  device_comm.check();

  example::expect(results, elements, example::type_name<T>(), [&](std::uint64_t i) {
    const std::uint32_t token = static_cast<std::uint32_t>(i / hidden);
    return example::value(comm.rank(), i) * static_cast<float>(experts[token] + 1);
  });
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      if (comm.size() > max_ranks) throw std::runtime_error("at most 64 ranks");
      requirements needs = comm.requirements();
      const lsa::ll_handle mailboxes =
          needs.add(lsa::ll_mailboxes{comm.lsa(), 2, lsa::ll_session<block>::packets_for(128)});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto memory = example::device_array(static_cast<std::size_t>(comm.size() + 2) << 18);
      int cases = 0;
      for (const std::uint32_t count : {0u, 1u, 37u + static_cast<unsigned>(comm.rank()), 200u}) {
        run_case<float>(comm, device_comm, mailboxes, memory.get(), count, 128);
        run_case<__nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), count, 256);
        cases += 2;
      }
      if (comm.rank() == 0)
        std::printf("tokens_to_experts: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
    });
  });
}
