#include <devcomm/host/communicator.hpp>

#include <tuple>

namespace devcomm::host {
namespace {

std::string shape(const launch_contract& contract) {
  return std::to_string(contract.grid_blocks) + " of " + std::to_string(contract.group_threads);
}

auto arguments(const call_contract& call) {
  return std::tie(call.name[0], call.name[1], call.name[2], call.begin, call.end, call.element_bytes, call.root);
}

/// "all_reduce_one_shot of packs 0 to 16 of 4-byte elements".
std::string text(const call_contract& call, bool with_root) {
  std::string name;
  for (const std::uint64_t word : call.name) {
    for (int i = 0; i < 8; ++i) {
      const auto letter = static_cast<char>(word >> 8 * i & 0xff);
      if (letter >= ' ' && letter <= '~') name += letter;
    }
  }
  if (name.empty()) return "no collective";
  return name + " of packs " + std::to_string(call.begin) + " to " + std::to_string(call.end) + " of " +
         std::to_string(call.element_bytes) + "-byte elements" +
         (with_root ? " with root " + std::to_string(call.root) : "");
}

std::string name(const failure_record& record, int rank, std::uint32_t index) {
  if (record.among_groups == 0) return "rank " + std::to_string(rank);
  return std::string("the group of ") + to_string(record.what) + " " + std::to_string(index);
}

std::string difference(const failure_record& record) {
  const launch_contract& mine = record.mine;
  const launch_contract& theirs = record.theirs;
  const std::string me = name(record, record.rank, record.index);
  const std::string peer = name(record, record.peer, record.peer_index);
  const bool same_shape = mine.grid_blocks == theirs.grid_blocks && mine.group_threads == theirs.group_threads;
  if (same_shape && mine.key == theirs.key && arguments(record.my_call) != arguments(record.their_call)) {
    const bool roots = record.my_call.root != record.their_call.root;
    return peer + " called " + text(record.their_call, roots) + " where " + me + " called " +
           text(record.my_call, roots);
  }
  if (same_shape) {
    return peer + " launched with key " + std::to_string(theirs.key) + " where " + me + " launched with key " +
           std::to_string(mine.key);
  }
  std::string text = peer + " launched " + std::to_string(theirs.grid_blocks) + " blocks of " +
                     std::to_string(theirs.group_threads) + " threads where " + me + " launched " + shape(mine);
  if (mine.key != theirs.key) {
    text += ", with key " + std::to_string(theirs.key) + " where " + me + " had " + std::to_string(mine.key);
  }
  return text;
}

}  // namespace

std::string describe(const failure_record& record) {
  const std::string place = "rank " + std::to_string(record.rank) + ", block " + std::to_string(record.block) + ": " +
                            to_string(record.what) + " " + std::to_string(record.index);
  if (record.outcome == status::mismatch) return place + ": launch mismatch: " + difference(record);
  return place + " waited for " + name(record, record.peer, record.peer_index) + " to reach epoch " +
         std::to_string(record.expected) + " and last saw " + std::to_string(record.seen) + ": " +
         to_string(record.outcome);
}

}  // namespace devcomm::host
