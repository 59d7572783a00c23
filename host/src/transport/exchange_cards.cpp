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

std::vector<fabric_endpoint::card> read_cards(const std::vector<fabric_endpoint::card>& terms,
                                              std::span<const std::byte> bytes) {
  const card_bytes format(terms);
  std::vector<fabric_endpoint::card> cards = terms;
  for (std::size_t i = 0; i < cards.size(); ++i) format.read(bytes.subspan(i * format.each()), cards[i]);
  return cards;
}

/// Where the parent of this rank has its table, and the parent's card. Two rounds of the bootstrap, as a rank is a
/// child in one family and the parent of another: levels of parents are even in the first and odd in the second.
struct family {
  remote_address table;
  std::vector<std::byte> card;
};

family gather_family(const agreement& agree, const std::string& call, const card_tree& tree, remote_address own_table,
                     std::span<const std::byte> own_card) {
  const int self = agree.rank();
  const int parent = tree.parent_of(self);
  family found;
  for (int parity = 0; parity < 2; ++parity) {
    const bool is_parent = tree.level_of(self) % 2 == parity;
    const std::size_t bytes = sizeof own_table + own_card.size();
    const auto members = agree.gather_group_bytes(call, 0, bytes, [&](std::span<std::byte>, std::span<std::byte> mine) {
      // Children say nothing.
      if (is_parent) {
        std::memcpy(mine.data(), &own_table, sizeof own_table);
        std::memcpy(mine.data() + sizeof own_table, own_card.data(), own_card.size());
      }
      return name_of_group("family of rank " + std::to_string(is_parent ? self : parent));
    });
    if (is_parent || self == 0) continue;
    const std::byte* const said = members.group.parts.data();  // the parent is the first
    std::memcpy(&found.table, said, sizeof found.table);
    found.card.assign(said + sizeof found.table, said + bytes);
  }
  return found;
}

}  // namespace

std::vector<fabric_endpoint::card> exchange_cards_of_few(const agreement& agree, const std::string& call,
                                                         fabric_thread& thread,
                                                         const std::vector<fabric_endpoint::card>& terms) {
  const card_bytes format(terms);
  std::vector<fabric_endpoint::card> cards =
      read_cards(terms, agree.gather_bytes(call, format.each(),
                                           [&](std::span<std::byte> mine) { format.write(thread.own_card(), mine); }));
  agree.together(call, [&] { thread.connect(cards, agree.limit_of_work()); });
  return cards;
}

std::vector<fabric_endpoint::card> exchange_cards(const agreement& agree, const std::string& call,
                                                  fabric_thread& thread,
                                                  const std::vector<fabric_endpoint::card>& terms, card_tree tree) {
  const int self = agree.rank();
  const int level = tree.level_of(self);
  const card_bytes format(terms);
  std::vector<std::byte> own(format.each());
  const auto at_root = agree.gather_group_bytes(call, 0, own.size(), [&](std::span<std::byte>, auto mine) {
    format.write(thread.own_card(), own);
    std::copy(own.begin(), own.end(), mine.begin());
    return bootstrap::for_first_rank;
  });
  remote_address table;
  agree.together(call, [&] {
    table = thread.offer_table(terms.size() * own.size());
    if (self == 0) thread.fill_table(at_root.group.parts);
  });
  const family found = gather_family(agree, call, tree, table, own);
  const int parent = tree.parent_of(self);
  agree.together(call, [&] {
    std::vector<fabric_endpoint::card> known(terms.size());
    if (self != 0) {
      fabric_endpoint::card& its = known[static_cast<std::size_t>(parent)];
      its = terms[static_cast<std::size_t>(parent)];
      format.read(found.card, its);
    }
    thread.connect(known, agree.limit_of_work());
  });
  std::vector<std::byte> all = at_root.group.parts;
  for (int now = 1; now < tree.levels(); ++now) {
    agree.together(call, [&] {
      if (now == level) all = thread.read_table(parent, found.table, agree.limit_of_work());
    });
  }
  std::vector<fabric_endpoint::card> cards = read_cards(terms, all);
  agree.together(call, [&] { thread.connect(cards, agree.limit_of_work()); });
  return cards;
}

}  // namespace devcomm::host::detail
