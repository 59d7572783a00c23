/// \file exchange_cards.hpp
/// How ranks get the addresses and secrets of each other's endpoints.
#pragma once

#include "rank/agreement.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/fabric_thread.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Ranks in rows, whose lengths differ by one at most, and in columns, of which each has a rank in each row.
class card_grid {
 public:
  /// One row where `ranks` are few.
  explicit card_grid(std::size_t ranks);
  card_grid(std::size_t ranks, std::size_t rows) : ranks_(ranks), rows_(rows) {}

  [[nodiscard]] std::size_t rows() const { return rows_; }
  /// Of `rows()` it is the number of ranks.
  [[nodiscard]] std::size_t first_of(std::size_t row) const { return ranks_ * row / rows_; }
  [[nodiscard]] std::size_t row_of(std::size_t rank) const { return ((rank + 1) * rows_ - 1) / ranks_; }
  [[nodiscard]] std::size_t column_of(std::size_t rank) const {
    return (rank - first_of(row_of(rank))) % (ranks_ / rows_);
  }

 private:
  std::size_t ranks_;
  std::size_t rows_;
};

/// *Collective*: the cards of all ranks' endpoints, to which `thread` is connected then. `terms` has, by rank, the
/// bytes of their addresses and what messages to them carry.
///
/// Rank 0 of the bootstrap sends a rank the cards of its row and of its column. Those of the other rows it reads over
/// the fabric from ranks of its column. Of n ranks, each gets about 2 sqrt(n) cards through rank 0 so, and not n.
std::vector<fabric_endpoint::card> exchange_cards(const agreement& agree, const std::string& call,
                                                  fabric_thread& thread,
                                                  const std::vector<fabric_endpoint::card>& terms,
                                                  const card_grid& grid);

}  // namespace devcomm::host::detail
