#include <devcomm/host/error.hpp>
#include <devcomm/multimem/window_record.hpp>

#include "memory/handle_exchange.hpp"
#include "memory/open_multicast.hpp"
#include "memory/window_state.hpp"
#include "rank/forgetting.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace devcomm::host::detail {
namespace {

using devcomm::multimem::policy;

/// What a rank asks for.
struct wish {
  std::uint64_t bytes = 0;
  std::uint64_t granularity = 1;  ///< of the multicast object
  policy multimem = policy::none;
  memory_place place = memory_place::device;
  std::uint32_t team = 0;  ///< size of its LSA team; 0: the size of the window does not depend on it
};

const char* name_of(policy multimem) {
  switch (multimem) {
    case policy::none: return "multimem_policy::none";
    case policy::required: return "multimem_policy::required";
    case policy::or_software: return "multimem_policy::or_software";
  }
  return "an unknown value";
}

const char* name_of(memory_place place) {
  switch (place) {
    case memory_place::device: return "memory_place::device";
    case memory_place::pinned_host: return "memory_place::pinned_host";
  }
  return "an unknown value";
}

void require_same_wish(const rank_context& context, const std::string& call, const std::vector<wish>& wishes) {
  const std::string start = call_text(call, context.rank(), context.size()) + ": rank ";
  const wish& first = wishes[0];
  std::map<std::uint32_t, std::size_t> first_of_team;
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    const wish& other = wishes[i];
    const std::size_t alike = first_of_team.try_emplace(other.team, i).first->second;
    if (other.bytes != wishes[alike].bytes) {
      throw invalid_argument(start + std::to_string(i) + " asked for " + std::to_string(other.bytes) +
                             " bytes and rank " + std::to_string(alike) + " for " +
                             std::to_string(wishes[alike].bytes) + "; ask for the same size on every rank");
    }
    if (other.multimem != first.multimem) {
      throw invalid_argument(start + std::to_string(i) + " asked for " + name_of(other.multimem) + " and rank 0 for " +
                             name_of(first.multimem) + "; ask for the same on every rank");
    }
    if (other.place != first.place) {
      throw invalid_argument(start + std::to_string(i) + " asked for " + name_of(other.place) + " and rank 0 for " +
                             name_of(first.place) + "; ask for the same on every rank");
    }
  }
}

/// The steps of one call of `allocate`, on one rank.
class allocation_steps {
 public:
  allocation_steps(rank_context& context, const std::string& call, std::size_t bytes, const window_kind& kind)
      : context_(context),
        call_(call),
        bytes_(bytes),
        multimem_(kind.multimem),
        is_pinned_(kind.place == memory_place::pinned_host),
        alike_(kind.alike) {}

  [[nodiscard]] window_state run(const std::string& name) {
    forgetting on_failure(context_, context_.handle == handle_kind::file_descriptor ? number_ : 0);
    const std::vector<handle_bytes> handles = make_memory();
    window_state state(context_, number_, bytes_, name);
    map(state, handles);
    if (multimem_ != policy::none) add_multimem(state);
    if (is_pinned_) {
      state.multimem.reason =
          "the window lies in pinned host memory, which cannot be bound to a multicast object; allocate it in device "
          "memory";
    }
    on_failure.keep();
    state.handle_type =
        traits_of(context_.handle) != nullptr ? std::string(traits_of(context_.handle)->name) : "same process";
    state.space = std::move(space_);
    std::vector<window_part> parts;
    parts.reserve(static_cast<std::size_t>(lsa_.size));
    for (int member = 0; member < lsa_.size; ++member) {
      parts.push_back({state.window.lsa_pointer(member), bytes_, rounded_, world_rank(member)});
    }
    state.label = context_.devices.label(state.name, parts);
    return state;
  }

 private:
  /// Handles of the memory of the team's members, as elements of a list of all ranks. Where multimem is asked for, its
  /// granularity is agreed on first.
  [[nodiscard]] std::vector<handle_bytes> make_memory() {
    const auto [wishes, offers] = context_.agree.gather_notes_and_group(call_, context_.name_of_lsa(), [&] {
      std::pair<wish, handle_bytes> mine{check_wish(), {}};
      if (multimem_ == policy::none) mine.second = create(is_pinned_ ? page_bytes() : context_.granularity);
      return mine;
    });
    require_same_wish(context_, call_, wishes);
    if (multimem_ == policy::none) return offers.spread(context_.size());
    for (int member = 0; member < lsa_.size; ++member) {
      const wish& theirs = wishes[static_cast<std::size_t>(world_rank(member))];
      multicast_granularity_ = std::lcm(multicast_granularity_, std::max(theirs.granularity, std::uint64_t{1}));
    }
    return gather_in_team([&] { return create(std::lcm(context_.granularity, multicast_granularity_)); });
  }

  template <class Work>
  [[nodiscard]] std::vector<handle_bytes> gather_in_team(Work work) {
    return context_.agree.gather_group(call_, context_.name_of_lsa(), work).spread(context_.size());
  }

  [[nodiscard]] wish check_wish() {
    if (bytes_ == 0) throw invalid_argument("0 bytes; ask for at least 1");
    if (bytes_ > std::numeric_limits<std::size_t>::max() / 4 / static_cast<std::size_t>(lsa_.size)) {
      throw invalid_argument(std::to_string(bytes_) + " bytes on each of " + std::to_string(lsa_.size) +
                             " ranks do not fit an address space; ask for less");
    }
    const capability& there = context_.properties.multicast;
    if (multimem_ == policy::required && !there.available) {
      throw not_supported("multimem is required, and there is no multicast: " + there.reason +
                          "; ask for multimem_policy::or_software, which then loads from and stores to each member");
    }
    if (const capability& pinned = context_.properties.pinned_host; is_pinned_ && !pinned.available) {
      throw not_supported("there are no windows in pinned host memory: " + pinned.reason);
    }
    wish mine{bytes_, 1, multimem_, is_pinned_ ? memory_place::pinned_host : memory_place::device, 0};
    if (alike_ == same_size::in_teams_of_one_size) mine.team = static_cast<std::uint32_t>(lsa_.size);
    if (has_multicast()) mine.granularity = context_.devices.multicast_granularity(lsa_.size, context_.handle);
    return mine;
  }

  [[nodiscard]] static std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  /// This rank's memory, of whole `unit`s.
  [[nodiscard]] handle_bytes create(std::size_t unit) {
    rounded_ = (bytes_ + unit - 1) / unit * unit;
    std::unique_ptr<physical_memory> memory =
        is_pinned_ ? context_.devices.create_pinned(context_.device, rounded_, context_.handle)
                   : context_.devices.create_physical(context_.device, rounded_, context_.handle);
    const handle_bytes mine = hand_over(context_, *memory, context_.lsa_ranks, number_, window_piece::memory, until_);
    space_ = context_.process->share<window_mapping>(number_, context_.lsa_ranks.front(), lsa_.size);
    space_->place(lsa_.rank, std::move(memory), context_.device);
    return mine;
  }

  void map(window_state& state, const std::vector<handle_bytes>& handles) {
    // At least one unmapped granule after each slot: an access past its end faults.
    const std::size_t stride = rounded_ + context_.granularity + context_.devices.empty_after_part(lsa_.size);
    context_.agree.together(call_, [&] {
      const memory_place place = is_pinned_ ? memory_place::pinned_host : memory_place::device;
      space_->map(context_.devices, place, stride, [&](int member) {
        const int peer = world_rank(member);
        if (context_.handle == handle_kind::file_descriptor) {
          const unique_fd descriptor = context_.process->links().take_memory(number_, peer, until_);
          return is_pinned_ ? context_.devices.import_pinned(context_.device, descriptor.get(), rounded_)
                            : context_.devices.import_descriptor(context_.device, descriptor.get(), rounded_);
        }
        return context_.devices.import_bytes(context_.device, context_.handle,
                                             handles[static_cast<std::size_t>(peer)].get(), rounded_);
      });
      const bool windows_on_device = context_.network.windows_on_device && !is_pinned_;
      state.window.base = space_->base();
      state.window.local = space_->base() + static_cast<std::size_t>(lsa_.rank) * stride;
      if (!is_pinned_) {
        context_.devices.zero(context_.device, state.window.local, rounded_, context_.agree.limit_of_work());
      }
      // Before the ranks synchronize: the first that goes on may put to the others at once.
      state.listing =
          context_.window_ids->list(state.window.id, {state.window.local, bytes_, state.name, windows_on_device});
    });
    state.window.stride = stride;
  }

  /// Every device is added before any memory is bound, and all is bound before an address is given out: between the
  /// steps all ranks synchronize, LSA teams without multicast included.
  void add_multimem(window_state& state) {
    open_multicast(context_, call_, {context_.name_of_lsa(), context_.lsa_ranks, lsa_.rank}, has_multicast(), number_,
                   rounded_, until_, space_->multicast());
    context_.agree.together(call_, [&] {
      if (has_multicast()) space_->bind_multicast(lsa_.rank, context_.device, rounded_);
    });
    context_.agree.together(call_, [&] {
      devcomm::multimem::window_record record{nullptr, static_cast<std::uint64_t>(lsa_.size)};
      if (has_multicast())
        record.address =
            space_->map_multicast(context_.devices, rounded_, std::lcm(context_.granularity, multicast_granularity_));
      state.table = context_.devices.allocate_device(context_.device, sizeof record);
      context_.devices.copy(context_.device, state.table->data(), &record, sizeof record,
                            context_.agree.limit_of_work());
    });
    state.window.multicast = reinterpret_cast<const devcomm::multimem::window_record*>(state.table->data());
    state.multimem = context_.properties.multicast;
    if (!has_multicast()) {
      state.multimem.reason = "in software, by loads from and stores to each member: " + state.multimem.reason;
    }
  }

  [[nodiscard]] int world_rank(int member) const { return context_.lsa_ranks[static_cast<std::size_t>(member)]; }

  /// The same for all ranks of the LSA team.
  [[nodiscard]] bool has_multicast() const {
    return multimem_ != policy::none && context_.properties.multicast.available;
  }

  rank_context& context_;
  const std::string& call_;
  const std::size_t bytes_;
  const policy multimem_;
  const bool is_pinned_;
  const same_size alike_;
  const std::uint64_t number_ = ++context_.windows;
  const team lsa_ = context_.lsa;
  const deadline until_ = deadline(context_.agree.limit());
  std::size_t rounded_ = 0;
  std::size_t multicast_granularity_ = 1;
  std::shared_ptr<window_mapping> space_;
};

}  // namespace

window_state allocate_window(rank_context& context, const std::string& call, std::size_t bytes, const std::string& name,
                             const window_kind& kind) {
  return allocation_steps(context, call, bytes, kind).run(name);
}

}  // namespace devcomm::host::detail
