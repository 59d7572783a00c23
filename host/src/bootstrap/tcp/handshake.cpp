#include "bootstrap/tcp/handshake.hpp"

#include "bootstrap/tcp/wire.hpp"

#include <cstring>

namespace devcomm::host::detail {
namespace {

constexpr std::array<char, 8> hello_magic = {'d', 'e', 'v', 'c', 'o', 'm', 'm', '?'};
constexpr std::array<char, 8> challenge_magic = {'d', 'e', 'v', 'c', 'o', 'm', 'm', '!'};

std::span<const std::byte> magic_bytes(const std::array<char, 8>& magic) { return std::as_bytes(std::span(magic)); }

bool starts_with(std::span<const std::byte> data, const std::array<char, 8>& magic) {
  return data.size() >= magic.size() && std::memcmp(data.data(), magic.data(), magic.size()) == 0;
}

digest verdict_proof(verdict::code outcome, std::string_view text, const transcript& seen, secret_view secret) {
  wire_writer more;
  more.integer(static_cast<std::uint32_t>(outcome)).bytes(bytes_of(text));
  return seen.labeled(secret, "root", more.data());
}

}  // namespace

std::vector<std::byte> hello::encode() const {
  wire_writer out;
  out.bytes(magic_bytes(hello_magic)).integer(version).integer(size).integer(rank);
  out.integer(std::uint32_t{0}).bytes(fresh);
  return out.data();
}

std::optional<hello> hello::decode(std::span<const std::byte> data) {
  if (data.size() != wire_bytes || !starts_with(data, hello_magic)) return std::nullopt;
  wire_reader in(data.subspan(hello_magic.size()));
  hello h;
  h.version = in.integer<std::uint32_t>();
  h.size = in.integer<std::uint32_t>();
  h.rank = in.integer<std::uint32_t>();
  if (in.integer<std::uint32_t>() != 0) return std::nullopt;
  in.bytes(h.fresh);
  return h;
}

std::vector<std::byte> challenge::encode() const {
  wire_writer out;
  out.bytes(magic_bytes(challenge_magic)).integer(version).integer(std::uint32_t{0}).bytes(fresh);
  return out.data();
}

std::optional<challenge> challenge::decode(std::span<const std::byte> data) {
  if (data.size() != wire_bytes || !starts_with(data, challenge_magic)) return std::nullopt;
  wire_reader in(data.subspan(challenge_magic.size()));
  challenge c;
  c.version = in.integer<std::uint32_t>();
  if (in.integer<std::uint32_t>() != 0) return std::nullopt;
  in.bytes(c.fresh);
  return c;
}

transcript::transcript(const hello& h, const challenge& c) : bytes_(h.encode()) {
  const auto second = c.encode();
  bytes_.insert(bytes_.end(), second.begin(), second.end());
}

digest transcript::labeled(secret_view secret, std::string_view label, std::span<const std::byte> more) const {
  const std::byte end{0};
  return hmac_sha256(secret).update(bytes_of(label)).update({&end, 1}).update(bytes_).update(more).finish();
}

std::vector<std::byte> verdict::encode(const transcript& seen, secret_view secret) const {
  const std::string shown = text.substr(0, longest_text);
  const digest proof = outcome == code::unproven ? digest{} : verdict_proof(outcome, shown, seen, secret);
  wire_writer out;
  out.integer(static_cast<std::uint32_t>(outcome)).integer(static_cast<std::uint32_t>(shown.size()));
  out.bytes(proof).bytes(bytes_of(shown));
  return out.data();
}

std::optional<verdict::head> verdict::decode_head(std::span<const std::byte> data) {
  if (data.size() != head_bytes) return std::nullopt;
  wire_reader in(data);
  const auto outcome = in.integer<std::uint32_t>();
  const auto text_bytes = in.integer<std::uint32_t>();
  if (outcome > static_cast<std::uint32_t>(code::refused) || text_bytes > longest_text) return std::nullopt;
  head h{static_cast<code>(outcome), text_bytes, {}};
  in.bytes(h.proof);
  return h;
}

bool verdict::proven(const head& h, std::string_view text, const transcript& seen, secret_view secret) {
  return h.outcome != code::unproven && same_digest(h.proof, verdict_proof(h.outcome, text, seen, secret));
}

}  // namespace devcomm::host::detail
