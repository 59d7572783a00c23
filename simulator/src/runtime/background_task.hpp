/// \file background_task.hpp
/// Work of the host library's beside kernels: the network's proxies. It has no thread of its own: the dispatcher calls
/// it, at times and in an order that the seed, or an exploration, decides.
#pragma once

#include <device/backend.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace devcomm::simulator::detail {

/// As `network_port::start_background_task`.
[[nodiscard]] std::unique_ptr<host::detail::background_task> start_background_task(int rank,
                                                                                   host::detail::proxy_work work);

// The other functions of `network_port`, for the background task whose step runs. Race detectors know each background
// task as a thread, and of it these accesses alone, without those to its own memory: that may be on a stack which all
// share.
void fetch_in_background(void* own, const void* shared, std::size_t bytes);
void deliver_in_background(void* shared, const void* own, std::size_t bytes);
[[nodiscard]] std::uint64_t load_in_background(const std::uint64_t* word);
void store_in_background(std::uint64_t* word, std::uint64_t value);
/// `load` loads the descriptor, word by word.
[[nodiscard]] gin::descriptor take_in_background(const gin::descriptor* posted,
                                                 const std::function<gin::descriptor()>& load);

}  // namespace devcomm::simulator::detail
