/// All-to-all with counts on the device: every piece arrives whole, the receiver learns its length, and nothing else
/// changes.
#include <devcomm/devcomm.cuh>

#include "collective/moved_vectors.hpp"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <list>
#include <set>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 2;
constexpr std::uint32_t packs = 24;  // in a round, so that some pieces take several
constexpr int max_ranks = 8;

struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::lamport_handle lamport;
  lsa::ll128_handle ll128;
};

/// How elements are spread over the receivers.
enum class spread { even, none, all_to_one, skewed, only_to_self, one_sends };
constexpr spread spreads[] = {spread::skewed, spread::all_to_one, spread::none,
                              spread::even,   spread::one_sends,  spread::only_to_self};

std::uint64_t count_of(spread how, std::uint64_t most, int from, int to, int ranks) {
  switch (how) {
    case spread::even: return most;
    case spread::none: return 0;
    case spread::all_to_one: return to == ranks / 2 ? most : 0;
    case spread::skewed: return most * static_cast<std::uint64_t>((3 * from + 5 * to) % 7) / 6;
    case spread::only_to_self: return from == to ? most : 0;
    case spread::one_sends: break;
  }
  return from == ranks - 1 ? most : 0;
}

enum class layout { packed, strided };

template <class T>
struct vectors {
  collective::from_pieces<T> input;
  sym_ptr<T> output;
  std::uint64_t room;  // of the output, or of each piece in it
  layout where;
  std::uint64_t* received;    // as many as members, of block 0
  status* outcome = nullptr;  // of block 0
};

struct over_ll {
  static constexpr const char* name = "all-to-all-v over LL";
};
struct over_lamport {
  static constexpr const char* name = "all-to-all-v over Lamport";
};
struct over_ll128 {
  static constexpr const char* name = "all-to-all-v over LL128";
};
struct zero_copy {
  static constexpr const char* name = "zero-copy all-to-all-v, counts over LL";
};
struct zero_copy_lamport {
  static constexpr const char* name = "zero-copy all-to-all-v, counts over Lamport";
};

template <class T>
__device__ void tell(const vectors<T>& v, status outcome) {
  if (v.outcome != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *v.outcome = outcome;
}
template <class Session, class T>
__device__ void send_packets(Session& session, const vectors<T>& v, std::uint64_t* table) {
  if (v.where == layout::packed) {
    const collective::to_packed_pieces<T> pieces{v.output.local(), table, v.room};
    collective::all_to_all_v<T>(session, v.input.counts, table, v.input, pieces);
    tell(v, pieces.outcome(session.members().size));
  } else {
    collective::all_to_all_v<T>(session, v.input.counts, table, v.input,
                                collective::to_pieces<T>{v.output.local(), table, v.room});
  }
}
template <class Session, class T>
__device__ void send_directly(const resources& at, Session& session, const vectors<T>& v, std::uint64_t* table) {
  lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
  tell(v, collective::all_to_all_v_zero_copy<T>(barrier, session, v.input, table, v.output, v.room));
}

template <class Way, class T>
__global__ void run(resources at, vectors<T> v) {
  __shared__ std::uint64_t table[2 * max_ranks];
  if constexpr (std::is_same_v<Way, over_ll>) {
    lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
    send_packets(session, v, table);
  } else if constexpr (std::is_same_v<Way, over_lamport>) {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    send_packets(session, v, table);
  } else if constexpr (std::is_same_v<Way, over_ll128>) {
    lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
    send_packets(session, v, table);
  } else if constexpr (std::is_same_v<Way, zero_copy>) {
    lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
    send_directly(at, session, v, table);
  } else {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    send_directly(at, session, v, table);
  }
  block{}.sync();
  if (blockIdx.x == 0 && threadIdx.x < static_cast<unsigned>(at.comm.size))
    v.received[threadIdx.x] = table[threadIdx.x];
}

requirements needs_of(const host::communicator& comm, resources& at) {
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  at.ll = needs.add(lsa::ll_mailboxes{comm.lsa(), max_blocks, 2 * packs});
  at.lamport = needs.add(lsa::lamport_mailboxes{comm.lsa(), max_blocks, packs});
  at.ll128 = needs.add(lsa::ll128_mailboxes{comm.lsa(), max_blocks, lsa::ll128_session<block>::packets_for(packs)});
  return needs;
}

class program {
 public:
  explicit program(host::communicator& comm) : all_(comm, needs_of(comm, at_)) { at_.comm = all_.device_comm(); }

  template <class Way, class T>
  void add(std::uint64_t most, spread how, bool is_cut) {
    constexpr bool is_direct = std::is_same_v<Way, zero_copy> || std::is_same_v<Way, zero_copy_lamport>;
    const int rank = all_.comm().rank();
    const int ranks = all_.comm().size();
    const int round = all_.call();
    const layout where = is_direct || round % 2 == 0 ? layout::packed : layout::strided;
    // Inputs are of another alignment on each rank, and outputs of another one in each call.
    const std::uint64_t place = all_.reserve((static_cast<std::uint64_t>(ranks) * (most + 3) + 16) * sizeof(T));
    const std::uint64_t out_at = place + static_cast<std::uint64_t>(round % 4) * sizeof(T);
    const std::uint64_t in_at = place + static_cast<std::uint64_t>((round + rank) % 5) * sizeof(T);

    std::vector<std::uint64_t> counts;
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint64_t> lengths;
    std::uint64_t before = 0;
    std::uint64_t longest = 0;  // of all ranks' outputs
    for (int peer = 0; peer < ranks; ++peer) {
      counts.push_back(count_of(how, most, rank, peer, ranks));
      offsets.push_back(before);
      all_.fill(in_at + before * sizeof(T), counts.back(), sizeof(T), peer);
      before += counts.back() + static_cast<std::uint64_t>(peer % 3);
      lengths.push_back(count_of(how, most, peer, rank, ranks));
      std::uint64_t output = 0;
      for (int from = 0; from < ranks; ++from) output += count_of(how, most, from, peer, ranks);
      longest = std::max(longest, output);
    }
    const std::uint64_t whole = where == layout::packed ? longest : most;
    const std::uint64_t room = is_cut ? whole / 2 : whole;
    std::uint64_t begin = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      const std::uint64_t length = lengths[static_cast<std::size_t>(peer)];
      if (where == layout::strided) begin = static_cast<std::uint64_t>(peer) * room;
      const std::uint64_t left = where == layout::strided ? room : room - std::min(begin, room);
      all_.expect(out_at + begin * sizeof(T), std::min(length, left), sizeof(T), peer, Way::name);
      begin += length;
    }
    // What the kernel reads of them is in device memory.
    auto& device_counts = words_.emplace_back(counts);
    auto& device_offsets = words_.emplace_back(offsets);
    auto& received = words_.emplace_back(static_cast<std::size_t>(ranks), 0xff);
    const vectors<T> v{
        {reinterpret_cast<const T*>(all_.inputs().local_pointer(in_at)), device_counts.get(), device_offsets.get()},
        {all_.outputs(), out_at},
        room,
        where,
        received.get()};
    const unsigned blocks = 1 + static_cast<unsigned>(round) % max_blocks;
    all_.add_launch([this, v, blocks](cudaStream_t stream) {
      launch(run<Way, T>, {.grid = blocks, .block = threads, .stream = stream}, at_, v);
    });
    expected_.push_back({&received, lengths, std::string(Way::name) + ", call " + std::to_string(round)});
  }

  /// Sizes and spreads change from one to the next.
  template <class Way, class T>
  void add_some() {
    constexpr std::uint64_t counts[] = {65, 1, 333, 16, 607};
    for (int i = 0; i < 3; ++i, ++added_)
      add<Way, T>(counts[static_cast<std::size_t>(added_) % std::size(counts)],
                  spreads[static_cast<std::size_t>(added_) % std::size(spreads)], added_ % 4 >= 2);
  }

  void replay(int times) {
    all_.replay(times);
    for (const auto& expected : expected_)
      test::require(expected.received->read() == expected.lengths, expected.what + ": a length is wrong");
  }

 private:
  struct lengths_of_call {
    test::device_array<std::uint64_t>* received;
    std::vector<std::uint64_t> lengths;
    std::string what;
  };

  resources at_{};
  test::moves all_;
  std::list<test::device_array<std::uint64_t>> words_;
  std::vector<lengths_of_call> expected_;
  int added_ = 0;
};

}  // namespace

TEST_CASE("all-to-alls with counts on the device bring every piece whole to its receiver, and tell its length") {
  const std::set<int> ranks_with_lines = {1, 3, 8};  // they are slow to simulate
  for (const int ranks : {1, 2, 3, 5, 8}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [&](host::communicator& comm) {
      program all(comm);
      all.add_some<over_ll, std::uint8_t>();
      all.add_some<over_lamport, float>();
      all.add_some<zero_copy, std::uint16_t>();
      all.add_some<over_lamport, __nv_bfloat16>();
      all.add_some<over_ll, double>();
      all.add_some<zero_copy_lamport, std::uint64_t>();
      all.add_some<over_lamport, __nv_fp8_e4m3>();
      if (ranks_with_lines.count(comm.size()) != 0) {
        all.add_some<over_ll128, std::int64_t>();
        all.add_some<over_ll128, std::uint8_t>();
      }
      all.add_some<zero_copy, float>();
      all.replay(comm.size() == 3 ? 3 : 1);
    });
  }
}

namespace {

/// Elements that `from` has for `to`, many more than there is memory for; a number of more than 31 bits.
std::uint64_t huge_count(int from, int to) {
  return (std::uint64_t{1} << (34 + 5 * from)) + static_cast<std::uint64_t>(1000 * from + to);
}

}  // namespace

TEST_CASE("zero-copy all-to-alls bring counts of any size, where outputs have room for the first elements alone") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    constexpr std::uint64_t room = 300;
    resources at{};
    const requirements needs = needs_of(comm, at);
    const auto device_comm = comm.create_device_comm(needs);
    at.comm = device_comm.get();
    const auto output = comm.allocate(2 * room * sizeof(float));
    const auto element = [](int from, std::uint64_t i) {
      return static_cast<float>(from * 1000) + static_cast<float>(i);
    };
    std::vector<std::uint64_t> counts, lengths;
    for (int peer = 0; peer < comm.size(); ++peer) {
      counts.push_back(huge_count(comm.rank(), peer));
      lengths.push_back(huge_count(peer, comm.rank()));
    }
    std::vector<float> values;
    for (std::uint64_t i = 0; i < room; ++i) values.push_back(element(comm.rank(), i));
    const test::device_array<float> input(values);
    const test::device_array<std::uint64_t> device_counts(counts);
    const test::device_array<std::uint64_t> offsets(static_cast<std::size_t>(comm.size()));
    const test::device_array<std::uint64_t> received(static_cast<std::size_t>(comm.size()), 0xff);
    const test::device_array<status> outcome(1);
    const vectors<float> v{{input.get(), device_counts.get(), offsets.get()},
                           output.pointer<float>(),
                           room,
                           layout::packed,
                           received.get(),
                           outcome.get()};
    for (const auto kernel : {run<zero_copy, float>, run<zero_copy_lamport, float>}) {
      check_cuda(cudaMemsetAsync(output.data(), 0, 2 * room * sizeof(float), cudaStreamPerThread), "cudaMemsetAsync");
      test::finish("cudaMemsetAsync");
      comm.barrier();
      launch(kernel, {.grid = max_blocks, .block = threads, .stream = cudaStreamPerThread}, at, v);
      test::finish("an all-to-all with counts");
      device_comm.check();
      comm.barrier();
      test::require(outcome.read().front() == status::truncated, "an output that is too small is not told of");
      test::require(received.read() == lengths, "a length is wrong on rank " + std::to_string(comm.rank()));
      std::vector<float> got(2 * room);
      check_cuda(cudaMemcpyAsync(got.data(), output.data(), got.size() * sizeof(float), cudaMemcpyDefault,
                                 cudaStreamPerThread),
                 "cudaMemcpyAsync");
      test::finish("cudaMemcpyAsync");
      for (std::uint64_t i = 0; i < got.size(); ++i)
        test::require(got[i] == (i < room ? element(0, i) : 0), [&] {
          return "element " + std::to_string(i) + " is wrong on rank " + std::to_string(comm.rank());
        });
      comm.barrier();
    }
  });
}

namespace {

/// Pieces by two sessions in turn. Threads look at `received` late, each after another time.
__global__ void take_turns(resources at, vectors<int> v, unsigned* wrong, status* outcomes) {
  __shared__ std::uint64_t received[max_ranks + 1];
  lsa::ll_session first{block{}, at.comm, at.ll, 0};
  lsa::ll128_session second{block{}, at.comm, at.ll128, 0};
  const collective::to_packed_pieces<int> pieces{v.output.local(), received, v.room};
  const auto ranks = static_cast<unsigned>(at.comm.size);
  for (unsigned call = 0; call < 2; ++call) {
    const std::uint64_t* counts = v.input.counts + call * ranks;
    const collective::from_pieces<int> input{v.input.data, counts, v.input.offsets};
    if (call == 0) collective::all_to_all_v<int>(first, counts, received, input, pieces);
    if (call == 1) collective::all_to_all_v<int>(second, counts, received, input, pieces);
    for (const std::uint64_t begin = arch::global_time();
         arch::global_time() - begin < 1000 * std::uint64_t{threadIdx.x % 7};)
      __nanosleep(100);
    for (unsigned m = 0; m < ranks; ++m)
      if (received[m] != 10 * (call + 1) + m) atomicAdd(wrong, 1u);
    const status outcome = pieces.outcome(at.comm.size);
    if (threadIdx.x == 0) outcomes[call] = outcome;
  }
}

}  // namespace

TEST_CASE("what an all-to-all has received is there until the group makes its next call, over whichever session") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    resources at{};
    const requirements needs = needs_of(comm, at);
    const auto device_comm = comm.create_device_comm(needs);
    at.comm = device_comm.get();
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::uint64_t room = 10 * ranks + 3;  // enough for the first call alone
    const auto output = comm.allocate(room * sizeof(int));
    const test::device_array<int> input(64);
    std::vector<std::uint64_t> counts;
    for (std::uint64_t call = 0; call < 2; ++call)
      for (std::size_t m = 0; m < ranks; ++m)
        counts.push_back(10 * (call + 1) + static_cast<std::uint64_t>(comm.rank()));
    const test::device_array<std::uint64_t> device_counts(counts);
    const test::device_array<std::uint64_t> offsets(ranks);
    const test::device_array<unsigned> wrong(1);
    const test::device_array<status> outcomes(2, 0xff);
    const vectors<int> v{
        {input.get(), device_counts.get(), offsets.get()}, output.pointer<int>(), room, layout::packed, nullptr};
    comm.barrier();
    launch(take_turns, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, at, v, wrong.get(),
           outcomes.get());
    test::finish("take_turns");
    device_comm.check();
    test::require(wrong.read().front() == 0, "a length was overwritten on rank " + std::to_string(comm.rank()));
    test::require(outcomes.read() == std::vector{status::success, status::truncated}, "outcomes of the pieces");
    comm.barrier();
  });
}
