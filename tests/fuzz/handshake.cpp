/// Messages of the handshake, and what rank 0 says of a failed round.
#include "fuzz.hpp"

#include <bootstrap/tcp/frame_stream.hpp>
#include <bootstrap/tcp/handshake.hpp>

#include <algorithm>

using namespace devcomm::host::detail;
using namespace devcomm_fuzz;

namespace {

bool same(const std::vector<std::byte>& a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = bytes_of_input(data, size);
  const std::byte secret[16] = {};
  const auto said = hello::decode(input);
  if (said) require(same(said->encode(), input), "a hello survives the wire");
  const auto asked = challenge::decode(input);
  if (asked) require(same(asked->encode(), input), "a challenge survives the wire");
  if (const auto head = verdict::decode_head(input.first(std::min(size, verdict::head_bytes)))) {
    require(head->text_bytes <= verdict::longest_text, "a verdict's text is bounded");
    const std::size_t text = std::min(head->text_bytes, size - verdict::head_bytes);
    const transcript seen(said.value_or(hello{}), asked.value_or(challenge{}));
    require(!verdict::proven(*head, text_of(data + verdict::head_bytes, text), seen, secret),
            "nobody proves a secret by chance");
  }
  const std::vector<std::byte> copy(input.begin(), input.end());
  if (const auto failure = round_failure::decode(copy)) {
    const auto again = round_failure::decode(failure->encode());
    require(again && again->what == failure->what && again->culprit == failure->culprit &&
                again->final == failure->final &&
                again->text == failure->text.substr(0, frame_stream::longest_text - 12),
            "a failure survives the wire");
  }
  return 0;
}
