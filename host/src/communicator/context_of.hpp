/// \file context_of.hpp
/// The state of a rank behind a communicator, for the library's own use.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "rank/rank_context.hpp"

#include <cstddef>
#include <string>

namespace devcomm::host::detail {

struct context_of {
  [[nodiscard]] static rank_context& get(communicator& of);
  /// `register_memory`, with one stride where the memory allows it: the window then has addresses of its own.
  [[nodiscard]] static symmetric_memory register_with_stride(communicator& of, void* local, std::size_t bytes,
                                                             const std::string& name,
                                                             code_place made = code_place::here());
};

}  // namespace devcomm::host::detail
