/// \file torch_store.hpp
/// The store of torchrun, which is torch's TCPStore, and its client.
#pragma once

#include "bootstrap/tcp/socket.hpp"
#include "util/deadline.hpp"

#include <array>
#include <cstddef>
#include <string>

namespace devcomm::host::detail {

using store_key = std::array<std::byte, 32>;

/// devcomm's key in the store: `mine`, or that of the rank that was first. It is the same for all who ask, in whatever
/// order and how often, as long as the store lives; restarted ranks get it again.
///
/// Takes torch 2.5 or later. Tries until the deadline to reach the store, and then throws `timeout_error`. What answers
/// otherwise than such a store does is `not_supported`. Both texts start with `call` and say what to do.
[[nodiscard]] store_key key_in_torch_store(const endpoint& store, const store_key& mine, const std::string& call,
                                           const deadline& until);

}  // namespace devcomm::host::detail
