/// Exchange and all-to-all, which only move elements. In one file: most of the time to compile either goes into the
/// headers.
#include "perf/nccl_algorithms.hpp"
#include "perf/packets_or_windows.cuh"
#include "perf/random_data.hpp"
#include "perf/skewed_counts.hpp"

namespace perf {
namespace {

using namespace devcomm;

/// With LL128 beside the other packets.
template <class OneShot, class Direct>
class packets_lines_or_windows : public packets_or_windows<OneShot, Direct> {
 public:
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_or_windows<OneShot, Direct>::make_algorithms(context);
    made.push_back(std::make_unique<packets::packet_algorithm<OneShot, packets::ll128>>(context));
    return made;
  }
};

struct exchange_packets {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = true;
  static constexpr std::uint64_t max_bytes = ~std::uint64_t{0};

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    const auto with = collective::partners::in_ring(session.members().rank, session.members().size);
    collective::exchange<T>(session, with, packs, produce, consume);
  }
};

template <collective::copy_buffers Buffers>
struct exchange_between_windows {
  static constexpr bool in_turn = Buffers == collective::copy_buffers::alternating;
  static constexpr const char* name = in_turn ? "zero_copy_in_turn" : "zero_copy";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = true;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    const auto with = collective::partners::in_ring(barrier.members().rank, barrier.members().size);
    collective::exchange_zero_copy<T>(barrier, with, input.local(), output, count, Buffers);
  }
};
using exchange_direct = exchange_between_windows<collective::copy_buffers::reused>;
using exchange_in_turn = exchange_between_windows<collective::copy_buffers::alternating>;

template <class Session, class T>
__global__ void __launch_bounds__(max_threads, 1)
    exchange_with_ends(device_comm comm, typename Session::handle mailboxes, std::uint32_t head, std::uint32_t tail,
                       const T* input, sym_ptr<T> output, std::uint64_t count) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const auto with = collective::partners::in_ring(session.members().rank, session.members().size);
  collective::exchange_zero_copy<T>(barrier, collective::packet_ends<Session>{session, head, tail}, with, input, output,
                                    count);
}

/// Zero-copy, but for so many KiB over all blocks that go as packets first, and last.
template <class Session, unsigned Head, unsigned Tail>
class ends_algorithm final : public device_algorithm {
 public:
  explicit ends_algorithm(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    needs.lsa_barriers(max_blocks);
    mailboxes_ = needs.add(lsa::mailboxes_for<Session>(
        needs.lsa(), max_blocks, is_simulated() ? packets::simulated_room : packets::channel_room));
    if (const host::capability& lines = comm().properties().ll128;
        needs.required(demand::ll128) != 0 && !lines.available) {
      obstacle_ = "no LL128 mailboxes: " + lines.reason;
      return;
    }
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override {
    return "zero_copy_" + std::to_string(Head) + "_" + std::to_string(Tail);
  }
  [[nodiscard]] std::string protocol() const override { return to_string(Session::handle::protocol); }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    const bool can = with_type(what.type, []<class T>(T) { return Session::template can_carry<T>; });
    return can ? "" : std::string("Lamport mailboxes do not carry ") + to_string(what.type);
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<exchange_direct>(what), is_simulated());
  }
  void start(const work& what) override {
    const auto packs = [&](unsigned kib) { return static_cast<std::uint32_t>(kib * 64 / what.shape.blocks); };
    using element = __nv_bfloat16;
    launch(exchange_with_ends<Session, element>, shape_of(what), device_comm_->get(), mailboxes_, packs(Head),
           packs(Tail), static_cast<const element*>(what.input), in_window<element>(what.output),
           what.bytes / sizeof(element));
  }

 private:
  typename Session::handle mailboxes_{};
  std::string obstacle_;
};

/// By copy engines, into a window or from one. `Buffers` other than `reused`: a call is two, the first of which uses
/// memory of its own.
template <class Moves, bool FromWindow, collective::copy_buffers Buffers>
class copy_engine_algorithm final : public device_algorithm {
  static constexpr bool alternating = Buffers == collective::copy_buffers::alternating;

 public:
  explicit copy_engine_algorithm(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    const auto signals = needs.add(collective::copy_engine_signals{comm().lsa()});
    device_comm_ = comm().create_device_comm(needs);
    copies_.emplace(device_comm_->get(), signals);
    if (alternating) other_.emplace(comm().allocate(context.max_bytes));
  }

  [[nodiscard]] std::string name() const override { return alternating ? "copies_in_turn" : "copies"; }
  [[nodiscard]] std::string protocol() const override { return FromWindow ? "from_window" : "to_window"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override { return {{}}; }
  [[nodiscard]] launch_shape fitted(const work&) const override { return {}; }
  [[nodiscard]] int times_in_call(const work&) const override { return alternating ? 2 : 1; }
  void start(const work& what) override {
    if (alternating) move(what, other_->pointer<char>());
    move(what, in_window<char>(what.output));
  }

 private:
  void move(const work& what, const sym_ptr<char>& output) {
    if constexpr (FromWindow) {
      Moves::run(*copies_, what, in_window<char>(what.input), output.local(), Buffers);
    } else {
      Moves::run(*copies_, what, static_cast<const char*>(what.input), output, Buffers);
    }
  }

  std::optional<collective::copy_engines> copies_;
  std::optional<host::symmetric_memory> other_;
};

template <class Moves>
void add_copy_engines(const rank_context& context, algorithms& made) {
  using collective::copy_buffers;
  made.push_back(std::make_unique<copy_engine_algorithm<Moves, false, copy_buffers::reused>>(context));
  made.push_back(std::make_unique<copy_engine_algorithm<Moves, true, copy_buffers::reused>>(context));
  made.push_back(std::make_unique<copy_engine_algorithm<Moves, false, copy_buffers::alternating>>(context));
}

struct exchange_copies {
  template <class Input, class Output>
  static void run(collective::copy_engines& copies, const work& what, Input input, Output output,
                  collective::copy_buffers buffers) {
    copies.exchange(collective::partners::in_ring(what.rank, what.ranks), input, output, what.bytes, what.stream,
                    buffers);
  }
};

struct all_to_all_copies {
  template <class Input, class Output>
  static void run(collective::copy_engines& copies, const work& what, Input input, Output output,
                  collective::copy_buffers buffers) {
    copies.all_to_all(input, output, what.shard() * bytes_of(what.type), what.stream, buffers);
  }
};

class exchange_with_neighbors final : public packets_lines_or_windows<exchange_packets, exchange_direct> {
 public:
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_lines_or_windows::make_algorithms(context);
    made.push_back(std::make_unique<ends_algorithm<packets::lamport, 0, 512>>(context));
    made.push_back(std::make_unique<ends_algorithm<packets::lamport, 256, 512>>(context));
    made.push_back(std::make_unique<ends_algorithm<packets::ll128, 256, 512>>(context));
    made.push_back(std::make_unique<windows::window_algorithm<exchange_in_turn>>(context));
    add_copy_engines<exchange_copies>(context, made);
    return made;
  }
  [[nodiscard]] std::string name() const override { return "exchange"; }
  [[nodiscard]] std::string about() const override {
    return "bytes that each rank sends to the next, and gets from the previous";
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::exchange, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.count(), collective::partners::in_ring(what.rank, what.ranks).from}, seed);
  }

 protected:
  [[nodiscard]] link_load load(const work& what) const override {
    const auto bytes = what.ranks == 1 ? 0.0 : static_cast<double>(what.bytes);
    return {.of_packets = bytes, .of_windows = bytes, .barriers = 1, .relaxed_barriers = 1};
  }
};

struct all_to_all_packets {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::of_both;
  static constexpr bool only_moves = true;
  static constexpr std::uint64_t max_bytes = ~std::uint64_t{0};

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_to_all<T>(session, packs, produce, consume);
  }
};

template <collective::copy_buffers Buffers>
struct all_to_all_between_windows {
  static constexpr bool in_turn = Buffers == collective::copy_buffers::alternating;
  static constexpr const char* name = in_turn ? "zero_copy_in_turn" : "zero_copy";
  static constexpr shards in_shards = shards::of_both;
  static constexpr bool only_moves = true;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_to_all_zero_copy<T>(barrier, input.local(), output,
                                        count / static_cast<std::uint64_t>(barrier.members().size), Buffers);
  }
};
using all_to_all_direct = all_to_all_between_windows<collective::copy_buffers::reused>;
using all_to_all_in_turn = all_to_all_between_windows<collective::copy_buffers::alternating>;

class all_to_all_of_shards final : public packets_lines_or_windows<all_to_all_packets, all_to_all_direct> {
 public:
  [[nodiscard]] std::string name() const override { return "all_to_all"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of each rank's input, of which a shard goes to each rank";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / ranks; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override { return granularity_of_shards(what); }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_lines_or_windows::make_algorithms(context);
    made.push_back(std::make_unique<windows::window_algorithm<all_to_all_in_turn>>(context));
    add_copy_engines<all_to_all_copies>(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_to_all, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.shard(), 0, static_cast<std::uint64_t>(what.rank) * what.shard()}, seed);
  }

 protected:
  [[nodiscard]] link_load load(const work& what) const override {
    const double others = static_cast<double>(what.bytes) * (what.ranks - 1) / what.ranks;
    return {.of_packets = others, .of_windows = others, .barriers = 1, .relaxed_barriers = 1};
  }
};

constexpr int max_ranks = 64;

template <class Session, class T>
__global__ void __launch_bounds__(max_threads, 1)
    pieces_through_packets(device_comm comm, typename Session::handle mailboxes, collective::from_pieces<T> input,
                           T* output, std::uint64_t capacity) {
  __shared__ std::uint64_t received[max_ranks + 1];
  Session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_to_all_v<T>(session, input.counts, received, input,
                              collective::to_packed_pieces<T>{output, received, capacity});
}

template <class Session, class T>
__global__ void __launch_bounds__(max_threads, 1)
    pieces_through_windows(device_comm comm, typename Session::handle mailboxes, collective::from_pieces<T> input,
                           sym_ptr<T> output, std::uint64_t capacity) {
  __shared__ std::uint64_t table[2 * max_ranks];
  Session session{block{}, comm, mailboxes, blockIdx.x};
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  static_cast<void>(collective::all_to_all_v_zero_copy<T>(barrier, session, input, table, output, capacity));
}

/// `Direct`: straight into the outputs, with only counts as packets.
template <class Session, bool Direct>
class pieces_algorithm final : public device_algorithm {
  using element = __nv_bfloat16;

 public:
  explicit pieces_algorithm(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    needs.lsa_barriers(max_blocks);
    const std::uint32_t room = Direct           ? max_ranks / 2
                               : is_simulated() ? packets::simulated_room
                                                : packets::channel_room;
    mailboxes_ = needs.add(lsa::mailboxes_for<Session>(needs.lsa(), max_blocks, room));
    if (const host::capability& lines = comm().properties().ll128;
        needs.required(demand::ll128) != 0 && !lines.available) {
      obstacle_ = "no LL128 mailboxes: " + lines.reason;
      return;
    }
    device_comm_ = comm().create_device_comm(needs);
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&words_), 2 * max_ranks * sizeof *words_), "cudaMalloc");
  }
  ~pieces_algorithm() override { cudaFree(words_); }

  [[nodiscard]] std::string name() const override { return Direct ? "zero_copy" : "one_shot"; }
  [[nodiscard]] std::string protocol() const override {
    return Direct ? "simple" : to_string(Session::handle::protocol);
  }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    if (what.ranks > max_ranks) return "too many ranks for the kernel's table of counts";
    const bool can = Direct || with_type(what.type, []<class T>(T) { return Session::template can_carry<T>; });
    return can ? "" : std::string("Lamport mailboxes do not carry ") + to_string(what.type);
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes((what.bytes / static_cast<unsigned>(what.ranks) + 15) / 16, is_simulated());
  }
  void start(const work& what) override {
    if (what.bytes != bytes_ || what.type != type_) write_counts(what);
    const collective::from_pieces<element> input{static_cast<const element*>(what.input), words_, words_ + max_ranks};
    const std::uint64_t capacity = what.bytes / sizeof(element);
    if constexpr (Direct) {
      launch(pieces_through_windows<Session, element>, shape_of(what), device_comm_->get(), mailboxes_, input,
             in_window<element>(what.output), capacity);
    } else {
      launch(pieces_through_packets<Session, element>, shape_of(what), device_comm_->get(), mailboxes_, input,
             static_cast<element*>(what.output), capacity);
    }
  }

 private:
  /// The first call of a size is never captured.
  void write_counts(const work& what) {
    const skewed_counts counts{what.count(), what.ranks};
    const std::uint64_t scale = bytes_of(what.type) / sizeof(element);
    std::uint64_t words[2 * max_ranks] = {};
    for (int peer = 0; peer < what.ranks; ++peer) {
      words[peer] = counts.of(what.rank, peer) * scale;
      words[max_ranks + peer] = counts.before_receiver(what.rank, peer) * scale;
    }
    check_cuda(cudaMemcpy(words_, words, sizeof words, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    bytes_ = what.bytes;
    type_ = what.type;
  }

  typename Session::handle mailboxes_{};
  std::string obstacle_;
  std::uint64_t* words_ = nullptr;  // counts, then offsets
  std::uint64_t bytes_ = 0;         // of the call that they are for
  data_type type_ = data_type::bf16;
};

class all_to_all_of_pieces final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "all_to_all_v"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of each rank's input, of which the ranks after it get 1, 2, 3 parts and so on, itself most";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / (ranks + 1.0); }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    const auto parts = static_cast<std::uint64_t>(what.ranks * (what.ranks + 1) / 2);
    return parts * (what.bytes >= 16 * parts ? 16 : bytes_of(what.type));
  }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    const double others = static_cast<double>(what.bytes) * (what.ranks - 1) / (what.ranks + 1);
    const link_load load{.of_packets = others, .of_windows = others, .barriers = 1, .relaxed_barriers = 1};
    return choose_by_floor(what, load, (what.bytes / static_cast<unsigned>(what.ranks) + 15) / 16, blocks);
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<pieces_algorithm<packets::lamport, false>>(context));
    made.push_back(std::make_unique<pieces_algorithm<packets::ll, false>>(context));
    made.push_back(std::make_unique<pieces_algorithm<packets::ll128, false>>(context));
    made.push_back(std::make_unique<pieces_algorithm<packets::ll, true>>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_to_all_v, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    const skewed_counts counts{what.count(), what.ranks};
    std::uint64_t wrong = 0;
    for (int from = 0; from < what.ranks; ++from) {
      work piece = what;
      const std::uint64_t length = counts.of(from, what.rank);
      piece.bytes = length * bytes_of(what.type);
      piece.output = static_cast<std::byte*>(what.output) + counts.before_sender(from, what.rank) * bytes_of(what.type);
      wrong += count_wrong_pieces(piece, {length, from, counts.before_receiver(from, what.rank)}, seed);
    }
    return wrong;
  }
};

const bool are_registered = register_operation(std::make_unique<exchange_with_neighbors>()) &&
                            register_operation(std::make_unique<all_to_all_of_shards>()) &&
                            register_operation(std::make_unique<all_to_all_of_pieces>());

}  // namespace
}  // namespace perf
