#include "transport/operation_text.hpp"

#include "util/window_number.hpp"

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;

const char* name_of(operation_kind kind) {
  switch (kind) {
    case operation_kind::put: return "put";
    case operation_kind::put_value: return "put of a value";
    case operation_kind::get: return "get";
    case operation_kind::signal: return "signal";
    case operation_kind::fence: return "fence";
  }
  return "unknown operation";
}

}  // namespace

std::string text_of_operation(int rank, std::uint32_t context, const gin::descriptor_head& head) {
  const char* const way = head.kind == operation_kind::get ? " from rank " : " to rank ";
  return "rank " + std::to_string(rank) + ": " + name_of(head.kind) + way + std::to_string(head.peer) + " in context " +
         std::to_string(context);
}

std::string why_impossible(const posted_operation& operation, const gin::queue_layout& layout) {
  const gin::descriptor_head& head = operation.head;
  const auto signal = static_cast<std::uint32_t>(operation.what.actions);
  const auto counter = static_cast<std::uint32_t>(operation.what.actions >> 32);
  if (head.peer >= layout.peers) {
    return "there is no such rank; the ranks are 0 to " + std::to_string(layout.peers - 1);
  }
  if (head.change != gin::signal_change::none && signal >= layout.signals) {
    return "there is no signal " + std::to_string(signal) + "; ask for more by gin::contexts";
  }
  if (head.counts && counter >= layout.counters) {
    return "there is no counter " + std::to_string(counter) + "; ask for more by gin::contexts";
  }
  return {};
}

std::string text_of_missing_window(const std::string& whose, std::uint32_t window) {
  return whose + " has no window " + std::to_string(window_number(window)) +
         " (any more): keep the owner until all is flushed and has arrived, and post windows of the communicator that "
         "made the device communicator";
}

std::string text_of_overrun(std::uint64_t bytes, std::uint64_t offset, const std::string& name, std::uint64_t size) {
  return std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " on run past the end of " + name +
         ", which has " + std::to_string(size);
}

}  // namespace devcomm::host::detail
