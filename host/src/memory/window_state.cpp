#include "memory/window_state.hpp"

namespace devcomm::host::detail {

window_state::window_state(const rank_context& context, std::uint64_t number, std::size_t size,
                           const std::string& given_name)
    : bytes(size), name(window_name(number, given_name)) {
  window.bytes = size;
  window.lsa_first = context.lsa.first;
  window.lsa_size = context.lsa.size;
  window.lsa_rank = context.lsa.rank;
  window.id = static_cast<std::uint32_t>(number);
}

std::string window_name(std::uint64_t number, const std::string& name) {
  return name.empty() ? "window " + std::to_string(number) : "window '" + name + "'";
}

}  // namespace devcomm::host::detail
