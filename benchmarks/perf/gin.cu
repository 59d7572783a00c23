// Operations of the network, which need no LSA team: DEVCOMM_LSA_SIZE=1 makes a host of each rank.
#include "perf/device_algorithm.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/random_data.hpp"

#include <devcomm/devcomm.cuh>

#include <algorithm>
#include <optional>

namespace perf {
namespace {

using namespace devcomm;

using element = __nv_bfloat16;

/// Blocks of a launch, each with a context of its own.
constexpr unsigned max_contexts = 8;
/// Signals of a context: what has come, and what may be sent again.
constexpr std::uint32_t arrived = 0;
constexpr std::uint32_t credit = 1;
/// What has come to the second of two slots.
constexpr std::uint32_t arrived_second = 2;

/// What a block has waited for, in all launches so far.
struct tally {
  std::uint64_t arrivals;
  std::uint64_t credits;
};

/// What blocks move, each a part.
struct message {
  sym_ptr<element> input;
  sym_ptr<element> output;
  std::uint64_t count;
  tally* tallies;
  int times;

  struct part {
    sym_ptr<element> input;
    sym_ptr<element> output;
    std::uint64_t count;
  };
  __device__ part of_block() const {
    const std::uint64_t each = collective::packs_per_block(collective::packs_of<element>(count), gridDim.x);
    const std::uint64_t first = min(each * pack<element>::size * blockIdx.x, count);
    const std::uint64_t last = min(first + each * pack<element>::size, count);
    const auto offset = static_cast<std::int64_t>(first);
    return {input + offset, output + offset, last - first};
  }
  __device__ tally before() const { return tallies[blockIdx.x]; }
  /// The block has no other use of its tally.
  __device__ void leave(const tally& seen) const {
    __syncthreads();
    if (threadIdx.x == 0) tallies[blockIdx.x] = seen;
  }
};

/// How it goes back and forth between ranks 0 and 1.
enum class stroke { signal, value, put };

template <stroke With>
__global__ void __launch_bounds__(max_threads, 1)
    volleys(device_comm comm, gin::context_handle contexts, message ball) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const auto part = ball.of_block();
  tally seen = ball.before();
  for (int trip = 0; trip < ball.times; ++trip) {
    if (trip % 2 != comm.rank) {
      net.wait_signal(arrived, ++seen.arrivals);
      continue;
    }
    const gin::signal_add arrival{arrived, 1, gin::strength::weak};
    if constexpr (With == stroke::signal) {
      net.signal(1 - comm.rank, arrival);
    } else if constexpr (With == stroke::value) {
      const sym_ptr<std::uint64_t> source{part.input.memory, part.input.offset};
      const sym_ptr<std::uint64_t> destination{part.output.memory, part.output.offset};
      net.put_value(1 - comm.rank, destination, *source.local(), arrival);
    } else {
      net.put(1 - comm.rank, part.output, part.input, part.count, arrival);
    }
  }
  net.flush();
  ball.leave(seen);
}

/// Rank 0 puts so many times to rank 1. `Group` posts: a block, or each of its threads.
template <class Group>
__global__ void __launch_bounds__(max_threads, 1)
    stream_of_puts(device_comm comm, gin::context_handle contexts, message goods) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const auto part = goods.of_block();
  tally seen = goods.before();
  if (comm.rank == 0) {
    net.wait_signal(credit, seen.credits++);
    constexpr bool by_threads = devcomm::detail::is_same<Group, thread>;
    const int stride = by_threads ? static_cast<int>(blockDim.x) : 1;
    gin::context poster{Group{}, comm, contexts, blockIdx.x};
    for (int i = by_threads ? static_cast<int>(threadIdx.x) : 0; i < goods.times; i += stride)
      poster.put(1, part.output, part.input, part.count);
    __syncthreads();
    net.signal(1, gin::signal_add{arrived});
  } else if (comm.rank == 1) {
    net.wait_signal(arrived, ++seen.arrivals);
    net.signal(0, gin::signal_add{credit});
  }
  net.flush();
  goods.leave(seen);
}

__global__ void __launch_bounds__(max_threads, 1)
    put_to_next(device_comm comm, gin::context_handle contexts, message goods) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const auto part = goods.of_block();
  const auto ring = collective::partners::in_ring(comm.rank, comm.size);
  tally seen = goods.before();
  net.wait_signal(credit, seen.credits++);
  net.put(ring.to, part.output, part.input, part.count, gin::signal_add{arrived, 1, gin::strength::weak});
  net.wait_signal(arrived, ++seen.arrivals);
  net.signal(ring.from, gin::signal_add{credit});
  net.flush();
  goods.leave(seen);
}

/// Two slots of a block, on each side.
struct two_slots {
  sym_ptr<element> memory;
  std::uint64_t room;  // elements of a slot

  __device__ sym_ptr<element> received(std::uint64_t call) const { return at(blockIdx.x * 4 + call % 2); }
  __device__ sym_ptr<element> sent(std::uint64_t call) const { return at(blockIdx.x * 4 + 2 + call % 2); }

 private:
  __device__ sym_ptr<element> at(std::uint64_t slot) const { return memory + static_cast<std::int64_t>(slot * room); }
};

/// The same for small messages: from slot to slot, so that nothing is flushed. A call gives back the slot that the call
/// before has read, behind its own put, and hears the same of the next rank: that one has read the slot, and so the own
/// one was read. Nothing is under way to a rank that has returned from its last call.
__global__ void __launch_bounds__(max_threads, 1)
    small_to_next(device_comm comm, gin::context_handle contexts, message goods, two_slots slots) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const auto part = goods.of_block();
  const auto ring = collective::partners::in_ring(comm.rank, comm.size);
  tally seen = goods.before();
  const std::uint64_t call = seen.arrivals++;
  const std::uint32_t signal = call % 2 == 0 ? arrived : arrived_second;
  copy(block{}, slots.sent(call).local(), static_cast<const element*>(part.input.local()), part.count);
  net.put(ring.to, slots.received(call), slots.sent(call), part.count, gin::signal_add{signal, 1, gin::strength::weak});
  if (call != 0) net.signal(ring.from, gin::signal_add{credit, 1, gin::strength::weak});
  net.wait_signal(signal, call / 2 + 1);
  copy(block{}, part.output.local(), static_cast<const element*>(slots.received(call).local()), part.count);
  if (call != 0) net.wait_signal(credit, call);
  goods.leave(seen);
}

using fifo_handle = channel::fifo_handle<channel::protocol::network>;

/// A ring of all ranks, in which each block has channels of its own.
__device__ auto ring_of_block(const device_comm& comm, const fifo_handle& fifos) {
  return channel::session{block{}, comm, fifos, channel::from_previous(comm.world(), blockIdx.x),
                          channel::to_next(comm.world(), blockIdx.x)};
}

/// The same as a stream of steps: while one is on its way, the block works on others.
__global__ void __launch_bounds__(max_threads, 1)
    stream_to_next(device_comm comm, fifo_handle fifos, const element* input, element* output, std::uint64_t count) {
  auto ring = ring_of_block(comm, fifos);
  const collective::from_memory<element> mine{input, count};
  const collective::to_memory<element> theirs{output, count};
  const slice packs = collective::slice_of_block(collective::packs_of<element>(count));
  // As far ahead as there are slots: what comes is taken no later than what goes needs its place.
  const std::uint64_t ahead = ring.capacity() * ring.slots();
  for (std::uint64_t begin = packs.begin; begin < packs.end; begin += ahead) {
    const slice next{begin, min(begin + ahead, packs.end)};
    ring.template send<element>(next, mine);
    ring.template recv<element>(next, theirs);
  }
}

template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    ring_of_hosts(device_comm comm, fifo_handle fifos, const T* input, T* output, std::uint64_t count) {
  auto ring = ring_of_block(comm, fifos);
  const collective::from_memory<T> mine{input, count};
  const collective::to_memory<T> result{output, count};
  collective::all_reduce_ring<T>(ring, collective::slice_of_block(collective::packs_of<T>(count)), mine, result, sum{});
}

template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    all_to_all_of_hosts(device_comm comm, gin::context_handle contexts, sym_ptr<T> input, sym_ptr<T> output,
                        std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
  collective::all_to_all_hybrid<T>(barrier, input, output, length);
}

template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    small_all_to_all_of_hosts(device_comm comm, gin::context_handle contexts, collective::network_slot_handle slots,
                              sym_ptr<T> input, sym_ptr<T> output, std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
  collective::all_to_all_one_shot<T>(barrier, input, output, slots, length);
}

template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    all_reduce_of_hosts(device_comm comm, gin::context_handle contexts, sym_ptr<T> input, sym_ptr<T> output,
                        collective::rail_memory<T> rails, std::uint64_t count) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
  collective::all_reduce_hierarchical<T>(barrier, input, output, rails, count, sum{});
}

/// What the algorithms share: contexts, one for each block.
class network_algorithm : public device_algorithm {
 public:
  explicit network_algorithm(const rank_context& context) : device_algorithm(context) {
    const host::capability& network = comm().properties().network;
    if (!network.available) obstacle_ = "no network: " + network.reason;
  }

  [[nodiscard]] std::string protocol() const override { return "gin"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    return what.shape.blocks <= max_contexts ? "" : "it has " + std::to_string(max_contexts) + " contexts";
  }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] launch_shape fitted(const work& what) const override {
    return {std::min(what.shape.blocks, max_contexts), what.shape.threads};
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    std::vector<launch_shape> all;
    for (unsigned blocks = 1; blocks <= max_contexts; blocks *= 2)
      if (blocks == 1 || what.bytes / blocks >= min_of_block) all.push_back({blocks, threads()});
    return all;
  }

 protected:
  /// Bytes. What a proxy moves at once should not be less.
  static constexpr std::uint64_t min_of_block = 262144;

  [[nodiscard]] virtual unsigned threads() const { return 32; }
  /// *Collective*. Adds contexts, with signals of the kernel's own, and barriers, where there is a network.
  void create(requirements needs, std::uint32_t signals, std::uint32_t barriers) {
    if (!obstacle_.empty()) return;
    contexts_ = needs.lsa_barriers(max_contexts)
                    .add(gin::contexts{.world = comm().world(),
                                       .count = max_contexts,
                                       .signals = signals,
                                       .depth = 1024,
                                       .barriers = barriers});
    create(needs);
  }
  /// *Collective*. Without more.
  void create(const requirements& needs) {
    if (obstacle_.empty()) device_comm_ = comm().create_device_comm(needs);
  }

  gin::context_handle contexts_{};

 private:
  std::string obstacle_;
};

/// Messages with signals.
class message_algorithm : public network_algorithm {
 public:
  explicit message_algorithm(const rank_context& context) : network_algorithm(context) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&tallies_), max_contexts * sizeof *tallies_), "cudaMalloc");
    check_cuda(cudaMemset(tallies_, 0, max_contexts * sizeof *tallies_), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    create(comm().requirements(), 3, 0);
  }
  ~message_algorithm() override { cudaFree(tallies_); }

 protected:
  template <class Kernel, class... More>
  void start_kernel(const work& what, Kernel kernel, const More&... more) {
    launch(kernel, shape_of(what), device_comm_->get(), contexts_,
           message{in_window<element>(what.input), in_window<element>(what.output), what.bytes / sizeof(element),
                   tallies_, times_in_call(what)},
           more...);
  }
  /// An even number of times, fewer for large messages.
  [[nodiscard]] int often(const work& what) const {
    if (is_simulated()) return 4;
    return what.bytes <= 65536 ? 200 : what.bytes <= (4u << 20) ? 20 : 4;
  }

 private:
  tally* tallies_ = nullptr;
};

template <stroke With>
class volleys_algorithm final : public message_algorithm {
 public:
  using message_algorithm::message_algorithm;

  [[nodiscard]] std::string name() const override {
    return With == stroke::signal ? "signal" : With == stroke::value ? "put_value" : "put";
  }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.ranks != 2) return "a ping-pong is between two ranks";
    if (With == stroke::value && what.bytes != sizeof(std::uint64_t)) return "a value has 8 bytes";
    return message_algorithm::why_not(what);
  }
  [[nodiscard]] int times_in_call(const work& what) const override { return often(what); }
  void start(const work& what) override { start_kernel(what, volleys<With>); }
};

template <class Group>
class stream_algorithm final : public message_algorithm {
 public:
  using message_algorithm::message_algorithm;

  [[nodiscard]] std::string name() const override {
    return std::is_same_v<Group, block> ? "put_by_block" : "put_by_threads";
  }
  [[nodiscard]] std::string why_not(const work& what) const override {
    return what.ranks < 2 ? "rank 0 puts to rank 1" : message_algorithm::why_not(what);
  }
  [[nodiscard]] int times_in_call(const work& what) const override { return 5 * often(what); }
  void start(const work& what) override { start_kernel(what, stream_of_puts<Group>); }
};

class exchange_algorithm final : public message_algorithm {
 public:
  using message_algorithm::message_algorithm;

  [[nodiscard]] std::string name() const override { return "put"; }
  void start(const work& what) override { start_kernel(what, put_to_next); }
};

class small_exchange_algorithm final : public message_algorithm {
 public:
  explicit small_exchange_algorithm(const rank_context& context)
      : message_algorithm(context),
        memory_(comm().allocate(std::uint64_t{4} * max_contexts * room, comm().properties().pinned_host.available
                                                                            ? host::memory_place::pinned_host
                                                                            : host::memory_place::device)) {}

  [[nodiscard]] std::string name() const override { return "put_through_slots"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    return what.bytes > room ? "a slot has " + std::to_string(room) + " bytes" : message_algorithm::why_not(what);
  }
  void start(const work& what) override {
    start_kernel(what, small_to_next, two_slots{memory_.pointer<element>(), room / sizeof(element)});
  }

 private:
  static constexpr std::uint64_t room = 65536;  // bytes of a slot

  host::symmetric_memory memory_;
};

/// Through FIFOs over the network, one for each block.
class channel_algorithm : public network_algorithm {
 public:
  explicit channel_algorithm(const rank_context& context) : network_algorithm(context) {
    requirements needs = comm().requirements();
    fifos_ = needs.add(channel::network_fifos{
        .contexts = {.world = comm().world(), .count = max_contexts, .depth = 1024}, .count = max_contexts});
    create(needs);
  }

  [[nodiscard]] std::string protocol() const override { return "channel"; }

 protected:
  [[nodiscard]] unsigned threads() const override { return max_threads; }

  fifo_handle fifos_{};
};

class channel_exchange final : public channel_algorithm {
 public:
  using channel_algorithm::channel_algorithm;

  [[nodiscard]] std::string name() const override { return "stream"; }
  void start(const work& what) override {
    launch(stream_to_next, shape_of(what), device_comm_->get(), fifos_, static_cast<const element*>(what.input),
           static_cast<element*>(what.output), what.bytes / sizeof(element));
  }
};

class channel_all_reduce final : public channel_algorithm {
 public:
  using channel_algorithm::channel_algorithm;

  [[nodiscard]] std::string name() const override { return "ring"; }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      launch(ring_of_hosts<T>, shape_of(what), device_comm_->get(), fifos_, static_cast<const T*>(what.input),
             static_cast<T*>(what.output), what.count());
    });
  }
};

/// What takes at most this many trips through slots; more are for large vectors.
constexpr std::uint64_t max_trips = 4;
constexpr std::uint32_t slot_bytes_of_collectives = 65536;

/// Large shards straight to the outputs, small ones through slots, or as the size says.
enum class shards { hybrid, one_shot, by_size };

class all_to_all_algorithm final : public network_algorithm {
 public:
  all_to_all_algorithm(const rank_context& context, shards how) : network_algorithm(context), how_(how) {
    requirements needs = comm().requirements();
    if (how_ != shards::hybrid)
      slots_ = needs.add(collective::network_slots{
          .members = comm().world(), .groups = max_contexts, .slot_bytes = slot_bytes_of_collectives});
    create(needs, 0, max_contexts);
  }

  [[nodiscard]] std::string name() const override {
    return how_ == shards::hybrid ? "hybrid" : how_ == shards::one_shot ? "one_shot" : "by_size";
  }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (how_ == shards::one_shot && trips(what) > max_trips) return "its shards take too many slots";
    return network_algorithm::why_not(what);
  }
  void start(const work& what) override {
    const std::uint64_t length = what.shard() * bytes_of(what.type) / sizeof(element);
    const sym_ptr<element> input = in_window<element>(what.input);
    const sym_ptr<element> output = in_window<element>(what.output);
    // A hybrid one waits for a barrier of all at its beginning, and for a flush at its end.
    if (how_ == shards::one_shot || (how_ == shards::by_size && trips(what) <= 2)) {
      launch(small_all_to_all_of_hosts<element>, shape_of(what), device_comm_->get(), contexts_, slots_, input, output,
             length);
    } else {
      launch(all_to_all_of_hosts<element>, shape_of(what), device_comm_->get(), contexts_, input, output, length);
    }
  }

 protected:
  [[nodiscard]] unsigned threads() const override { return max_threads; }

 private:
  [[nodiscard]] std::uint64_t trips(const work& what) const {
    const std::uint64_t bytes = what.shard() * bytes_of(what.type);
    return (bytes + slots_.slot_bytes() - 1) / slots_.slot_bytes();
  }

  shards how_;
  collective::network_slot_handle slots_{};
};

class all_reduce_algorithm final : public network_algorithm {
 public:
  /// Across by `exchange`, or as the library chooses.
  all_reduce_algorithm(const rank_context& context, std::optional<collective::rail_exchange> exchange)
      : network_algorithm(context), exchange_(exchange) {
    requirements needs = comm().requirements();
    if (!exchange_ || exchange_ == collective::rail_exchange::direct) {
      scratch_ = needs.add(gin::buffer<char>{
          collective::hierarchical_scratch<char>(context.max_bytes, comm().size(), comm().lsa().size)});
    }
    if (!exchange_ || exchange_ == collective::rail_exchange::ring)
      rings_ = needs.add(collective::rail_rings{.groups = max_contexts});
    if ((!exchange_ || exchange_ == collective::rail_exchange::one_shot) && comm().properties().rail.available)
      slots_ = needs.add(collective::network_slots{
          .members = comm().rail(), .groups = max_contexts, .slot_bytes = slot_bytes_of_collectives});
    create(needs, 0, max_contexts);
  }

  [[nodiscard]] std::string name() const override {
    if (!exchange_) return "hierarchical_by_size";
    if (*exchange_ == collective::rail_exchange::one_shot) return "one_shot";
    return *exchange_ == collective::rail_exchange::ring ? "hierarchical_ring" : "hierarchical";
  }
  [[nodiscard]] std::string why_not(const work& what) const override {
    const host::capability& rail = comm().properties().rail;
    if (!rail.available) return "no rails: " + rail.reason;
    if (exchange_ == collective::rail_exchange::one_shot && what.bytes > max_trips * slots_.slot_bytes())
      return "its vector takes too many slots";
    return network_algorithm::why_not(what);
  }
  void start(const work& what) override {
    const int team_size = comm().lsa().size;
    const auto by_size = [&] {
      return collective::rail_exchange_for(what.bytes, comm().size() / team_size, team_size,
                                           {.slot_bytes = slots_.slot_bytes()});
    };
    const auto exchange = exchange_ ? *exchange_ : by_size();
    with_type(what.type, [&]<class T>(T) {
      const sym_ptr<char> scratch = device_comm_->memory_of(scratch_);
      launch(all_reduce_of_hosts<T>, shape_of(what), device_comm_->get(), contexts_, in_window<T>(what.input),
             in_window<T>(what.output),
             collective::rail_memory<T>{exchange, {scratch.memory, scratch.offset}, rings_, slots_}, what.count());
    });
  }

 protected:
  [[nodiscard]] unsigned threads() const override { return max_threads; }

 private:
  std::optional<collective::rail_exchange> exchange_;
  gin::buffer_handle<char> scratch_{};
  collective::rail_ring_handle rings_{};
  collective::network_slot_handle slots_{};
};

/// What operations of the network share.
class network_operation : public operation {
 public:
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] bool crosses_hosts() const override { return true; }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    choice best = usual(what);
    best.protocol = "gin";
    best.shape.blocks =
        static_cast<unsigned>(std::clamp<std::uint64_t>(what.bytes / 262144, 1, std::min(blocks, max_contexts)));
    best.why = best.algorithm + ", a block for each 256 KiB: by size";
    return best;
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }

 protected:
  /// The algorithm and the threads of a block.
  [[nodiscard]] virtual choice usual(const work& what) const = 0;
};

class gin_signal final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_signal"; }
  [[nodiscard]] std::string about() const override {
    return "a signal of the network between ranks 0 and 1, bytes do not count; times of one way";
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<volleys_algorithm<stroke::signal>>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::ping_pong, context);
  }
  /// Nothing is moved; a signal that is lost ends in a time-out.
  [[nodiscard]] std::uint64_t count_wrong(const work&, std::uint64_t) const override { return 0; }

 protected:
  [[nodiscard]] choice usual(const work&) const override { return {"signal", {}, {1, 32}, {}}; }
};

class gin_ping_pong final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_ping_pong"; }
  [[nodiscard]] std::string about() const override {
    return "bytes put with a signal between ranks 0 and 1 by the network; times of one way";
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<volleys_algorithm<stroke::put>>(context));
    made.push_back(std::make_unique<volleys_algorithm<stroke::value>>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::ping_pong, context);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.count(), 1 - what.rank}, seed);
  }

 protected:
  [[nodiscard]] choice usual(const work&) const override { return {"put", {}, {1, 32}, {}}; }
};

class gin_put final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_put"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of each of many puts from rank 0 to rank 1 by the network; times of one";
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<stream_algorithm<block>>(context));
    made.push_back(std::make_unique<stream_algorithm<thread>>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context&) const override {
    throw usage_error("--compare nccl: NCCL has no puts of its own to time; gin_exchange has");
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return what.rank == 1 ? count_wrong_pieces(what, {what.count(), 0}, seed) : 0;
  }

 protected:
  [[nodiscard]] choice usual(const work&) const override { return {"put_by_threads", {}, {1, 32}, {}}; }
};

class gin_exchange final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_exchange"; }
  [[nodiscard]] std::string about() const override {
    return "bytes that each rank puts to the next by the network, and gets from the previous";
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<exchange_algorithm>(context));
    made.push_back(std::make_unique<small_exchange_algorithm>(context));
    made.push_back(std::make_unique<channel_exchange>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::exchange, context);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.count(), collective::partners::in_ring(what.rank, what.ranks).from}, seed);
  }

 protected:
  [[nodiscard]] choice usual(const work& what) const override {
    if (what.bytes > 65536) return {"put", {}, {1, 32}, {}};
    return {"put_through_slots", {}, {1, what.bytes <= 8192 ? 128u : 512u}, {}};
  }
};

class gin_all_to_all final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_all_to_all"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of each rank's input, of which a shard goes to each rank, by stores inside LSA teams and puts across";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / ranks; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    return static_cast<std::uint64_t>(what.ranks) * std::max<std::uint64_t>(bytes_of(what.type), sizeof(element));
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    for (const shards how : {shards::hybrid, shards::one_shot, shards::by_size})
      made.push_back(std::make_unique<all_to_all_algorithm>(context, how));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_to_all, context);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.shard(), 0, static_cast<std::uint64_t>(what.rank) * what.shard()}, seed);
  }

 protected:
  [[nodiscard]] choice usual(const work&) const override { return {"by_size", {}, {1, max_threads}, {}}; }
};

class gin_all_reduce final : public network_operation {
 public:
  [[nodiscard]] std::string name() const override { return "gin_all_reduce"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of each rank's vector, reduced inside LSA teams and along the rails by the network";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<all_reduce_algorithm>(context, collective::rail_exchange::direct));
    made.push_back(std::make_unique<all_reduce_algorithm>(context, collective::rail_exchange::ring));
    made.push_back(std::make_unique<all_reduce_algorithm>(context, collective::rail_exchange::one_shot));
    made.push_back(std::make_unique<all_reduce_algorithm>(context, std::nullopt));
    made.push_back(std::make_unique<channel_all_reduce>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_reduce, context);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_sums(what, 0, what.count(), seed);
  }

 protected:
  [[nodiscard]] choice usual(const work&) const override { return {"hierarchical_by_size", {}, {1, max_threads}, {}}; }
};

const bool are_registered =
    register_operation(std::make_unique<gin_signal>()) && register_operation(std::make_unique<gin_ping_pong>()) &&
    register_operation(std::make_unique<gin_put>()) && register_operation(std::make_unique<gin_exchange>()) &&
    register_operation(std::make_unique<gin_all_to_all>()) && register_operation(std::make_unique<gin_all_reduce>());

}  // namespace
}  // namespace perf
