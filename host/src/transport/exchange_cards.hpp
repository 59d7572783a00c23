/// \file exchange_cards.hpp
/// How ranks get the addresses and secrets of each other's endpoints.
#pragma once

#include "rank/agreement.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/fabric_thread.hpp"

#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Ranks as a tree in which each has at most `degree` children; rank 0 is its root.
struct card_tree {
  int ranks;
  int degree;

  /// Of a rank that is not the root.
  [[nodiscard]] int parent_of(int rank) const { return (rank - 1) / degree; }
  /// Steps to the root.
  [[nodiscard]] int level_of(int rank) const {
    int level = 0;
    for (; rank != 0; rank = parent_of(rank)) ++level;
    return level;
  }
  [[nodiscard]] int levels() const { return level_of(ranks - 1) + 1; }
};

/// *Collective*: the cards of all ranks' endpoints, to which `thread` is connected then. `terms` has, by rank, the
/// bytes of their addresses and what messages to them carry.
///
/// Only rank 0 gets all cards through the bootstrap. The others read them over the fabric, each from its parent in
/// `tree`, level by level.
std::vector<fabric_endpoint::card> exchange_cards(const agreement& agree, const std::string& call,
                                                  fabric_thread& thread,
                                                  const std::vector<fabric_endpoint::card>& terms, card_tree tree);
/// *Collective*: the same for few ranks, all through the bootstrap.
std::vector<fabric_endpoint::card> exchange_cards_of_few(const agreement& agree, const std::string& call,
                                                         fabric_thread& thread,
                                                         const std::vector<fabric_endpoint::card>& terms);

}  // namespace devcomm::host::detail
