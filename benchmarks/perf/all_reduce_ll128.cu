#include "perf/packet_all_reduce.cuh"

namespace perf {
namespace packets {
namespace {

struct ll128 {
  using handle = ll128_handle;
  using session = lsa::ll128_session<block>;
  static constexpr const char* name = "ll128";
  static host::capability available(const host::communicator& comm) { return comm.properties().ll128; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_ll128_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

}  // namespace
}  // namespace packets

void add_ll128_all_reduces(const rank_context& context, algorithms& made) {
  packets::add_all_reduces<packets::ll128>(context, made);
}

}  // namespace perf
