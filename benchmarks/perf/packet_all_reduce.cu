#include "perf/packet_all_reduce.cuh"

namespace perf {
namespace {

/// One shot and two shots.
template <class Session>
void add_all_reduces(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<packets::packet_algorithm<packets::one_shot, Session>>(context));
  made.push_back(std::make_unique<packets::packet_algorithm<packets::two_shot, Session>>(context));
}

}  // namespace

void add_ll_all_reduces(const rank_context& context, algorithms& made) { add_all_reduces<packets::ll>(context, made); }
void add_ll128_all_reduces(const rank_context& context, algorithms& made) {
  add_all_reduces<packets::ll128>(context, made);
}
void add_lamport_all_reduces(const rank_context& context, algorithms& made) {
  add_all_reduces<packets::lamport>(context, made);
}
void add_multimem_packet_all_reduces(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<packets::packet_algorithm<packets::one_shot, packets::multimem_ll>>(context));
  made.push_back(std::make_unique<packets::packet_algorithm<packets::one_shot, packets::multimem_lamport>>(context));
}

}  // namespace perf
