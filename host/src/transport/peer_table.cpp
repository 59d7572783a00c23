#include "transport/peer_table.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_tokens.hpp"

#include <algorithm>
#include <span>

namespace devcomm::host::detail {

remote_address peer_table::offer(fabric& reached, std::size_t bytes) {
  bytes_.resize(bytes);
  region_ = reached.add_memory(reinterpret_cast<char*>(bytes_.data()), bytes, std::nullopt);
  return {region_->key(), region_->base()};
}

void peer_table::fill(std::vector<std::byte> bytes) { std::copy(bytes.begin(), bytes.end(), bytes_.begin()); }

void peer_table::begin_read(int peer, remote_address from) {
  peer_ = peer;
  from_ = from;
  left_ = bytes_.size();
}

void peer_table::step(fabric& reached) {
  if (left_ == 0 || reading_ != 0) return;
  const std::size_t start = bytes_.size() - left_;
  const std::size_t piece = static_cast<std::size_t>(std::min<std::uint64_t>(left_, reached.largest_transfer()));
  try {
    const std::span<char> to(reinterpret_cast<char*>(bytes_.data()) + start, piece);
    if (!reached.read(peer_, to, *region_, {from_.key, from_.address + start}, make_token(token_kind::table, 0, 0)))
      return;
    reading_ = piece;
  } catch (const system_error& problem) {
    handle_read(problem.what());
  }
}

void peer_table::handle_read(const std::string& error) {
  left_ -= reading_;
  reading_ = 0;
  if (error.empty()) return;
  left_ = 0;
  error_ = "reading the addresses of the network from rank " + std::to_string(peer_) + ": " + error;
}

std::optional<std::vector<std::byte>> peer_table::found() const {
  if (!error_.empty()) throw system_error(error_);
  if (left_ != 0) return std::nullopt;
  return bytes_;
}

}  // namespace devcomm::host::detail
