/// \file gather_wire.hpp
/// What ranks and rank 0 send each other in a round, inside frames.
///
///     rank -> rank 0   part      group (16 bytes), bytes of the note, note, what the group gets
///     rank 0 -> rank   result    notes of all ranks; of a group also its number of ranks, these ranks, and their parts
///
/// Notes and parts are often alike on many ranks, so rank 0 sends the number of runs of equal ones and for each run its
/// length and the bytes; or 0, and all of them, where that is shorter.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// The group of a plain `all_gather`, in which all is note.
inline constexpr bootstrap::group_name no_group{};

/// One rank's bytes of a round.
struct contribution {
  static constexpr std::size_t head_bytes = sizeof(bootstrap::group_name) + 4;

  bootstrap::group_name group = no_group;
  std::span<const std::byte> note;
  std::span<const std::byte> mine;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Refers to `data`.
  [[nodiscard]] static std::optional<contribution> decode(std::span<const std::byte> data);
};

/// What is wrong with the sizes, and what to pass; empty when they are right.
[[nodiscard]] std::string problem_of_contribution(const contribution& mine, std::size_t notes, std::size_t ranks,
                                                  bool grouped);

/// The notes of all ranks, which are of one size.
[[nodiscard]] std::vector<std::byte> encode_notes(const std::vector<contribution>& all);
/// What `members` gave their group.
[[nodiscard]] std::vector<std::byte> encode_group(const std::vector<contribution>& all,
                                                  const std::vector<int>& members);

/// Most bytes of a result for ranks that gave these.
[[nodiscard]] std::size_t longest_result(std::size_t ranks, std::size_t note, std::size_t mine);

/// Fills `notes`, of `ranks` ranks, from the start of `data` and takes what it reads off `data`; false when that is no
/// encoding of them.
[[nodiscard]] bool decode_notes(std::span<const std::byte>& data, std::span<std::byte> notes, std::size_t ranks);
/// For a rank that gets no part.
inline constexpr int no_rank = -1;
/// All of `data` as a group's part for `rank` of `ranks`, where each member gave `bytes`; nothing when it is none, as
/// where one for `no_rank` has members.
[[nodiscard]] std::optional<bootstrap::group_parts> decode_group(std::span<const std::byte> data, int rank,
                                                                 std::size_t ranks, std::size_t bytes);

}  // namespace devcomm::host::detail
