// Traces are read back here by the field numbers of Chakra's et_def.proto, without what has written them.
#include "model/chakra.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace model;

namespace {

/// The wire format of protocol buffers.
class reader {
 public:
  explicit reader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool at_end() const { return bytes_.empty(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) throw std::runtime_error("a varint ends early");
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw std::runtime_error("a varint has no end");
  }
  std::string_view text() {
    const std::uint64_t length = varint();
    if (length > bytes_.size()) throw std::runtime_error("a message ends early");
    const std::string_view part = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return part;
  }

 private:
  std::string_view bytes_;
};

struct field {
  std::uint64_t number = 0;
  std::string_view text;
};

/// Fields of a message by their numbers, in their order.
std::multimap<int, field> fields_of(std::string_view bytes) {
  std::multimap<int, field> fields;
  for (reader from(bytes); !from.at_end();) {
    const std::uint64_t key = from.varint();
    field value;
    switch (key & 7) {
      case 0: value.number = from.varint(); break;
      case 2: value.text = from.text(); break;
      default: throw std::runtime_error("a type that no field has");
    }
    fields.insert({static_cast<int>(key >> 3), value});
  }
  return fields;
}

struct node {
  std::uint64_t id = 0;
  std::uint64_t type = 0;
  std::uint64_t microseconds = 0;
  std::vector<std::uint64_t> after;
  std::map<std::string, std::uint64_t> attributes;
};

constexpr std::uint64_t computation = 4, send = 5, receive = 6;  // NodeType

node node_of(std::string_view bytes) {
  // Of AttributeProto: int32_val, int64_val and bool_val.
  static const std::map<std::string, int> types = {
      {"is_cpu_op", 27}, {"comm_size", 9}, {"comm_src", 7}, {"comm_dst", 7}, {"comm_tag", 7}};
  node n;
  for (const auto& [number, value] : fields_of(bytes)) {
    switch (number) {
      case 1: n.id = value.number; break;
      case 2: REQUIRE_FALSE(value.text.empty()); break;
      case 3: n.type = value.number; break;
      case 5:
        for (reader ids(value.text); !ids.at_end();) n.after.push_back(ids.varint());
        break;
      case 7: n.microseconds = value.number; break;
      case 10: {
        const auto attribute = fields_of(value.text);
        const std::string name(attribute.find(1)->second.text);
        REQUIRE(types.count(name) == 1);
        REQUIRE(attribute.size() == 2);
        REQUIRE(attribute.count(types.at(name)) == 1);
        n.attributes[name] = attribute.find(types.at(name))->second.number;
        break;
      }
      default: FAIL("field " << number << " is none of a node");
    }
  }
  return n;
}

std::vector<node> nodes_of(const std::string& trace) {
  reader file(trace);
  const auto head = fields_of(file.text());
  REQUIRE(head.count(1) == 1);  // GlobalMetadata.version
  std::vector<node> nodes;
  while (!file.at_end()) nodes.push_back(node_of(file.text()));
  return nodes;
}

}  // namespace

TEST_CASE("a trace has a node for each operation, with its message and what it waits for") {
  for (const algorithm which : algorithms_of(h200(2, 1))) {
    const machine on = h200(3, 4);
    for (int rank = 0; rank < on.ranks(); ++rank) {
      const std::vector<operation> mine = schedule_of(which, on, rank, 100000, 4);
      const std::vector<node> nodes = nodes_of(chakra_trace(mine, rank, 1, "a test"));
      REQUIRE(nodes.size() == mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const operation& expected = mine[i];
        const node& n = nodes[i];
        REQUIRE(n.id == i + 1);
        REQUIRE(n.after.size() == expected.after.size());
        for (std::size_t d = 0; d < n.after.size(); ++d) REQUIRE(n.after[d] == expected.after[d] + 1);
        REQUIRE(n.attributes.at("is_cpu_op") == 0);
        if (expected.what == operation::kind::reduce) {
          REQUIRE(n.type == computation);
          REQUIRE(n.microseconds == 3 * expected.range.size());
          continue;
        }
        const bool sends = expected.what == operation::kind::send;
        REQUIRE(n.type == (sends ? send : receive));
        REQUIRE(n.attributes.at("comm_size") == expected.range.size());
        REQUIRE(n.attributes.at(sends ? "comm_src" : "comm_dst") == static_cast<std::uint64_t>(rank));
        REQUIRE(n.attributes.at(sends ? "comm_dst" : "comm_src") == static_cast<std::uint64_t>(expected.peer));
        REQUIRE(n.attributes.at("comm_tag") == static_cast<std::uint64_t>(expected.tag));
      }
    }
  }
}

TEST_CASE("traces have the bytes that protocol buffers give them") {
  const operation first{operation::kind::send, 1, {0, 300}, 0, {}};
  const operation second{operation::kind::receive, 1, {0, 300}, 2, {0}};
  const std::string trace = chakra_trace({first, second}, 0, 1, "");
  const auto attribute = [](const std::string& name, const std::string& value) {
    const std::string text = std::string("\x0a") + static_cast<char>(name.size()) + name + value;
    return std::string("\x52") + static_cast<char>(text.size()) + text;
  };
  using namespace std::string_literals;
  const std::string node_of_send = "\x08\x01\x12\x0asend 0-300\x18\x05"s + attribute("is_cpu_op", "\xd8\x01\x00"s) +
                                   attribute("comm_size", "\x48\xac\x02"s) + attribute("comm_src", "\x38\x00"s) +
                                   attribute("comm_dst", "\x38\x01"s) + attribute("comm_tag", "\x38\x00"s);
  const std::string node_of_receive = "\x08\x02\x12\x0dreceive 0-300\x18\x06\x2a\x01\x01"s +
                                      attribute("is_cpu_op", "\xd8\x01\x00"s) +
                                      attribute("comm_size", "\x48\xac\x02"s) + attribute("comm_src", "\x38\x01"s) +
                                      attribute("comm_dst", "\x38\x00"s) + attribute("comm_tag", "\x38\x02"s);
  const std::string expected = static_cast<char>(node_of_send.size()) + node_of_send +
                               static_cast<char>(node_of_receive.size()) + node_of_receive;
  REQUIRE(trace.size() > expected.size());
  CHECK(trace.substr(trace.size() - expected.size()) == expected);
}

TEST_CASE("a trace that is cut off is not read as a shorter one") {
  const std::string trace = chakra_trace(schedule_of(algorithm::ring, h200(1, 4), 0, 4096, 1), 0, 1, "a test");
  CHECK(nodes_of(trace).size() > 4);
  CHECK_THROWS(nodes_of(trace.substr(0, trace.size() - 1)));
}
