/// Groups of sends and receives: a list of messages of uneven sizes in one launch, beside NCCL's grouped calls.
#include "perf/device_algorithm.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/random_data.hpp"
#include "perf/skewed_counts.hpp"

#include <devcomm/devcomm.cuh>

#include <vector>

namespace perf {
namespace {

using namespace devcomm;

constexpr std::uint32_t max_peers = 1024;
constexpr std::uint32_t stripes = 64;

/// `Direct`: straight into the receivers' windows, else through slots.
template <bool Direct>
class message_group final : public device_algorithm {
 public:
  explicit message_group(const rank_context& context) : device_algorithm(context), table_(2 * max_peers, 1) {
    requirements needs = comm().requirements();
    connections_ = needs.add(is_simulated() ? channel::connections{needs.lsa(), 2, 2, 1024}
                                            : channel::connections{needs.lsa(), stripes});
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return Direct ? "group" : "group_through_slots"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    return what.ranks > static_cast<int>(max_peers) ? "too many ranks for the list" : "";
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    std::vector<launch_shape> fit;
    for (const launch_shape& shape : device_algorithm::shapes(what)) {
      if (shape.blocks > connections_.count) continue;
      fit.push_back(shape);
      // A warp for each message, or several, where all are short.
      if (shape.threads < 256 && !is_simulated()) fit.push_back({shape.blocks, 256});
    }
    return fit;
  }
  [[nodiscard]] launch_shape fitted(const work& what) const override {
    return {what.shape.blocks < connections_.count ? what.shape.blocks : connections_.count, what.shape.threads};
  }
  void start(const work& what) override {
    if (what.bytes != bytes_ || what.input != input_ || what.output != output_ || what.type != type_) write_list(what);
    collective::send_receive(device_comm_->get(), connections_, table_, shape_of(what));
  }

 private:
  /// The first call of a size is never captured.
  void write_list(const work& what) {
    const skewed_counts counts{what.count(), what.ranks};
    const std::uint64_t size = bytes_of(what.type);
    const sym_ptr<char> output = in_window<char>(what.output);
    std::vector<channel::message> list;
    for (int peer = 0; peer < what.ranks; ++peer) {
      const std::uint64_t to = counts.before_receiver(what.rank, peer) * size;
      list.push_back(
          channel::message::send(peer, static_cast<char*>(what.input) + to, counts.of(what.rank, peer) * size));
      const auto at = static_cast<std::int64_t>(counts.before_sender(peer, what.rank) * size);
      const std::uint64_t bytes = counts.of(peer, what.rank) * size;
      list.push_back(Direct ? channel::message::receive(peer, output + at, bytes)
                            : channel::message::receive(peer, static_cast<char*>(what.output) + at, bytes));
    }
    table_.assign(list, {output.memory}, what.stream);
    bytes_ = what.bytes;
    input_ = what.input;
    output_ = what.output;
    type_ = what.type;
  }

  channel::message_table table_;
  channel::connection_handle connections_{};
  std::uint64_t bytes_ = 0;  // of the call that the list is for
  const void* input_ = nullptr;
  const void* output_ = nullptr;
  data_type type_ = data_type::bf16;
};

class group_of_messages final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "send_receive"; }
  [[nodiscard]] std::string about() const override {
    return "bytes that each rank sends in a group of messages, of which the ranks after it get 1, 2, 3 parts and so on";
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / (ranks + 1.0); }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    const auto parts = static_cast<std::uint64_t>(what.ranks * (what.ranks + 1) / 2);
    return parts * (what.bytes >= 16 * parts ? 16 : bytes_of(what.type));
  }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    // Measured on 2 GPUs: a call that leaves stripes out takes longer than one with stripes that have nothing to do.
    const unsigned threads = what.bytes < std::uint64_t{8} << 20 ? 256 : max_threads;
    return {"group",
            "simple",
            {blocks < stripes ? blocks : stripes, threads},
            "messages go straight into the receivers' windows"};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<message_group<true>>(context));
    made.push_back(std::make_unique<message_group<false>>(context));
    return made;
  }
  /// Grouped ncclSend and ncclRecv.
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

const bool is_registered = register_operation(std::make_unique<group_of_messages>());

}  // namespace
}  // namespace perf
