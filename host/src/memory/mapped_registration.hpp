/// \file mapped_registration.hpp
/// Registration of memory that its owner mapped from physical memory, such as PyTorch's expandable segments.
#pragma once

#include <devcomm/host/error.hpp>

#include "device/backend.hpp"
#include "memory/handle_exchange.hpp"
#include "rank/forgetting.hpp"
#include "rank/rank_context.hpp"
#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// PyTorch's segments grow by 20 MiB at a time.
inline constexpr std::size_t max_pieces = 256;

/// Sizes of the pieces of a rank's memory, and their fabric handles where they have such.
struct piece_list {
  std::array<std::uint64_t, max_pieces> bytes{};
  std::array<std::array<std::byte, 64>, max_pieces> handles{};
};

using mapped_memory = sharing_port::mapped_memory;

/// Pieces of another rank's memory, mapped one after the other.
class joined_memory final : public opened_memory {
 public:
  joined_memory(memory_port& devices, std::vector<std::shared_ptr<physical_memory>> pieces,
                std::span<const std::uint64_t> bytes, std::span<const int> users)
      : pieces_(std::move(pieces)),
        range_(devices.reserve(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}))) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      range_->map(at, *pieces_[i], users);
      at += bytes[i];
    }
  }
  [[nodiscard]] char* data() const noexcept override { return range_->base(); }

 private:
  std::vector<std::shared_ptr<physical_memory>> pieces_;
  std::unique_ptr<address_range> range_;  // destroyed first
};

/// Memory that the ranks of one LSA team in one process mapped, or map, by its owner's rank.
struct process_pieces {
  std::mutex mutex;
  std::map<int, mapped_memory> own;
  std::map<int, std::shared_ptr<joined_memory>> joined;
};

/// The steps for memory that its owner mapped from physical memory.
class mapped_steps {
 public:
  /// No rank has more than `most` pieces.
  mapped_steps(rank_context& context, std::uint64_t number, std::size_t most)
      : context_(context),
        first_(context.windows + 1),
        on_failure_(context, context.handle == handle_kind::file_descriptor ? context.windows + most : 0),
        inside_(context.process->share<process_pieces>(number, context.lsa_ranks.front())) {
    context.windows += most;  // names the pieces
  }

  /// *Collective*: `mine` are this rank's pieces, if any.
  void exchange(const std::string& call, mapped_memory mine) {
    lists_ = context_.agree.gather_group(call, context_.name_of_lsa(), [&] { return share(std::move(mine)); })
                 .spread(context_.size());
  }

  /// Sizes of the pieces of `peer`.
  [[nodiscard]] std::span<const std::uint64_t> bytes_of(int peer) const {
    return lists_[static_cast<std::size_t>(peer)].bytes;
  }
  /// The only piece of `peer`, which is in another process.
  [[nodiscard]] std::shared_ptr<physical_memory> import_only(int peer) {
    return import(peer, 0, lists_[static_cast<std::size_t>(peer)]);
  }

  /// The memory of `peer`, of `count` pieces, in this process.
  [[nodiscard]] std::shared_ptr<opened_memory> join(int peer, std::size_t count) {
    const piece_list& theirs = lists_[static_cast<std::size_t>(peer)];
    const std::lock_guard lock(inside_->mutex);
    std::shared_ptr<joined_memory>& known = inside_->joined[peer];
    if (known) return known;
    std::vector<std::shared_ptr<physical_memory>> pieces;
    if (const auto local = inside_->own.find(peer); local != inside_->own.end()) {
      pieces = local->second.pieces;
    } else {
      for (std::size_t i = 0; i < count; ++i) pieces.push_back(import(peer, i, theirs));
    }
    std::vector<int> users;
    for (const int rank : context_.lsa_ranks) {
      if (context_.same_process(rank)) users.push_back(context_.device_infos[static_cast<std::size_t>(rank)].device);
    }
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    known = std::make_shared<joined_memory>(context_.devices, std::move(pieces), std::span(theirs.bytes).first(count),
                                            users);
    return known;
  }

  void keep() { on_failure_.keep(); }

 private:
  [[nodiscard]] piece_list share(mapped_memory mine) {
    piece_list said;
    for (std::size_t i = 0; i < mine.pieces.size(); ++i) {
      said.bytes[i] = mine.bytes[i];
      const handle_bytes handle =
          hand_over(context_, *mine.pieces[i], context_.lsa_ranks, first_ + i, window_piece::memory, until_);
      if (handle.count == 0) continue;
      if (handle.count != said.handles[i].size()) {
        throw system_error("a memory handle of " + std::to_string(handle.count) +
                           " bytes is not what the library expects");
      }
      std::copy_n(handle.bytes.begin(), handle.count, said.handles[i].begin());
    }
    const std::lock_guard lock(inside_->mutex);
    if (!mine.pieces.empty()) inside_->own[context_.rank()] = std::move(mine);
    return said;
  }

  [[nodiscard]] std::shared_ptr<physical_memory> import(int peer, std::size_t piece, const piece_list& theirs) {
    const auto bytes = static_cast<std::size_t>(theirs.bytes[piece]);
    if (context_.handle == handle_kind::file_descriptor) {
      const unique_fd descriptor = context_.process->links().take_memory(first_ + piece, peer, until_);
      return context_.devices.import_descriptor(context_.device, descriptor.get(), bytes);
    }
    return context_.devices.import_bytes(context_.device, context_.handle, theirs.handles[piece], bytes);
  }

  rank_context& context_;
  const std::uint64_t first_;
  const deadline until_ = deadline(context_.agree.limit());
  forgetting on_failure_;
  std::shared_ptr<process_pieces> inside_;
  std::vector<piece_list> lists_;
};

}  // namespace devcomm::host::detail
