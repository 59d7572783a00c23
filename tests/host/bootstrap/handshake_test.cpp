#include "bootstrap/tcp/handshake.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstring>

using namespace devcomm::host::detail;

namespace {

const std::vector<std::byte> secret(16, std::byte{3});
const std::vector<std::byte> other_secret(16, std::byte{4});

hello some_hello(unsigned char fill = 1) {
  hello h;
  h.size = 4;
  h.rank = 2;
  h.fresh.fill(std::byte{fill});
  return h;
}

challenge some_challenge(unsigned char fill = 2) {
  challenge c;
  c.fresh.fill(std::byte{fill});
  return c;
}

}  // namespace

TEST_CASE("hello and challenge survive the wire, and any other length is refused") {
  const hello h = some_hello();
  auto data = h.encode();
  REQUIRE(data.size() == hello::wire_bytes);
  const auto back = hello::decode(data);
  REQUIRE(back);
  CHECK(back->rank == 2);
  CHECK(back->size == 4);
  CHECK(back->fresh == h.fresh);
  data.push_back(std::byte{0});
  CHECK_FALSE(hello::decode(data));
  data.resize(hello::wire_bytes - 1);
  CHECK_FALSE(hello::decode(data));

  auto second = some_challenge().encode();
  REQUIRE(second.size() == challenge::wire_bytes);
  CHECK(challenge::decode(second)->fresh == some_challenge().fresh);
  second[0] ^= std::byte{1};
  CHECK_FALSE(challenge::decode(second));
}

TEST_CASE("a proof holds for one secret and one conversation only") {
  const digest proof = transcript(some_hello(), some_challenge()).rank_proof(secret);
  CHECK(same_digest(proof, transcript(some_hello(), some_challenge()).rank_proof(secret)));
  CHECK_FALSE(same_digest(proof, transcript(some_hello(), some_challenge()).rank_proof(other_secret)));
  CHECK_FALSE(same_digest(proof, transcript(some_hello(), some_challenge(9)).rank_proof(secret)));
  CHECK_FALSE(same_digest(proof, transcript(some_hello(9), some_challenge()).rank_proof(secret)));
  hello other_rank = some_hello();
  other_rank.rank = 3;
  CHECK_FALSE(same_digest(proof, transcript(other_rank, some_challenge()).rank_proof(secret)));
}

TEST_CASE("a rank's proof, sent back, is no proof of rank 0") {
  const transcript seen(some_hello(), some_challenge());
  CHECK_FALSE(verdict::proven({verdict::code::accepted, 0, seen.rank_proof(secret)}, "", seen, secret));
}

TEST_CASE("a verdict cannot be changed, nor made without the secret") {
  const transcript seen(some_hello(), some_challenge());
  const verdict refusal{verdict::code::refused, "taken"};
  const auto data = refusal.encode(seen, secret);
  const auto head = verdict::decode_head(std::span(data).first(verdict::head_bytes));
  REQUIRE(head);
  CHECK(head->text_bytes == 5);
  CHECK(verdict::proven(*head, "taken", seen, secret));
  CHECK_FALSE(verdict::proven(*head, "Taken", seen, secret));
  CHECK_FALSE(verdict::proven({verdict::code::accepted, head->text_bytes, head->proof}, "taken", seen, secret));
  CHECK_FALSE(verdict::proven(*head, "taken", seen, other_secret));
  CHECK_FALSE(verdict::proven(*head, "taken", transcript(some_hello(), some_challenge(7)), secret));
  CHECK_FALSE(verdict::proven({verdict::code::unproven, 0, {}}, "", seen, secret));
}

TEST_CASE("a verdict with an unknown code or an endless text is refused") {
  const transcript seen(some_hello(), some_challenge());
  auto data = verdict{verdict::code::accepted, ""}.encode(seen, secret);
  CHECK(verdict::decode_head(data));
  auto unknown = data;
  unknown[0] = std::byte{7};
  CHECK_FALSE(verdict::decode_head(unknown));
  auto endless = data;
  endless[6] = std::byte{1};
  CHECK_FALSE(verdict::decode_head(endless));
  const auto cut = verdict{verdict::code::refused, std::string(5000, 'x')}.encode(seen, secret);
  CHECK(cut.size() == verdict::head_bytes + verdict::longest_text);
}

TEST_CASE("keys differ by direction and conversation") {
  const transcript seen(some_hello(), some_challenge());
  CHECK_FALSE(same_digest(seen.key_of_rank(secret), seen.key_of_root(secret)));
  CHECK_FALSE(same_digest(seen.key_of_rank(secret), transcript(some_hello(8), some_challenge()).key_of_rank(secret)));
}
