#include "model/chakra.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace model {
namespace {

// Field numbers and values of et_def.proto.
namespace metadata {
constexpr int version = 1, attribute = 2;
}
namespace node {
constexpr int id = 1, name = 2, type = 3, data_dependencies = 5, duration = 7, attribute = 10;
constexpr std::uint64_t computation = 4, send = 5, receive = 6;
}  // namespace node
namespace attribute {
constexpr int name = 1, int32_value = 7, int64_value = 9, bool_value = 27, string_value = 29;
}

/// One message in the wire format of protocol buffers.
class message {
 public:
  message& number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  message& text(int field, std::string_view value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void raw(std::string_view bytes) { bytes_ += bytes; }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string attribute_of(std::string_view name, int field, std::uint64_t value) {
  return message().text(attribute::name, name).number(field, value).bytes();
}

message node_of(const operation& what, operation_id index, int rank, double memory) {
  const bool sends = what.what == operation::kind::send;
  const bool sums = what.what == operation::kind::reduce;
  const std::string range = std::to_string(what.range.begin) + "-" + std::to_string(what.range.end);
  message text;
  text.number(node::id, index + 1);
  text.text(node::name, (sends ? "send " : sums ? "reduce " : "receive ") + range);
  text.number(node::type, sends ? node::send : sums ? node::computation : node::receive);
  if (!what.after.empty()) {
    message ids;
    for (const operation_id before : what.after) ids.varint(before + 1);
    text.text(node::data_dependencies, ids.bytes());
  }
  if (sums) {
    const double bytes = 3 * static_cast<double>(what.range.size());
    text.number(node::duration, static_cast<std::uint64_t>(std::llround(bytes / memory)));
  }
  text.text(node::attribute, attribute_of("is_cpu_op", attribute::bool_value, 0));
  if (sums) return text;
  const auto here = static_cast<std::uint64_t>(rank);
  const auto there = static_cast<std::uint64_t>(what.peer);
  text.text(node::attribute, attribute_of("comm_size", attribute::int64_value, what.range.size()));
  text.text(node::attribute, attribute_of("comm_src", attribute::int32_value, sends ? here : there));
  text.text(node::attribute, attribute_of("comm_dst", attribute::int32_value, sends ? there : here));
  text.text(node::attribute, attribute_of("comm_tag", attribute::int32_value, static_cast<std::uint64_t>(what.tag)));
  return text;
}

}  // namespace

std::string chakra_trace(const std::vector<operation>& schedule, int rank, double memory,
                         const std::string& description) {
  const message about = message().text(attribute::name, "description").text(attribute::string_value, description);
  const message head = message().text(metadata::version, "0.0.4").text(metadata::attribute, about.bytes());
  message file;
  const auto append = [&](const message& what) {
    file.varint(what.bytes().size());
    file.raw(what.bytes());
  };
  append(head);
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    append(node_of(schedule[i], static_cast<operation_id>(i), rank, memory));
  }
  return file.bytes();
}

}  // namespace model
