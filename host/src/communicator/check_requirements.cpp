#include "communicator/check_requirements.hpp"

#include <devcomm/gin/queue.hpp>
#include <devcomm/host/error.hpp>

#include "util/call_text.hpp"

#include <cstddef>
#include <map>

namespace devcomm::host::detail {
namespace {

void check_network(const rank_context& context, const requirements& needs) {
  const network_request& asked = needs.network();
  if (asked.asked == 0) return;
  if (asked.asked == 3) {
    throw invalid_argument(
        "the requirements have a feature with signals (rail_rings, network_slots, network_fifos) after gin::contexts; "
        "add all such features first, and ask once for all contexts, signals and counters last");
  }
  if (asked.asked > 1) {
    throw invalid_argument(
        "the requirements have gin::contexts twice; ask once for all contexts, signals and counters");
  }
  if (!context.properties.network.available) {
    throw not_supported("the requirements have gin::contexts, and there is no network: " +
                        context.properties.network.reason);
  }
  if (asked.peers != static_cast<std::uint32_t>(context.size())) {
    throw invalid_argument("gin::contexts were made for a team of " + std::to_string(asked.peers) +
                           " ranks; give it world() of this communicator, which has " + std::to_string(context.size()));
  }
  constexpr std::uint64_t most = 1 << 20;
  if (std::uint64_t{asked.signals} + asked.counters > most) {
    throw invalid_argument("gin::contexts asks for " + std::to_string(asked.signals) + " signals and " +
                           std::to_string(asked.counters) +
                           " counters in a context, a barrier being two signals from every rank; at most " +
                           std::to_string(most) + " in all");
  }
  if (asked.contexts == 0) throw invalid_argument("gin::contexts asks for no context; count is at least 1");
  if (asked.depth < 2 || (asked.depth & (asked.depth - 1)) != 0) {
    throw invalid_argument("gin::contexts has a depth of " + std::to_string(asked.depth) +
                           "; give a power of two from 2 on");
  }
  constexpr std::uint64_t max_rings = std::uint64_t{16} << 30;
  if (std::uint64_t{asked.contexts} * asked.depth > max_rings / sizeof(gin::descriptor)) {
    throw invalid_argument("gin::contexts asks for " + std::to_string(asked.contexts) + " queues of " +
                           std::to_string(asked.depth) +
                           " operations, of 64 bytes each; give a count or a depth that takes at most 16 GiB");
  }
}

void check_team(const rank_context& context, const requirements& needs) {
  if (needs.lsa() == context.lsa) return;
  throw invalid_argument(
      "the requirements were made for another LSA team; start from "
      "requirements() of this communicator");
}

void check_once(const requirements& needs, implicit_resource which, const std::string& name, const char* advice) {
  if (!needs.is_ambiguous(which)) return;
  throw invalid_argument("the requirements have " + name + " twice, and kernels would find the last one only; " +
                         advice);
}

void check_implicit(const requirements& needs) {
  check_once(needs, implicit_resource::lsa_barriers, "lsa_barriers",
             "ask once for all, or add lsa::barriers{team, count} and give the session its handle");
  check_once(needs, implicit_resource::trace, "tracing", "add it once");
}

void check_whole_world(const rank_context& context) {
  if (context.lsa.size == context.size()) return;
  throw not_supported("the requirements have lsa::whole_world, and the LSA team is " +
                      std::to_string(context.lsa.size) + " of " + std::to_string(context.size()) +
                      " ranks (from rank " + std::to_string(context.lsa_ranks.front()) +
                      "): ranks beyond it cannot be reached by load and store; run on one host and without a "
                      "smaller DEVCOMM_LSA_SIZE, or use a kernel that crosses LSA teams");
}

void check_ll128(const rank_context& context) {
  if (context.properties.ll128.available) return;
  throw not_supported("the requirements have LL128 mailboxes, whose lines of 128 bytes would not stay whole: " +
                      context.properties.ll128.reason + "; ask for LL or Lamport mailboxes");
}

/// What is demanded of the resource window's multicast is seen to when it is allocated.
constexpr struct {
  demand what;
  void (*check)(const rank_context&);
} checks[] = {{demand::whole_world, check_whole_world}, {demand::ll128, check_ll128}};

}  // namespace

void check_requirements(const rank_context& context, const requirements& needs) {
  check_team(context, needs);
  check_implicit(needs);
  for (const auto& each : checks) {
    if (needs.required(each.what) != 0) each.check(context);
  }
  check_network(context, needs);
}

void compare_requirements(const rank_context& context, const std::string& call, const requirements& needs,
                          const std::vector<requested>& all) {
  // Of LSA teams that differ in size, each has places of its own in the resource window.
  std::map<std::int32_t, std::size_t> first_of_size;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t first = first_of_size.try_emplace(all[i].lsa_size, i).first->second;
    if (all[i].watched != all[0].watched) {
      throw invalid_argument(
          call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(i) +
          (all[i].watched != 0 ? " watches waits and rank 0 does not" : " watches no waits and rank 0 does") +
          "; compile the program of all ranks with the same DEVCOMM_WATCHDOG, or set the option "
          "watchdog alike");
    }
    if (all[i].fingerprint != all[first].fingerprint || all[i].bytes != all[first].bytes) {
      throw invalid_argument(
          call_text(call, context.rank(), context.size()) + ": the requirements of rank " + std::to_string(i) + " (" +
          std::to_string(all[i].bytes) + " bytes) differ from those of rank " + std::to_string(first) + " (" +
          std::to_string(all[first].bytes) + " bytes); ask for the same resources in the same order on every rank");
    }
    if (needs.network().asked == 0 || all[i].fingerprint == all[0].fingerprint) continue;
    throw not_supported(
        call_text(call, context.rank(), context.size()) +
        ": the requirements have gin::contexts beside resources of the LSA team, and the LSA team of rank 0 "
        "has " +
        std::to_string(all[0].lsa_size) + " ranks and that of rank " + std::to_string(i) + " has " +
        std::to_string(all[i].lsa_size) +
        ", so places in the resource window differ; make two device communicators, one with gin::contexts "
        "and one with what is of the LSA team");
  }
}

}  // namespace devcomm::host::detail
