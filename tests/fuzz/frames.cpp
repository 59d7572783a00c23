/// Bytes that arrive on a connection whose two sides have proved the secret.
///
/// The first byte says how the rest is cut, and whether it is raw or a list of frames (type, flags, length, payload)
/// that are given sound heads and proofs, so that what lies behind those is reached too.
#include "fuzz.hpp"

#include <bootstrap/tcp/frame_stream.hpp>
#include <bootstrap/tcp/wire.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <utility>

using namespace devcomm::host::detail;
using namespace devcomm_fuzz;

namespace {

constexpr std::size_t longest = 64;
const digest own_key = sha256::of(bytes_of("own"));
const digest peer_key = sha256::of(bytes_of("peer"));

struct list {
  std::vector<std::byte> wire;
  std::size_t sound = 0;  ///< frames before the first that must be refused
};

list make_frames(std::span<const std::byte> input) {
  list made;
  bool all_sound = true;
  for (std::uint64_t sequence = 0; input.size() >= 3; ++sequence) {
    const auto type = std::to_integer<std::uint32_t>(input[0]) % 10;
    const auto flags = std::to_integer<unsigned>(input[1]);
    const std::size_t said = std::to_integer<std::size_t>(input[2]);
    input = input.subspan(3);
    const auto payload = input.first(std::min(said, input.size()));
    input = input.subspan(payload.size());
    const bool wrong_sequence = (flags & 1) != 0;
    const bool wrong_proof = (flags & 2) != 0;
    const bool wrong_head = (flags & 4) != 0;
    wire_writer head;
    head.integer(type).integer(std::uint32_t{7}).integer(sequence + (wrong_sequence ? 1 : 0));
    head.integer(static_cast<std::uint64_t>(payload.size()));
    digest proof = hmac_sha256(peer_key).update(head.data()).update(sha256::of(payload)).finish();
    if (wrong_proof) proof[flags % proof.size()] ^= std::byte{1};
    digest head_proof = hmac_sha256(peer_key).update(head.data()).finish();
    if (wrong_head) head_proof[flags % head_proof.size()] ^= std::byte{1};
    wire_writer whole;
    whole.bytes(head.data()).bytes(head_proof).bytes(payload).bytes(proof);
    made.wire.insert(made.wire.end(), whole.data().begin(), whole.data().end());
    const bool data =
        type == static_cast<std::uint32_t>(frame_type::part) || type == static_cast<std::uint32_t>(frame_type::result);
    const bool known = type >= 1 && type <= 8;
    all_sound =
        all_sound && known && !wrong_sequence && !wrong_proof && !wrong_head && (!data || payload.size() <= longest);
    if (all_sound) ++made.sound;
  }
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = bytes_of_input(data, size).subspan(1);
  const bool framed = (data[0] & 1) != 0;
  const std::size_t chunk = 1 + (data[0] >> 1);
  list sent;
  if (framed) {
    sent = make_frames(input);
  } else {
    sent.wire.assign(input.begin(), input.end());
  }
  if (sent.wire.size() > 60'000) return 0;  // what the socket holds

  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  unique_fd own(ends[0]);
  const unique_fd peer(ends[1]);
  frame_stream in(std::move(own), own_key, peer_key);
  in.accept_payloads_up_to(longest);
  std::size_t taken = 0;
  for (std::size_t at = 0; at < sent.wire.size() && !in.closed(); at += chunk) {
    const std::size_t count = std::min(chunk, sent.wire.size() - at);
    require(::send(peer.get(), sent.wire.data() + at, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count), "send");
    while (const auto got = in.receive()) {
      const bool bulk = got->type == frame_type::part || got->type == frame_type::result;
      require(got->payload.size() <= (bulk ? longest : frame_stream::longest_text), "payloads are bounded");
      static_cast<void>(round_failure::decode(got->payload));
      ++taken;
    }
  }
  require(taken == sent.sound, "sound frames are taken, others and all behind them are not");
  require(!in.closed() || !in.problem().empty(), "a closed connection says why");
  return 0;
}
