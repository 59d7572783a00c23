/// \file tcp_job.hpp
/// The two sides of a TCP bootstrap: rank 0 is a hub, every other rank a spoke.
#pragma once

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/unique_id.hpp>

#include <chrono>
#include <memory>

namespace devcomm::host::detail {

/// How long a connection to rank 0 may take to prove the secret.
inline constexpr std::chrono::milliseconds handshake_limit = std::chrono::seconds(5);

/// Both return when all ranks have joined.
[[nodiscard]] std::shared_ptr<bootstrap> make_tcp_hub(const unique_id& id, int size, std::chrono::milliseconds limit);
[[nodiscard]] std::shared_ptr<bootstrap> make_tcp_spoke(const unique_id& id, int rank, int size,
                                                        std::chrono::milliseconds limit);

}  // namespace devcomm::host::detail
