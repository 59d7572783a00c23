#include "perf/packet_all_reduce.cuh"

namespace perf {
namespace packets {
namespace {

struct ll {
  using handle = ll_handle;
  using session = lsa::ll_session<block>;
  static constexpr const char* name = "ll";
  static host::capability available(const host::communicator&) { return {true, "everywhere"}; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_ll_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

}  // namespace
}  // namespace packets

void add_ll_all_reduces(const rank_context& context, algorithms& made) {
  packets::add_all_reduces<packets::ll>(context, made);
}

}  // namespace perf
