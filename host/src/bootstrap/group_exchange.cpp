#include <devcomm/host/bootstrap.hpp>

#include <algorithm>

namespace devcomm::host {

bootstrap::group_parts bootstrap::exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                           const group_name& group, std::span<const std::byte> mine,
                                           std::chrono::milliseconds limit) {
  std::vector<std::byte> own(group.begin(), group.end());
  own.insert(own.end(), note.begin(), note.end());
  own.insert(own.end(), mine.begin(), mine.end());
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::byte> all(ranks * own.size());
  all_gather(own, all, limit);
  group_parts found;
  for (std::size_t i = 0; i < ranks; ++i) {
    const auto theirs = std::span(all).subspan(i * own.size(), own.size());
    std::ranges::copy(theirs.subspan(group.size(), note.size()), notes.subspan(i * note.size()).begin());
    if (!std::ranges::equal(theirs.first(group.size()), group)) continue;
    if (group == for_first_rank && rank() != 0) continue;
    found.ranks.push_back(static_cast<int>(i));
    const auto part = theirs.subspan(group.size() + note.size());
    found.parts.insert(found.parts.end(), part.begin(), part.end());
  }
  return found;
}

}  // namespace devcomm::host
