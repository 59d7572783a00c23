#include "perf/packet_all_reduce.cuh"

namespace perf {
namespace packets {
namespace {

struct lamport {
  using handle = lamport_handle;
  using session = lsa::lamport_session<block>;
  static constexpr const char* name = "lamport";
  static host::capability available(const host::communicator&) { return {true, "everywhere"}; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_lamport_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

}  // namespace
}  // namespace packets

void add_lamport_all_reduces(const rank_context& context, algorithms& made) {
  packets::add_all_reduces<packets::lamport>(context, made);
}

}  // namespace perf
