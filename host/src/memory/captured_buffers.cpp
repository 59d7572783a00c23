#include "memory/captured_buffers_state.hpp"

#include <devcomm/host/error.hpp>

#include "util/call_text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace devcomm::host {

using detail::registration;

captured_buffers::state::state(detail::rank_context& context, const std::string& call, std::size_t max_buffers,
                               const std::string& name, code_place made)
    : devices_(context.devices),
      device_(context.device),
      lsa_(context.lsa),
      lsa_table_(context.lsa_table),
      start_(detail::call_text("captured_buffers", context.rank(), context.size()) + ": "),
      name_("captured buffers" + (name.empty() ? "" : " '" + name + "'")),
      max_(max_buffers),
      first_number_(context.windows + 1),
      first_id_(context.window_id(first_number_)),
      entry_(context.objects, name_, made) {
  context.windows += max_buffers;
  const std::vector<std::uint64_t> asked = context.agree.gather(call, [&] {
    if (max_buffers == 0) throw invalid_argument("room for 0 buffers; ask for as many as the graphs' calls use");
    static_cast<void>(context.window_id(first_number_ + max_buffers - 1));
    const std::size_t bytes = max_buffers * static_cast<std::size_t>(lsa_.size) * sizeof(char*);
    tables_ = devices_.allocate_device(device_, bytes);
    devices_.zero(device_, tables_->data(), bytes, context.agree.limit_of_work());
    return std::uint64_t{max_buffers};
  });
  for (std::size_t i = 1; i < asked.size(); ++i) {
    if (asked[i] == asked[0]) continue;
    throw invalid_argument(detail::call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
                           " asked for room for " + std::to_string(asked[i]) + " buffers and rank 0 for " +
                           std::to_string(asked[0]) + "; ask for the same on every rank");
  }
}

std::string captured_buffers::state::name_of(std::size_t index) const {
  return "buffer " + std::to_string(index) + " of " + name_;
}

window captured_buffers::state::add(void* data, std::size_t bytes) {
  if (buffers_.size() == max_) {
    throw invalid_argument(start_ + "all " + std::to_string(max_) +
                           " places are taken; ask communicator::collect_buffers for more");
  }
  const std::size_t index = buffers_.size();
  buffers_.push_back({static_cast<char*>(data), bytes});
  window made{};
  made.table = reinterpret_cast<char* const*>(tables_->data()) + index * static_cast<std::size_t>(lsa_.size);
  made.local = static_cast<char*>(data);
  made.bytes = bytes;
  made.lsa_first = lsa_.first;
  made.lsa_size = lsa_.size;
  made.lsa_rank = lsa_.rank;
  made.lsa_ranks = lsa_table_ != nullptr ? reinterpret_cast<const std::int32_t*>(lsa_table_->data()) : nullptr;
  made.id = first_id_ + static_cast<std::uint32_t>(index);
  return made;
}

void captured_buffers::state::require_same_calls(const detail::rank_context& context, const std::string& call) const {
  struct counts {
    std::uint64_t object;  // by its first window
    std::uint64_t registered;
    std::uint64_t added;
  };
  const std::vector<counts> all = context.agree.gather(call, [&] {
    return counts{first_number_, registered_.size(), buffers_.size()};
  });
  const std::string start = detail::call_text(call, context.rank(), context.size()) + ": rank ";
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].object != all[0].object) {
      throw invalid_argument(start + std::to_string(i) +
                             " gives other captured buffers than rank 0; give those of one collect_buffers");
    }
    if (all[i].added != all[0].added || all[i].registered != all[0].registered) {
      throw invalid_argument(start + std::to_string(i) + " captured " +
                             std::to_string(all[i].added - all[i].registered) + " buffers and rank 0 " +
                             std::to_string(all[0].added - all[0].registered) +
                             "; capture the same calls on every rank");
    }
  }
}

std::vector<std::vector<registration>> captured_buffers::state::gather(detail::rank_context& context,
                                                                       const std::string& call, std::size_t first,
                                                                       std::size_t count) const {
  constexpr std::size_t at_once = 16;
  std::vector<std::vector<registration>> all;
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t now = std::min(at_once, count - done);
    using sizes = std::array<std::uint64_t, at_once>;
    const auto [bytes, group] = context.agree.gather_notes_and_group(call, context.name_of_lsa(), [&] {
      std::pair<sizes, std::array<registration, at_once>> mine{};
      for (std::size_t i = 0; i < now; ++i) {
        const buffer& one = buffers_[first + done + i];
        try {
          mine.second[i] = detail::describe_memory(context, one.data, one.bytes);
        } catch (const invalid_argument& error) {
          throw invalid_argument(name_of(first + done + i) + ": " + error.what());
        } catch (const not_supported& error) {
          throw not_supported(name_of(first + done + i) + ": " + error.what());
        }
        mine.first[i] = one.bytes;
      }
      return mine;
    });
    for (std::size_t i = 0; i < now; ++i) {
      for (std::size_t rank = 1; rank < bytes.size(); ++rank) {
        if (bytes[rank][i] == bytes[0][i]) continue;
        throw invalid_argument(detail::call_text(call, context.rank(), context.size()) + ": " +
                               name_of(first + done + i) + " has " + std::to_string(bytes[rank][i]) +
                               " bytes on rank " + std::to_string(rank) + " and " + std::to_string(bytes[0][i]) +
                               " on rank 0; capture the same calls on every rank");
      }
      all.emplace_back(static_cast<std::size_t>(context.size()));
      for (std::size_t m = 0; m < group.ranks.size(); ++m)
        all.back()[static_cast<std::size_t>(group.ranks[m])] = group.parts[m][i];
    }
  }
  return all;
}

void captured_buffers::state::register_new(detail::rank_context& context, const std::string& call) {
  require_same_calls(context, call);
  const std::size_t first = registered_.size();
  const std::size_t count = buffers_.size() - first;
  if (count == 0) return;
  const std::vector<std::vector<registration>> all = gather(context, call, first, count);
  std::vector<held> made(count);
  context.agree.together(call, [&] {
    std::vector<char*> table;
    for (std::size_t i = 0; i < count; ++i) {
      const buffer& one = buffers_[first + i];
      std::vector<detail::window_part> parts;
      for (const int peer : context.lsa_ranks) {
        const registration& theirs = all[i][static_cast<std::size_t>(peer)];
        table.push_back(detail::open_memory(context, peer, theirs, made[i].opened));
        parts.push_back({table.back(), one.bytes, one.bytes, peer});
      }
      made[i].allocation = devices_.allocation_id(device_, one.data);
      made[i].label = devices_.label(name_of(first + i), parts);
      made[i].listing =
          context.window_ids->list(first_id_ + static_cast<std::uint32_t>(first + i),
                                   {one.data, one.bytes, name_of(first + i), context.network.windows_on_device});
    }
    char* const to = tables_->data() + first * static_cast<std::size_t>(lsa_.size) * sizeof(char*);
    devices_.copy(device_, to, table.data(), table.size() * sizeof(char*), context.agree.limit_of_work());
  });
  std::move(made.begin(), made.end(), std::back_inserter(registered_));
}

void captured_buffers::state::check() const {
  for (std::size_t i = 0; i < registered_.size(); ++i) {
    if (devices_.allocation_id(device_, buffers_[i].data) == registered_[i].allocation) continue;
    throw invalid_argument(start_ + name_of(i) + ", " + std::to_string(buffers_[i].bytes) +
                           " bytes, has been freed since it was registered; keep memory as long as the graphs that "
                           "were captured with it, or capture again");
  }
}

void captured_buffers::destroyer::operator()(state* s) const noexcept {
  if (s->made_in.here()) delete s;
}

captured_buffers::captured_buffers(std::unique_ptr<state, destroyer> s) : state_(std::move(s)) {}
captured_buffers::captured_buffers(captured_buffers&&) noexcept = default;
captured_buffers& captured_buffers::operator=(captured_buffers&&) noexcept = default;
captured_buffers::~captured_buffers() = default;

window captured_buffers::add_bytes(void* data, std::size_t bytes) { return state_->add(data, bytes); }
std::size_t captured_buffers::size() const noexcept { return state_->size(); }
std::size_t captured_buffers::registered() const noexcept { return state_->registered(); }
void captured_buffers::check() const { state_->check(); }

}  // namespace devcomm::host
