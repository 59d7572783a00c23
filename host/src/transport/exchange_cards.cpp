#include "transport/exchange_cards.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace devcomm::host::detail {
namespace {

/// Cards as they travel: of each rank its secret, and its address in as many bytes as the longest has.
class card_bytes {
 public:
  explicit card_bytes(const std::vector<fabric_endpoint::card>& cards) {
    for (const auto& each : cards) longest_ = std::max<std::size_t>(longest_, each.address.bytes);
  }
  [[nodiscard]] std::size_t each() const { return sizeof(fabric_secret) + longest_; }
  void write(const fabric_endpoint::card& from, std::span<std::byte> to) const {
    std::memcpy(to.data(), &from.secret, sizeof from.secret);
    std::memcpy(to.data() + sizeof from.secret, from.address.name.data(), from.address.bytes);
  }
  void read(std::span<const std::byte> from, fabric_endpoint::card& to) const {
    std::memcpy(&to.secret, from.data(), sizeof to.secret);
    std::memcpy(to.address.name.data(), from.data() + sizeof to.secret, to.address.bytes);
  }

 private:
  std::size_t longest_ = 0;
};

}  // namespace

card_grid::card_grid(std::size_t ranks) : ranks_(ranks), rows_(1) {
  constexpr std::size_t max_row = 64;
  if (ranks > max_row) rows_ = static_cast<std::size_t>(std::sqrt(static_cast<double>(ranks)));
}

std::vector<fabric_endpoint::card> exchange_cards(const agreement& agree, const std::string& call,
                                                  fabric_thread& thread,
                                                  const std::vector<fabric_endpoint::card>& terms,
                                                  const card_grid& grid) {
  const auto self = static_cast<std::size_t>(agree.rank());
  const std::size_t own_row = grid.row_of(self);
  const card_bytes format(terms);
  const std::size_t bytes = format.each();
  std::vector<fabric_endpoint::card> known(terms.size());
  const auto learn = [&](std::size_t first, std::size_t count, std::span<const std::byte> from) {
    for (std::size_t i = 0; i < count; ++i) {
      known[first + i] = terms[first + i];
      format.read(from.subspan(i * bytes, bytes), known[first + i]);
    }
  };
  const auto length_of = [&](std::size_t row) { return grid.first_of(row + 1) - grid.first_of(row); };

  const auto row = agree.gather_group_bytes(call, 0, bytes, [&](std::span<std::byte>, std::span<std::byte> mine) {
    format.write(thread.own_card(), mine);
    return name_of_group("row " + std::to_string(own_row));
  });
  learn(grid.first_of(own_row), length_of(own_row), row.group.parts);
  if (grid.rows() > 1) {
    const std::size_t column_bytes = sizeof(remote_address) + bytes;
    const auto column =
        agree.gather_group_bytes(call, 0, column_bytes, [&](std::span<std::byte>, std::span<std::byte> mine) {
          const remote_address offered = thread.offer(row.group.parts);
          std::memcpy(mine.data(), &offered, sizeof offered);
          format.write(thread.own_card(), mine.subspan(sizeof offered));
          return name_of_group("column " + std::to_string(grid.column_of(self)));
        });
    std::vector<peer_reads::part> parts;
    std::size_t next_row = 0;  // the first of the column in each is asked
    for (std::size_t i = 0; i < column.group.ranks.size(); ++i) {
      const int peer = column.group.ranks[i];
      const std::size_t its_row = grid.row_of(static_cast<std::size_t>(peer));
      if (its_row < next_row) continue;
      next_row = its_row + 1;
      if (its_row == own_row) continue;
      const auto said = std::span(column.group.parts).subspan(i * column_bytes, column_bytes);
      remote_address offered;
      std::memcpy(&offered, said.data(), sizeof offered);
      learn(static_cast<std::size_t>(peer), 1, said.subspan(sizeof offered));
      parts.push_back({peer, offered, length_of(its_row) * bytes});
    }
    agree.together(call, [&] { thread.connect(known); });
    agree.together(call, [&] {
      const std::vector<std::byte> all = thread.read_from_peers(parts, agree.limit_of_work());
      std::size_t start = 0;
      for (const peer_reads::part& each : parts) {
        const std::size_t its_row = grid.row_of(static_cast<std::size_t>(each.peer));
        learn(grid.first_of(its_row), length_of(its_row), std::span(all).subspan(start, each.bytes));
        start += each.bytes;
      }
    });
  }
  agree.together(call, [&] { thread.connect(known); });
  return known;
}

}  // namespace devcomm::host::detail
