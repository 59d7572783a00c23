#include <devcomm/host/error.hpp>

#include "memory/mapped_registration.hpp"
#include "memory/registration.hpp"
#include "memory/window_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// What all ranks hear of a registration.
struct registration_note {
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
};

/// The most pieces that a rank registers; throws where ranks register different sizes.
std::size_t max_pieces_of(const rank_context& context, const std::string& call,
                          const std::vector<registration_note>& notes) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    most = std::max(most, static_cast<std::size_t>(notes[i].pieces));
    if (notes[i].bytes == notes[0].bytes) continue;
    throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
                           " registers " + std::to_string(notes[i].bytes) + " bytes and rank 0 " +
                           std::to_string(notes[0].bytes) + "; register the same size on every rank");
  }
  return most;
}

/// Whether all memory of the LSA team can be mapped at one stride: a piece each, of one size, from one place in it on.
bool has_one_stride(const rank_context& context, const std::vector<registration>& all, const mapped_steps& pieces) {
  const int first = context.lsa_ranks.front();
  return std::all_of(context.lsa_ranks.begin(), context.lsa_ranks.end(), [&](int peer) {
    const registration& theirs = all[static_cast<std::size_t>(peer)];
    return theirs.pieces == 1 && theirs.offset == all[static_cast<std::size_t>(first)].offset &&
           pieces.bytes_of(peer)[0] == pieces.bytes_of(first)[0];
  });
}

}  // namespace

window_state register_window(rank_context& context, const std::string& call, void* local, std::size_t bytes,
                             const std::string& name, registered_layout layout) {
  const std::uint64_t number = ++context.windows;
  const team lsa = context.lsa;

  mapped_memory mapped;
  const auto [notes, team] = context.agree.gather_notes_and_group(call, context.name_of_lsa(), [&] {
    const registration mine = describe_memory(context, local, bytes, &mapped);
    if (mine.pieces > max_pieces) {
      throw not_supported("the memory is mapped from " + std::to_string(mine.pieces) +
                          " pieces of physical memory; register at most " + std::to_string(max_pieces) + " at once");
    }
    return std::pair(registration_note{bytes, mine.pieces}, mine);
  });
  const std::size_t most = max_pieces_of(context, call, notes);
  const bool is_mapped = !mapped.pieces.empty();
  mapped_steps pieces(context, number, most);
  std::shared_ptr<window_mapping> space;
  if (most != 0 && layout == registered_layout::one_stride) {
    // Before the ranks synchronize: one of this process maps what all have placed.
    space = context.process->share<window_mapping>(++context.windows, context.lsa_ranks.front(), lsa.size);
    if (mapped.pieces.size() == 1) space->place(lsa.rank, mapped.pieces.front(), context.device);
  }
  if (most != 0) pieces.exchange(call, std::move(mapped));

  const std::vector<registration> all = team.spread(context.size());
  window_state state(context, number, bytes, name);
  std::vector<window_part> parts;
  const bool is_strided = space != nullptr && has_one_stride(context, all, pieces);
  context.agree.together(call, [&] {
    std::vector<char*> addresses;
    if (is_strided) {
      const std::size_t whole = pieces.bytes_of(context.rank())[0];
      const std::size_t stride = whole + context.granularity + context.devices.empty_after_part(lsa.size);
      space->map(context.devices, memory_place::device, stride,
                 [&](int member) { return pieces.import_only(context.lsa_ranks[static_cast<std::size_t>(member)]); });
      state.window.base = space->base() + all[static_cast<std::size_t>(context.rank())].offset;
      state.window.stride = stride;
      for (int member = 0; member < lsa.size; ++member) addresses.push_back(state.window.lsa_pointer(member));
      state.window.local = addresses[static_cast<std::size_t>(lsa.rank)];
      state.space = std::move(space);
    } else {
      for (const int peer : context.lsa_ranks) {
        const registration& theirs = all[static_cast<std::size_t>(peer)];
        if (theirs.pieces != 0 && peer != context.rank()) {
          state.opened.push_back(pieces.join(peer, theirs.pieces));
          addresses.push_back(state.opened.back()->data() + theirs.offset);
        } else {
          addresses.push_back(open_memory(context, peer, theirs, state.opened));
        }
      }
      const std::size_t table_bytes = addresses.size() * sizeof(char*);
      state.table = context.devices.allocate_device(context.device, table_bytes);
      context.devices.copy(context.device, state.table->data(), addresses.data(), table_bytes,
                           context.agree.limit_of_work());
      state.window.local = static_cast<char*>(local);
    }
    for (int member = 0; member < lsa.size; ++member) {
      parts.push_back({addresses[static_cast<std::size_t>(member)], bytes, bytes,
                       context.lsa_ranks[static_cast<std::size_t>(member)]});
    }
    // Before the ranks synchronize: the first that goes on may put to the others at once.
    state.listing = context.window_ids->list(
        state.window.id, {state.window.local, bytes, state.name, context.network.windows_on_device});
  });
  if (!is_strided) state.window.table = reinterpret_cast<char* const*>(state.table->data());
  const bool all_mapped = std::all_of(context.lsa_ranks.begin(), context.lsa_ranks.end(),
                                      [&](int peer) { return all[static_cast<std::size_t>(peer)].pieces != 0; });
  state.multimem.reason =
      all_mapped
          ? "registered memory that was mapped elsewhere may lack the granularity of a multicast object; use allocate"
          : "registered memory comes from cudaMalloc, which cannot be bound to a multicast object; use allocate";
  state.label = context.devices.label(state.name, parts);
  const handle_traits* const kind = traits_of(context.handle);
  state.handle_type =
      is_mapped && kind != nullptr ? std::string(kind->name) : std::string(handle_type_of_registered(context));
  pieces.keep();
  return state;
}

}  // namespace devcomm::host::detail
