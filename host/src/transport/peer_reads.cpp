#include "transport/peer_reads.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_tokens.hpp"

#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

std::span<char> chars_of(std::span<std::byte> bytes) { return {reinterpret_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

remote_address peer_reads::offer(fabric& reached, std::vector<std::byte> bytes) {
  offered_ = std::move(bytes);
  offered_region_ = reached.add_memory(chars_of(offered_).data(), offered_.size(), std::nullopt);
  return {offered_region_->key(), offered_region_->base()};
}

void peer_reads::begin(fabric& reached, const std::vector<part>& parts) {
  std::size_t bytes = 0;
  for (const part& each : parts) {
    waiting_.push_back(reads_.size());
    reads_.push_back({each, bytes});
    bytes += each.bytes;
  }
  left_ = reads_.size();
  bytes_.resize(bytes);
  region_ = reached.add_buffers(bytes_);
}

void peer_reads::step(fabric& reached) {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const std::size_t slot = waiting_.front();
    const read& next = reads_[slot];
    const std::span<char> destination = chars_of(bytes_).subspan(next.offset, next.of.bytes);
    try {
      if (!reached.read(next.of.peer, destination, *region_, next.of.from,
                        make_token(token_kind::peer_read, 0, slot))) {
        return;
      }
    } catch (const system_error& problem) {
      handle_read(slot, problem.what());
    }
  }
}

void peer_reads::handle_read(std::size_t slot, const std::string& error) {
  if (!error.empty() && error_.empty()) {
    error_ = "reading the addresses of the network from rank " + std::to_string(reads_[slot].of.peer) + ": " + error;
  }
  --left_;
}

std::optional<std::vector<std::byte>> peer_reads::take() {
  if (left_ != 0) return std::nullopt;
  reads_.clear();
  region_.reset();
  if (!error_.empty()) throw system_error(std::exchange(error_, {}));
  return std::exchange(bytes_, {});
}

void peer_reads::close() {
  waiting_.clear();
  region_.reset();
  offered_region_.reset();
}

}  // namespace devcomm::host::detail
