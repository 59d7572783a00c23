/// \file failure.hpp
/// Names of things in messages, and the messages of failures.
#pragma once

#include "engine/block.hpp"

#include <string>

namespace devcomm::simulator::detail {

/// World rank of the kernel that the block belongs to, or -1 when it is not known.
[[nodiscard]] int rank_of(const block& b);
/// "rank 2, block 3"; "device 2, block 3" when the rank is not known.
[[nodiscard]] std::string describe_block(const block& b);
/// `describe_block` and "thread 5".
[[nodiscard]] std::string describe_thread(const fiber& f);
/// "kernel reduce(devcomm::device_comm, float*)".
[[nodiscard]] std::string describe_kernel(const grid& g);
/// A line that says where the user's code called what the running thread misused last; empty where that is not known,
/// as in programs without line numbers. Forgets it.
[[nodiscard]] std::string describe_misuser();

/// Ends the program: the fiber has left its stack, so nothing can be trusted.
[[noreturn]] void die_of_overflow(const fiber& f);
/// Ends the program: no scheduling step for too long.
[[noreturn]] void die_of_watchdog(const engine& e, const block* running, uint64_t nanoseconds);

}  // namespace devcomm::simulator::detail
