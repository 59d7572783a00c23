#include "bootstrap/torch_store.hpp"

#include "bootstrap/tcp/retry_pauses.hpp"
#include "bootstrap/tcp/wire.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace devcomm::host::detail {
namespace {

// The protocol of torch/csrc/distributed/c10d/TCPStore.cpp. Integers go as they lie in memory, little-endian on all
// hosts that torchrun runs on; a text or value follows its length of 8 bytes.
enum class query : std::uint8_t {
  validate = 0,     ///< magic number; no answer. First on each connection, since torch 2.2.
  compare_set = 2,  ///< name, expected value, new value; answered by the value that the name has then
  ping = 13,        ///< number of 4 bytes; answered by the same number. Since torch 2.5.
};
constexpr std::uint32_t magic = 0x3C85F7CE;

/// Torch's own names start with a slash.
constexpr std::string_view name_of_key = "devcomm/key";

/// How long an address may take to answer at first. After a round in which one took longer it is twice as long, as a
/// store with many clients may be slow.
constexpr std::chrono::milliseconds first_address_limit = std::chrono::seconds(3);
/// A store that starts again, or has many clients, may drop connections. One before torch 2.5 always does: the verdict
/// takes as many of them in a row, over as long a time.
constexpr int min_cut_attempts = 4;
constexpr std::chrono::milliseconds cut_limit = std::chrono::seconds(3);

struct attempt {
  enum class outcome { answered, unreachable, cut, foreign } what;
  std::string problem;
  store_key key{};
};

/// Ends the connection of a store before torch 2.5: 2.2 to 2.4 do not know the query, and the ones before take all
/// from the magic number to the third byte of `number` for a length, which must be too long for them to wait for its
/// bytes.
std::vector<std::byte> introduction(std::uint32_t number) {
  return wire_writer()
      .integer(static_cast<std::uint8_t>(query::validate))
      .integer(magic)
      .integer(static_cast<std::uint8_t>(query::ping))
      .integer(number)
      .data();
}
std::uint32_t random_number() { return random_value<std::uint32_t>() | 0x00ff0000U; }

/// Sets the key where the name has no value.
std::vector<std::byte> request(const store_key& mine) {
  return wire_writer()
      .integer(static_cast<std::uint8_t>(query::compare_set))
      .integer(std::uint64_t{name_of_key.size()})
      .bytes(std::as_bytes(std::span(name_of_key)))
      .integer(std::uint64_t{0})
      .integer(std::uint64_t{mine.size()})
      .bytes(mine)
      .data();
}

attempt ask(const socket_address& address, const store_key& mine, const deadline& until) {
  using outcome = attempt::outcome;
  std::string problem;
  const unique_fd connection = connect_to(address, until, problem, peer_limit());
  if (!connection) return {outcome::unreachable, "cannot be reached: " + problem};

  const auto exchange = [&](std::span<const std::byte> question, std::span<std::byte> answer) {
    return send_all(connection.get(), question, until, problem) &&
           receive_all(connection.get(), answer, until, problem);
  };
  const auto failed = [&]() -> attempt {
    if (until.passed()) return {outcome::unreachable, "gives no answer"};
    return {outcome::cut, "ends the connection without an answer (" + problem + "), as one before torch 2.5 does"};
  };
  const std::uint32_t number = random_number();
  std::array<std::byte, sizeof number> echo;
  if (!exchange(introduction(number), echo)) return failed();
  if (wire_reader(echo).integer<std::uint32_t>() != number) return {outcome::foreign, "answers as no such store does"};

  std::array<std::byte, sizeof(std::uint64_t)> length;
  if (!exchange(request(mine), length)) return failed();
  if (wire_reader(length).integer<std::uint64_t>() != mine.size()) {
    return {outcome::foreign, "has something under the name " + std::string(name_of_key) + " that is no key"};
  }
  attempt done{outcome::answered, {}};
  if (!receive_all(connection.get(), done.key, until, problem)) return failed();
  return done;
}

}  // namespace

store_key key_in_torch_store(const endpoint& store, const store_key& mine, const std::string& call,
                             const deadline& until) {
  const auto text = [&](const std::string& problem) {
    return call + ": torchrun's store at " + endpoint_text(store.host, store.port) +
           " (MASTER_ADDR, MASTER_PORT), which is to give the job its secret, " + problem +
           "; set DEVCOMM_SECRET to the output of \"openssl rand -hex 16\", the same on all ranks, to do without it";
  };
  std::vector<socket_address> addresses;
  std::string problem = "does not answer";
  struct streak {
    int cut = 0;  ///< attempts in a row
    std::optional<deadline> until;
  };
  std::vector<streak> streaks;  // one for each address: what happens at another one says nothing
  std::chrono::milliseconds address_limit = first_address_limit;
  for (retry_pauses pauses(1, random_value<std::uint64_t>());;) {
    if (addresses.empty()) {
      std::string unknown;
      addresses = resolve(store.host, store.port, until, unknown);
      if (addresses.empty()) problem = "cannot be reached: " + unknown;
      streaks.resize(addresses.size());
    }
    bool silent = false;
    for (std::size_t i = 0; i < addresses.size() && !until.passed(); ++i) {
      const deadline share = until.share_of(addresses.size() - i).within(address_limit);
      attempt got = ask(addresses[i], mine, share);
      silent = silent || share.passed();
      using outcome = attempt::outcome;
      if (got.what == outcome::answered) return got.key;
      if (got.what == outcome::foreign) throw not_supported(text(got.problem));
      streak& here = streaks[i];
      if (got.what != outcome::cut) {
        here.cut = 0;
      } else if (here.cut++ == 0) {
        here.until = until.within(cut_limit);
      } else if (here.cut >= min_cut_attempts && here.until->passed() && !until.passed()) {
        throw not_supported(text(got.problem));
      }
      problem = std::move(got.problem);
    }
    if (silent) address_limit *= 2;
    // Before another attempt, which the limit would cut short.
    std::this_thread::sleep_for(std::chrono::milliseconds(until.poll_milliseconds(pauses.next())));
    if (until.passed()) throw timeout_error(text(problem + " (for " + until.limit_text() + ")"));
  }
}

}  // namespace devcomm::host::detail
