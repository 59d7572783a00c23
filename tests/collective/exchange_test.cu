/// Exchange, over packets and straight into the receiver's output: every vector arrives whole, and nothing else
/// changes.
#include <devcomm/devcomm.cuh>

#include "collective/moved_vectors.hpp"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 2;
constexpr std::uint32_t packs = 24;  // in a round, so that some vectors take several

struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::lamport_handle lamport;
  lsa::ll128_handle ll128;
};

/// A rank's partners: to the next and from the previous, back, in pairs with neighbors, with itself, or along an open
/// chain, whose ends have one partner.
enum class pattern { next, previous, swapped, self, chain };
constexpr pattern patterns[] = {pattern::next, pattern::chain, pattern::swapped, pattern::previous, pattern::self};

using collective::partners;

partners partners_of(pattern which, int rank, int ranks) {
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  const int neighbor = (rank ^ 1) < ranks ? rank ^ 1 : rank;
  switch (which) {
    case pattern::next: return {next, previous};
    case pattern::previous: return {previous, next};
    case pattern::swapped: return {neighbor, neighbor};
    case pattern::self: return {rank, rank};
    case pattern::chain: break;
  }
  return {rank + 1 < ranks ? rank + 1 : collective::no_member, rank - 1};
}

template <class T>
struct vectors {
  sym_ptr<T> input;
  sym_ptr<T> output;
  std::uint64_t count;
  partners with;
  std::uint32_t head;  // packs of a block's share that go as packets
  std::uint32_t tail;
};

struct over_ll {
  static constexpr const char* name = "exchange over LL";
  static constexpr bool can_be_in_place = true;
};
struct over_lamport {
  static constexpr const char* name = "exchange over Lamport";
  static constexpr bool can_be_in_place = true;
};
struct over_ll128 {
  static constexpr const char* name = "exchange over LL128";
  static constexpr bool can_be_in_place = true;
};
struct with_lamport_ends {
  static constexpr const char* name = "zero-copy exchange with Lamport packets at its ends";
  static constexpr bool can_be_in_place = false;
};
struct with_ll128_ends {
  static constexpr const char* name = "zero-copy exchange with LL128 packets at its ends";
  static constexpr bool can_be_in_place = false;
};
struct zero_copy {
  static constexpr const char* name = "zero-copy exchange";
  static constexpr bool can_be_in_place = false;
};

template <class Session, class T>
__device__ void exchange_packets(Session& session, const vectors<T>& v) {
  collective::exchange<T>(session, v.with, collective::slice_of_block(collective::packs_of<T>(v.count)),
                          collective::from_memory<T>{v.input.local(), v.count},
                          collective::to_memory<T>{v.output.local(), v.count});
}

template <class Way, class T>
__global__ void run(resources at, vectors<T> v) {
  if constexpr (std::is_same_v<Way, over_ll>) {
    lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
    exchange_packets(session, v);
  } else if constexpr (std::is_same_v<Way, over_lamport>) {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    exchange_packets(session, v);
  } else if constexpr (std::is_same_v<Way, over_ll128>) {
    lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
    exchange_packets(session, v);
  } else if constexpr (std::is_same_v<Way, with_lamport_ends>) {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    const collective::packet_ends<lsa::lamport_session<block>> ends{session, v.head, v.tail};
    collective::exchange_zero_copy<T>(barrier, ends, v.with, v.input.local(), v.output, v.count);
  } else if constexpr (std::is_same_v<Way, with_ll128_ends>) {
    lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    const collective::packet_ends<lsa::ll128_session<block>> ends{session, v.head, v.tail};
    collective::exchange_zero_copy<T>(barrier, ends, v.with, v.input.local(), v.output, v.count);
  } else {
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    collective::exchange_zero_copy<T>(barrier, v.with, v.input.local(), v.output, v.count);
  }
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
  void add(std::uint64_t count, pattern which) {
    const int rank = all_.comm().rank();
    const int round = all_.call();
    const partners with = partners_of(which, rank, all_.comm().size());
    const bool in_place = Way::can_be_in_place && round % 3 == 0 && with.to >= 0 && with.from >= 0;
    // Inputs are of another alignment on each rank, and outputs of another one in each call.
    const std::uint64_t place = all_.reserve((count + 16) * sizeof(T));
    const std::uint64_t out_at = place + static_cast<std::uint64_t>(round % 4) * sizeof(T);
    const std::uint64_t in_at = in_place ? out_at : place + static_cast<std::uint64_t>((round + rank) % 5) * sizeof(T);
    if (with.to >= 0) all_.fill(in_at, count, sizeof(T), with.to, in_place);
    if (with.from >= 0) all_.expect(out_at, count, sizeof(T), with.from, Way::name);
    const vectors<T> v{{all_.inputs(in_place), in_at},
                       {all_.outputs(), out_at},
                       count,
                       with,
                       static_cast<std::uint32_t>(round * 7 % 40),
                       static_cast<std::uint32_t>(round * 5 % 23)};
    const unsigned blocks = 1 + static_cast<unsigned>(round) % max_blocks;
    const unsigned block = round % 4 == 3 ? 32 : threads;
    all_.add_launch([this, v, blocks, block](cudaStream_t stream) {
      launch(run<Way, T>, {.grid = blocks, .block = block, .stream = stream}, at_, v);
    });
  }

  /// Sizes and patterns change from one to the next.
  template <class Way, class T>
  void add_some() {
    constexpr std::uint64_t counts[] = {129, 1, 700, 16, 0, 333, 1207};
    for (int i = 0; i < 3; ++i, ++added_)
      add<Way, T>(counts[static_cast<std::size_t>(added_) % std::size(counts)],
                  patterns[static_cast<std::size_t>(added_) % std::size(patterns)]);
  }

  void replay(int times) { all_.replay(times); }

 private:
  resources at_{};
  test::moves all_;
  int added_ = 0;
};

struct four_words {
  std::uint32_t words[4];
};

}  // namespace

TEST_CASE("exchanges bring every vector whole to its receiver, one after another, for any number of ranks") {
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
      all.add_some<zero_copy, std::uint64_t>();
      all.add_some<over_lamport, __nv_fp8_e4m3>();
      if (ranks_with_lines.count(comm.size()) != 0) {
        all.add_some<over_ll128, std::int64_t>();
        all.add_some<over_ll128, std::uint8_t>();
        all.add_some<with_ll128_ends, std::int32_t>();
      }
      all.add_some<with_lamport_ends, __nv_bfloat16>();
      all.add_some<with_lamport_ends, float>();
      all.add_some<zero_copy, std::uint8_t>();
      all.add_some<zero_copy, four_words>();
      all.replay(comm.size() == 3 ? 3 : 1);
    });
  }
}
