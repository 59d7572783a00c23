#include "gpu/peer_groups.hpp"

#include <charconv>
#include <cstddef>

namespace devcomm::simulator::detail {
namespace {

constexpr int max_devices = 65536;

/// Takes a device's number from the front of `text`, or -1.
int take_number(std::string_view& text) {
  int number = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || number < 0 || number >= max_devices) return -1;
  text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
  return number;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<peer_groups> peer_groups::parse(std::string_view text) {
  peer_groups parsed;
  parsed.text_ = text;
  for (int group = 0; !text.empty();) {
    const int first = take_number(text);
    const int last = take(text, '-') ? take_number(text) : first;
    if (first < 0 || last < first) return std::nullopt;
    if (parsed.groups_.size() <= static_cast<std::size_t>(last))
      parsed.groups_.resize(static_cast<std::size_t>(last) + 1, -1);
    for (int device = first; device <= last; ++device) {
      int& known = parsed.groups_[static_cast<std::size_t>(device)];
      if (known >= 0) return std::nullopt;
      known = group;
    }
    if (text.empty()) break;
    if (take(text, '/')) {
      ++group;
    } else if (!take(text, ',')) {
      return std::nullopt;
    }
    if (text.empty()) return std::nullopt;
  }
  return parsed;
}

bool peer_groups::joins(int a, int b) const {
  return a == b || text_.empty() || (group_of(a) >= 0 && group_of(a) == group_of(b));
}

int peer_groups::group_of(int device) const {
  const auto at = static_cast<std::size_t>(device);
  return at < groups_.size() ? groups_[at] : -1;
}

}  // namespace devcomm::simulator::detail
