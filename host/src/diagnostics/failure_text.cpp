#include <devcomm/channel/messages.hpp>
#include <devcomm/host/communicator.hpp>

#include "util/wait_text.hpp"
#include "util/window_number.hpp"

#include <array>
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

bool waits_for_proxy(const failure_record& record) {
  return record.what == operation::gin_post || record.what == operation::gin_flush ||
         record.what == operation::gin_fence;
}

std::string name(const failure_record& record, int rank, std::uint32_t index) {
  if (waits_for_proxy(record)) return "the proxy";
  if (record.among_groups == 0) return detail::peer_text(rank);
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
    const std::string theirs_said = text(record.their_call, false);
    if (roots && theirs_said.rfind("exchange", 0) == 0 && theirs_said == text(record.my_call, false)) {
      // The root says whether this rank is sent to.
      return peer + (record.their_call.root != 0 ? " sends to " : " does not send to ") + me + " in its call of " +
             theirs_said + " where " + me +
             (record.my_call.root != 0 ? " receives from it" : " does not receive from it");
    }
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
    text += ", with key " + std::to_string(theirs.key) + " where " + me + " had key " + std::to_string(mine.key);
  }
  return text;
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// Of a message that two ranks do not agree on.
std::string message_difference(const failure_record& record) {
  const message_shape& mine = record.my_message;
  const message_shape& theirs = record.their_message;
  const std::string me = detail::peer_text(record.rank);
  const std::string peer = detail::peer_text(record.peer);
  const bool sends = record.what == operation::message_send;
  if (record.peer < 0) return "its peer or its window is none of the session's";
  if (theirs.bytes == channel::no_such_window)
    return peer + " receives it into window " + std::to_string(detail::window_number(theirs.stripes - 1)) +
           ", which the list of " + me + " does not name";
  if (record.peer == record.rank && theirs.bytes == channel::no_such_message)
    return me + (sends ? " sends itself more messages than it receives" : " receives more of itself than it sends");
  const std::string mine_said = me + (sends ? " sends " : " receives ") + bytes_text(mine.bytes);
  const std::string theirs_said = peer + (sends ? " receives " : " sends ") + bytes_text(theirs.bytes);
  if (mine.stripes != theirs.stripes)
    return peer + " has " + std::to_string(theirs.stripes) + " stripes where " + me + " has " +
           std::to_string(mine.stripes);
  if (mine.number == theirs.number) return theirs_said + " where " + mine_said;
  return theirs_said + " as message " + std::to_string(theirs.number) + " where " + mine_said + " as message " +
         std::to_string(mine.number) + ": an earlier message had two sizes";
}

/// "10 packs of 4-byte elements".
std::string packs_text(const call_contract& call) {
  const std::uint64_t packs = call.end - call.begin;
  return std::to_string(packs) + (packs == 1 ? " pack of " : " packs of ") + std::to_string(call.element_bytes) +
         "-byte elements";
}

/// Of a FIFO whose ends make different calls. Ends number theirs from 1, in `root`.
std::string fifo_difference(const failure_record& record) {
  const call_contract& mine = record.my_call;
  const call_contract& theirs = record.their_call;
  const std::string me = detail::peer_text(record.rank);
  if (record.block == failure_record::no_block) {
    const std::string peer = record.peer < 0 ? "a peer" : detail::peer_text(record.peer);
    const bool sends = record.what == operation::fifo_send;
    return "the last " + (record.expected == 1 ? "step" : std::to_string(record.expected) + " steps") + " that " +
           (sends ? me : peer) + " sent to " + (sends ? peer : me) +
           " had not been received when the device communicator ended";
  }
  const std::string sent = detail::peer_text(record.peer) + " sent " + packs_text(theirs);
  const std::string call = " in call " + std::to_string(theirs.root) + " on the FIFO";
  const std::string step = " (step " + std::to_string(record.expected) + ")";
  if (mine.name[0] == 0)
    return sent + call + ", which " + me + " has not received in its call " + std::to_string(theirs.root) + step;
  if (mine.root != theirs.root) {
    return sent + call + " where " + me + " expects " + packs_text(mine) + " in its call " + std::to_string(mine.root) +
           step;
  }
  return sent + " where " + me + " expects " + packs_text(mine) + step;
}

}  // namespace

std::string describe(const failure_record& record) {
  std::string place = "rank " + std::to_string(record.rank);
  if (record.block != failure_record::no_block) place += ", block " + std::to_string(record.block);
  place += ": " + detail::place_text(record.what, record.window, std::array{record.index});
  if (record.what == operation::gin_signal || record.what == operation::gin_counter ||
      record.what == operation::gin_barrier)
    place += " of context " + std::to_string(record.peer_index);
  if (waits_for_proxy(record) && record.peer >= 0) place += ", to rank " + std::to_string(record.peer) + ",";
  const bool is_message = record.what == operation::message_send || record.what == operation::message_receive;
  if (record.outcome == status::mismatch && is_message) return place + ": mismatch: " + message_difference(record);
  if (record.outcome == status::mismatch && record.mine.group_threads % 32 != 0 && record.peer == record.rank)
    return place + ": its group has " + std::to_string(record.mine.group_threads) +
           " threads, and LL128 needs whole warps: give it a multiple of 32, or use LL";
  const bool is_fifo = record.what == operation::fifo_send || record.what == operation::fifo_receive;
  if (record.outcome == status::mismatch && is_fifo) return place + ": mismatch: " + fifo_difference(record);
  if (record.what == operation::moe_rows)
    return place + ": its rows end at " + std::to_string(record.seen) + ", and moe::expert_rows has room for " +
           std::to_string(record.expected) + ": give it more capacity, exchange_handle::max_rows() at most";
  if (record.outcome == status::mismatch) return place + ": launch mismatch: " + difference(record);
  return place + " waited for " + name(record, record.peer, record.peer_index) + " " +
         detail::goal_text(record.condition, record.expected) + " and last saw " + std::to_string(record.seen) + ": " +
         (record.outcome == status::departed ? "that rank has left" : to_string(record.outcome));
}

}  // namespace devcomm::host
