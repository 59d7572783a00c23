#include "bootstrap/tcp/frame_stream.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

using namespace devcomm::host::detail;

namespace {

const digest key_a = sha256::of(bytes_of("a"));
const digest key_b = sha256::of(bytes_of("b"));

shared_payload payload(const std::string& text) {
  const auto data = bytes_of(text);
  return shared_payload({data.begin(), data.end()});
}

std::array<unique_fd, 2> linked() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

/// What a stream would put on the wire.
std::vector<std::byte> recorded(const std::vector<std::string>& texts, frame_type type = frame_type::part) {
  auto ends = linked();
  frame_stream out(std::move(ends[0]), key_a, key_b);
  for (const std::string& text : texts) out.queue(type, 0, payload(text));
  out.flush();
  std::vector<std::byte> data(100'000);
  const ssize_t count = ::recv(ends[1].get(), data.data(), data.size(), 0);
  REQUIRE(count > 0);
  data.resize(static_cast<std::size_t>(count));
  return data;
}

/// How a receiver takes `data`: texts of the frames, then why it closed.
struct taken {
  std::vector<std::string> texts;
  std::string problem;
};
taken receive(const std::vector<std::byte>& data, std::size_t longest = 1000, std::size_t chunk = 1 << 20) {
  auto ends = linked();
  frame_stream in(std::move(ends[0]), key_b, key_a);
  in.accept_payloads_up_to(longest);
  taken result;
  const auto read = [&] {
    while (auto got = in.receive()) {
      result.texts.emplace_back(reinterpret_cast<const char*>(got->payload.data()), got->payload.size());
    }
  };
  for (std::size_t at = 0; at < data.size(); at += chunk) {
    const std::size_t count = std::min(chunk, data.size() - at);
    REQUIRE(::send(ends[1].get(), data.data() + at, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
    read();
    if (in.closed()) break;
  }
  result.problem = in.problem();
  return result;
}

const std::size_t frame_overhead = frame_stream::head_bytes + sizeof(digest);

}  // namespace

TEST_CASE("frames arrive whole and in order, however they are cut") {
  const auto data = recorded({"one", "", std::string(900, 'x')});
  for (const std::size_t chunk : {1U, 3U, 31U, 57U, 100'000U}) {
    CAPTURE(chunk);
    const taken got = receive(data, 1000, chunk);
    CHECK(got.problem.empty());
    CHECK(got.texts == std::vector<std::string>{"one", "", std::string(900, 'x')});
  }
}

TEST_CASE("any changed bit closes the connection") {
  const auto data = recorded({"one"});
  for (std::size_t i = 0; i < data.size(); ++i) {
    auto changed = data;
    changed[i] ^= std::byte{1};
    const taken got = receive(changed);
    CAPTURE(i);
    CHECK(got.texts.empty());
    CHECK_FALSE(got.problem.empty());
  }
}

TEST_CASE("a repeated or dropped frame closes the connection") {
  const auto data = recorded({"one", "two"});
  const auto middle = data.begin() + static_cast<std::ptrdiff_t>(frame_overhead + 3);
  std::vector<std::byte> repeated(data.begin(), middle);
  repeated.insert(repeated.end(), data.begin(), middle);
  CHECK(receive(repeated).texts == std::vector<std::string>{"one"});
  CHECK(receive(repeated).problem.find("out of sequence") != std::string::npos);
  const taken late = receive({middle, data.end()});
  CHECK(late.texts.empty());
  CHECK(late.problem.find("out of sequence") != std::string::npos);
}

TEST_CASE("a frame sent back to its sender closes the connection") {
  auto ends = linked();
  frame_stream one(std::move(ends[0]), key_a, key_b);
  one.queue(frame_type::part, 0, payload("x"));
  one.flush();
  std::vector<std::byte> data(frame_overhead + 1);
  REQUIRE(::recv(ends[1].get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  REQUIRE(::send(ends[1].get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  CHECK_FALSE(one.receive());
  CHECK(one.closed());
}

TEST_CASE("a frame above the agreed size closes the connection before its payload comes") {
  const auto data = recorded({std::string(500, 'x')});
  CHECK(receive(data, 500).texts.size() == 1);
  CHECK(receive({data.begin(), data.begin() + frame_stream::head_bytes}, 499).problem.find("500 bytes") !=
        std::string::npos);
  const auto text = recorded({std::string(frame_stream::longest_text + 1, 'x')}, frame_type::progress);
  CHECK(receive(text, 100'000).problem.find("more than agreed") != std::string::npos);
}

TEST_CASE("a forged head takes no memory for its payload") {
  constexpr std::size_t large = std::size_t{1} << 20;
  const auto held_after = [&](std::vector<std::byte> head) {
    auto ends = linked();
    frame_stream in(std::move(ends[0]), key_b, key_a);
    in.accept_payloads_up_to(large);
    REQUIRE(::send(ends[1].get(), head.data(), head.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(head.size()));
    CHECK_FALSE(in.receive());
    return std::pair(in.held(), in.problem());
  };
  const auto data = recorded({std::string(60'000, 'x')});
  std::vector<std::byte> head(data.begin(), data.begin() + frame_stream::head_bytes);
  CHECK(held_after(head).first >= 60'000);
  for (std::size_t i = 0; i < head.size(); ++i) {
    auto forged = head;
    forged[i] ^= std::byte{1};
    const auto [held, problem] = held_after(forged);
    CAPTURE(i);
    CHECK(held == 0);
    CHECK(problem.find("does not prove the job's secret") != std::string::npos);
  }
}

TEST_CASE("what was sent before the other side left still arrives") {
  auto ends = linked();
  frame_stream in(std::move(ends[1]), key_b, key_a);
  {
    frame_stream out(std::move(ends[0]), key_a, key_b);
    out.queue(frame_type::gave_up, 0, payload("bye"));
    out.flush();
  }
  in.queue(frame_type::part, 0, payload("x"));
  in.flush();
  CHECK_FALSE(in.closed());
  CHECK(in.receive());
  CHECK_FALSE(in.receive());
  CHECK(in.closed());
}

TEST_CASE("round_failure survives the wire, and a short one is refused") {
  const round_failure f{round_failure::kind::timeout, 3, true, "rank 3 is late"};
  const auto back = round_failure::decode(f.encode());
  REQUIRE(back);
  CHECK(back->what == round_failure::kind::timeout);
  CHECK(back->culprit == 3);
  CHECK(back->final);
  CHECK(back->text == "rank 3 is late");
  CHECK_FALSE(round_failure::decode(std::vector<std::byte>(11)));
  CHECK_FALSE(round_failure::decode(std::vector<std::byte>(12, std::byte{9})));
}
