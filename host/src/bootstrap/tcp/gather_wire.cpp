#include "bootstrap/tcp/gather_wire.hpp"

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/tcp/wire.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace devcomm::host::detail {

std::vector<std::byte> contribution::encode() const {
  wire_writer out;
  out.bytes(group).integer(static_cast<std::uint32_t>(note.size())).bytes(note).bytes(mine);
  return out.data();
}

std::optional<contribution> contribution::decode(std::span<const std::byte> data) {
  wire_reader in(data);
  contribution c;
  in.bytes(c.group);
  const std::size_t note = in.integer<std::uint32_t>();
  if (!in.good() || note > data.size() - head_bytes) return std::nullopt;
  c.note = data.subspan(head_bytes, note);
  c.mine = data.subspan(head_bytes + note);
  return c;
}

std::string problem_of_contribution(const contribution& mine, std::size_t notes, std::size_t ranks, bool grouped) {
  if (grouped && mine.group == no_group) return "the group's name is all zero; give a group another name";
  if (mine.note.size() + mine.mine.size() <= longest_part) {
    return problem_of_arguments(mine.note.size(), notes, ranks);
  }
  return problem_of_arguments(mine.note.size() + mine.mine.size(), notes, ranks);
}

namespace {

using pieces = std::vector<std::span<const std::byte>>;

/// Runs of equal pieces, or 0 and all of them where that is shorter. All are of one size.
void write_runs(wire_writer& out, const pieces& all) {
  std::vector<std::pair<std::uint32_t, std::span<const std::byte>>> runs;
  for (const auto& each : all) {
    if (!runs.empty() && std::ranges::equal(runs.back().second, each)) {
      ++runs.back().first;
    } else {
      runs.emplace_back(1, each);
    }
  }
  const std::size_t bytes = all.front().size();
  const bool shorter = runs.size() * (4 + bytes) < all.size() * bytes || bytes == 0;
  out.integer(static_cast<std::uint32_t>(shorter ? runs.size() : 0));
  if (!shorter) {
    for (const auto& each : all) out.bytes(each);
    return;
  }
  for (const auto& [length, piece] : runs) out.integer(length).bytes(piece);
}

/// Most bytes of `count` pieces of `bytes`.
std::size_t longest_runs(std::size_t count, std::size_t bytes) { return 4 + std::max<std::size_t>(count * bytes, 4); }

/// Fills `all`, of `count` pieces, from the start of `data`, and takes what it reads off `data`.
bool read_runs(std::span<const std::byte>& data, std::span<std::byte> all, std::size_t count) {
  const std::size_t bytes = all.size() / count;
  wire_reader in(data);
  const auto runs = in.integer<std::uint32_t>();
  if (!in.good()) return false;
  data = data.subspan(4);
  if (runs == 0) {
    if (data.size() < all.size()) return false;
    std::ranges::copy(data.first(all.size()), all.begin());
    data = data.subspan(all.size());
    return true;
  }
  std::size_t filled = 0;
  for (std::uint32_t run = 0; run < runs; ++run) {
    wire_reader head(data);
    const std::size_t length = head.integer<std::uint32_t>();
    if (!head.good() || length == 0 || length > count - filled || data.size() - 4 < bytes) return false;
    const auto piece = data.subspan(4, bytes);
    data = data.subspan(4 + bytes);
    for (std::size_t i = 0; i < length; ++i, ++filled) std::ranges::copy(piece, all.subspan(filled * bytes).begin());
  }
  return filled == count;
}

}  // namespace

std::vector<std::byte> encode_notes(const std::vector<contribution>& all) {
  pieces notes;
  notes.reserve(all.size());
  for (const contribution& each : all) notes.push_back(each.note);
  wire_writer out;
  write_runs(out, notes);
  return out.data();
}

std::vector<std::byte> encode_group(const std::vector<contribution>& all, const std::vector<int>& members) {
  pieces parts;
  parts.reserve(members.size());
  wire_writer out;
  out.integer(static_cast<std::uint32_t>(members.size()));
  for (const int member : members) {
    out.integer(static_cast<std::int32_t>(member));
    parts.push_back(all[static_cast<std::size_t>(member)].mine);
  }
  if (!parts.empty()) write_runs(out, parts);
  return out.data();
}

std::size_t longest_result(std::size_t ranks, std::size_t note, std::size_t mine) {
  return longest_runs(ranks, note) + 4 + 4 * ranks + longest_runs(ranks, mine);
}

bool decode_notes(std::span<const std::byte>& data, std::span<std::byte> notes, std::size_t ranks) {
  return read_runs(data, notes, ranks);
}

std::optional<bootstrap::group_parts> decode_group(std::span<const std::byte> data, int rank, std::size_t ranks,
                                                   std::size_t bytes) {
  wire_reader in(data);
  const std::size_t count = in.integer<std::uint32_t>();
  if (!in.good() || count > ranks || data.size() < 4 + 4 * count) return std::nullopt;
  bootstrap::group_parts group;
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) {
    const int member = in.integer<std::int32_t>();
    const int least = group.ranks.empty() ? 0 : group.ranks.back() + 1;
    if (member < least || static_cast<std::size_t>(member) >= ranks) return std::nullopt;
    found = found || member == rank;
    group.ranks.push_back(member);
  }
  if (rank == no_rank) return count == 0 && data.size() == 4 ? std::optional(group) : std::nullopt;
  if (!found) return std::nullopt;
  group.parts.resize(count * bytes);
  data = data.subspan(4 + 4 * count);
  if (!read_runs(data, group.parts, count) || !data.empty()) return std::nullopt;
  return group;
}

}  // namespace devcomm::host::detail
