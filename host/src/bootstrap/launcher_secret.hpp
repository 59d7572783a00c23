/// \file launcher_secret.hpp
/// The secret that admits a process to a job that a launcher started.
#pragma once

#include "bootstrap/launcher.hpp"
#include "bootstrap/tcp/reserved_port.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <string>

namespace devcomm::host::detail {

using user_key = std::array<std::byte, 32>;

/// A random key that this user's processes on this host share: a file in `folder` that only its owner may read. The
/// first to ask makes it. Throws `system_error` where the file is another user's, or others may read it.
[[nodiscard]] user_key key_of_user(const std::string& folder);

/// The folder for it: /dev/shm, or /tmp where that is none.
[[nodiscard]] std::string key_folder();

struct launcher_secret {
  job_secret secret;
  std::string warning;  ///< where others can guess it: what to set
};

/// The random key that the store at this address has for the job, or an exception.
using ask_store = std::function<user_key(const endpoint& store)>;

/// `DEVCOMM_SECRET`; else made of a random key that the launcher hands to all ranks; else, where rank 0 listens at the
/// loopback address, of `key_of_user`; else of the key in torchrun's store; else of launcher's variables that all ranks
/// share, which keeps jobs apart and stops nobody who can guess them.
/// No name of a host is among them, as ranks may name that of rank 0 differently.
///
/// All ranks must choose alike, so variables that they share decide, and never whether a store answers: where it fails,
/// so does this.
[[nodiscard]] launcher_secret choose_secret(const environment& variables, const launched_process& process,
                                            const ask_store& key_in_store, const std::string& folder = key_folder());

}  // namespace devcomm::host::detail
