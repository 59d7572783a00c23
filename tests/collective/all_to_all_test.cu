/// All-to-all, over packets and straight into the receivers' outputs: every shard arrives whole, and nothing else
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
constexpr std::uint32_t packs = 24;  // in a round, so that some shards take several

struct resources {
  device_comm comm;
  lsa::ll_handle ll;
  lsa::lamport_handle lamport;
  lsa::ll128_handle ll128;
};

template <class T>
struct vectors {
  sym_ptr<T> input;
  sym_ptr<T> output;
  std::uint64_t length;  // of a shard
};

struct over_ll {
  static constexpr const char* name = "all-to-all over LL";
  static constexpr bool can_be_in_place = true;
};
struct over_lamport {
  static constexpr const char* name = "all-to-all over Lamport";
  static constexpr bool can_be_in_place = true;
};
struct over_ll128 {
  static constexpr const char* name = "all-to-all over LL128";
  static constexpr bool can_be_in_place = true;
};
struct zero_copy {
  static constexpr const char* name = "zero-copy all-to-all";
  static constexpr bool can_be_in_place = false;
};

template <class Session, class T>
__device__ void send_packets(Session& session, const vectors<T>& v) {
  const std::uint64_t count = static_cast<std::uint64_t>(session.members().size) * v.length;
  collective::all_to_all<T>(session, collective::slice_of_block(collective::packs_of<T>(v.length)),
                            collective::from_shards<T>{v.input.local(), count, v.length},
                            collective::to_shards<T>{v.output.local(), count, v.length});
}

template <class Way, class T>
__global__ void run(resources at, vectors<T> v) {
  if constexpr (std::is_same_v<Way, over_ll>) {
    lsa::ll_session session{block{}, at.comm, at.ll, blockIdx.x};
    send_packets(session, v);
  } else if constexpr (std::is_same_v<Way, over_lamport>) {
    lsa::lamport_session session{block{}, at.comm, at.lamport, blockIdx.x};
    send_packets(session, v);
  } else if constexpr (std::is_same_v<Way, over_ll128>) {
    lsa::ll128_session session{block{}, at.comm, at.ll128, blockIdx.x};
    send_packets(session, v);
  } else {
    lsa::barrier_session barrier{block{}, at.comm, blockIdx.x};
    collective::all_to_all_zero_copy<T>(barrier, v.input.local(), v.output, v.length);
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
  void add(std::uint64_t length) {
    const int rank = all_.comm().rank();
    const int ranks = all_.comm().size();
    const int round = all_.call();
    const bool in_place = Way::can_be_in_place && round % 3 == 0;
    // Inputs are of another alignment on each rank, and outputs of another one in each call.
    const std::uint64_t place = all_.reserve((static_cast<std::uint64_t>(ranks) * length + 16) * sizeof(T));
    const std::uint64_t out_at = place + static_cast<std::uint64_t>(round % 4) * sizeof(T);
    const std::uint64_t in_at = in_place ? out_at : place + static_cast<std::uint64_t>((round + rank) % 5) * sizeof(T);
    for (int peer = 0; peer < ranks; ++peer) {
      const std::uint64_t shard = static_cast<std::uint64_t>(peer) * length * sizeof(T);
      all_.fill(in_at + shard, length, sizeof(T), peer, in_place);
      all_.expect(out_at + shard, length, sizeof(T), peer, Way::name);
    }
    const vectors<T> v{{all_.inputs(in_place), in_at}, {all_.outputs(), out_at}, length};
    const unsigned blocks = 1 + static_cast<unsigned>(round) % max_blocks;
    all_.add_launch([this, v, blocks](cudaStream_t stream) {
      launch(run<Way, T>, {.grid = blocks, .block = threads, .stream = stream}, at_, v);
    });
  }

  /// Sizes change from one to the next.
  template <class Way, class T>
  void add_some() {
    constexpr std::uint64_t lengths[] = {65, 1, 333, 16, 0, 129, 607};
    for (int i = 0; i < 3; ++i, ++added_) add<Way, T>(lengths[static_cast<std::size_t>(added_) % std::size(lengths)]);
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

TEST_CASE("all-to-alls bring every shard whole to its receiver, one after another, for any number of ranks") {
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
      }
      all.add_some<zero_copy, std::uint8_t>();
      all.add_some<zero_copy, four_words>();
      all.replay(comm.size() == 3 ? 3 : 1);
    });
  }
}
