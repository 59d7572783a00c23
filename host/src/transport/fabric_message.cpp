#include "transport/fabric_message.hpp"

#include <algorithm>
#include <cstring>

namespace devcomm::host::detail {

std::string parse_message(std::span<const std::byte> bytes, const fabric_secret& own, std::uint32_t self,
                          std::uint32_t ranks, fabric_message& message) {
  if (bytes.size() < sizeof message) {
    return "it has " + std::to_string(bytes.size()) + " bytes instead of " + std::to_string(sizeof message);
  }
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof message);
  if (message.format != fabric_message::this_format) {
    return "it is no message of this version of devcomm: start all ranks with the same version";
  }
  // All of it is compared, so that its duration reveals nothing.
  if (((message.secret[0] ^ own[0]) | (message.secret[1] ^ own[1])) != 0) {
    return "its sender does not know the secret of this communicator: it may be a stranger, so keep the network "
           "between hosts private";
  }
  if (message.sender >= ranks || message.sender == self) {
    return "it says that it comes from rank " + std::to_string(message.sender);
  }
  const auto kind = static_cast<std::uint32_t>(message.kind);
  if (kind < static_cast<std::uint32_t>(message_kind::change) ||
      kind > static_cast<std::uint32_t>(message_kind::staged)) {
    return "its kind is " + std::to_string(kind);
  }
  if (static_cast<std::uint32_t>(message.write) > static_cast<std::uint32_t>(payload_write::to_bounce_buffer)) {
    return "its payload goes an unknown way";
  }
  const bool is_change = message.kind == message_kind::change;
  const std::uint64_t carried = is_change && message.write == payload_write::none ? message.bytes : 0;
  if (bytes.size() - sizeof message != carried || carried > max_carried) {
    return "it has " + std::to_string(bytes.size()) + " bytes instead of " +
           std::to_string(sizeof message + std::min<std::uint64_t>(carried, max_carried));
  }
  if (is_change && message.bytes != 0 && message.value_bytes != 0) return "it has a value and payload";
  if (message.value_bytes > sizeof message.value) {
    return "it has a value of " + std::to_string(message.value_bytes) + " bytes";
  }
  if (static_cast<std::uint32_t>(message.signal_change) > static_cast<std::uint32_t>(gin::signal_change::set)) {
    return "it changes a signal in an unknown way";
  }
  if (static_cast<std::uint32_t>(message.why) > static_cast<std::uint32_t>(refusal::not_registered)) {
    return "it refuses for an unknown reason";
  }
  return {};
}

}  // namespace devcomm::host::detail
