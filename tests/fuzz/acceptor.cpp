/// What connections send to rank 0 before they have proved the secret.
///
/// The first byte says how the rest is cut, and whether the pending_connection goes on with a right proof after its
/// hello.
#include "fuzz.hpp"

#include <bootstrap/tcp/acceptor.hpp>
#include <bootstrap/tcp/listener.hpp>
#include <bootstrap/tcp/socket.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

using namespace devcomm::host::detail;
using namespace devcomm_fuzz;

namespace {

constexpr int ranks = 4;
const std::array<std::byte, 16> secret = {std::byte{1}};

/// Lets rank 0 go on with what is there.
std::size_t serve(acceptor& newcomers) {
  std::vector<pollfd> entries;
  newcomers.add_to(entries);
  ::poll(entries.data(), entries.size(), 20);
  std::size_t joined = 0;
  for (const acceptor::joined_rank& one : newcomers.serve(entries, 0)) {
    require(one.rank >= 1 && one.rank < ranks, "a one is a rank of the job");
    ++joined;
  }
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 4000) return 0;
  const auto input = bytes_of_input(data, size).subspan(1);
  const bool knows_secret = (data[0] & 1) != 0;

  unique_fd listener = bind_for("127.0.0.1", 0, "fuzz");
  std::string problem;
  socket_address where =
      resolve("127.0.0.1", bound_port(listener.get()), deadline(std::chrono::seconds(5)), problem)[0];
  acceptor newcomers(std::move(listener), ranks, secret);
  const unique_fd pending_connection = connect_to(where, deadline(std::chrono::seconds(5)), problem);
  require(static_cast<bool>(pending_connection), "the newcomers can be reached");
  std::size_t joined = serve(newcomers);  // accepts

  const auto say = [&](std::span<const std::byte> what) {
    if (!what.empty()) static_cast<void>(::send(pending_connection.get(), what.data(), what.size(), MSG_NOSIGNAL));
    joined += what.empty() ? 0 : serve(newcomers);
  };
  const std::size_t cut = std::min<std::size_t>(data[0] >> 1, input.size());
  say(input.first(cut));
  say(input.subspan(cut));

  const auto said = hello::decode(input.first(std::min(input.size(), hello::wire_bytes)));
  const bool sound = said && said->version == protocol_version && input.size() == hello::wire_bytes;
  if (knows_secret && sound) {
    std::array<std::byte, challenge::wire_bytes> answer;
    require(receive_all(pending_connection.get(), answer, deadline(std::chrono::seconds(5)), problem),
            "a hello is answered");
    const auto asked = challenge::decode(answer);
    require(asked.has_value(), "the answer is a challenge");
    say(transcript(*said, *asked).rank_proof(secret));
    const bool welcome = said->size == ranks && said->rank >= 1 && said->rank < ranks;
    require(joined == (welcome ? 1 : 0), "who belongs here and proves it comes in, nobody else");
    require(welcome == newcomers.refusals().empty(), "who is refused is noted");
  } else {
    require(joined == 0, "nobody comes in without a proof");
  }
  return 0;
}
