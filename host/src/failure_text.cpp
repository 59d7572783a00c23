#include <devcomm/host/communicator.hpp>

namespace devcomm::host {
namespace {

std::string shape(const launch_contract& contract) {
  return std::to_string(contract.grid_blocks) + " of " + std::to_string(contract.group_threads);
}

std::string difference(const failure_record& record) {
  const launch_contract& mine = record.mine;
  const launch_contract& theirs = record.theirs;
  const std::string me = "rank " + std::to_string(record.rank);
  const std::string peer = "rank " + std::to_string(record.peer);
  const bool same_shape = mine.grid_blocks == theirs.grid_blocks && mine.group_threads == theirs.group_threads;
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
  return place + " waited for rank " + std::to_string(record.peer) + " to reach epoch " +
         std::to_string(record.expected) + " and last saw " + std::to_string(record.seen) + ": " +
         to_string(record.outcome);
}

}  // namespace devcomm::host
