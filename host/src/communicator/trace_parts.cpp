#include "communicator/trace_parts.hpp"

#include "rank/forgetting.hpp"
#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <devcomm/host/error.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// Parts of rank 0's process.
struct local_parts {
  std::mutex mutex;
  std::map<int, std::vector<std::byte>> of;
};

[[noreturn]] void fail_part(const char* call) {
  throw system_error(std::string("bringing the trace to rank 0: ") + call + " failed: " + std::strerror(errno));
}

unique_fd file_of(std::span<const std::byte> part) {
  unique_fd file(::memfd_create("devcomm-trace", MFD_CLOEXEC));
  if (!file) fail_part("memfd_create");
  for (std::size_t at = 0; at < part.size();) {
    const ssize_t wrote = ::write(file.get(), part.data() + at, part.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail_part("write");
    at += static_cast<std::size_t>(wrote);
  }
  return file;
}

std::vector<std::byte> part_of(const unique_fd& file, std::size_t bytes) {
  std::vector<std::byte> part(bytes);
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(file.get(), part.data() + at, bytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_part("read");
    at += static_cast<std::size_t>(got);
  }
  return part;
}

}  // namespace

void bring_to_first_rank(rank_context& context, const std::string& call, std::size_t bytes,
                         const std::function<void(std::span<std::byte>)>& read,
                         const std::function<void(int rank, std::span<const std::byte>)>& take) {
  const std::uint64_t number = ++context.windows;  // names the descriptors
  const auto of = [&](int rank) -> const rank_info& { return context.peers[static_cast<std::size_t>(rank)]; };
  const auto is_near = [&](int rank) { return of(rank).host == of(0).host; };
  const std::vector<int> process = ranks_of_process(context.peers, 0);
  const auto is_inside = [&](int rank) { return std::find(process.begin(), process.end(), rank) != process.end(); };
  bool all_near = true;
  for (int rank = 0; rank < context.size(); ++rank) all_near = all_near && is_near(rank);

  // Where a rank fails, rank 0 takes none of what the others sent.
  forgetting on_failure(context, number);
  const std::size_t piece_bytes = bytes_of_trace_piece(context.size());
  const deadline until(context.agree.limit());
  std::vector<std::byte> mine;
  std::shared_ptr<local_parts> inside;
  context.agree.together(call, [&] {
    mine.resize(bytes);
    read(mine);
    if (is_inside(context.rank())) {
      inside = context.process->share<local_parts>(number, 0);
      const std::lock_guard lock(inside->mutex);
      inside->of[context.rank()] = std::move(mine);
    } else if (is_near(context.rank())) {
      context.process->links().send_memory(0, number, context.rank(), file_of(mine).get(), until);
    }
  });

  std::map<int, std::vector<std::byte>> far;
  for (std::size_t at = 0; at < bytes && !all_near; at += piece_bytes) {
    const std::size_t length = std::min(piece_bytes, bytes - at);
    const auto pieces =
        context.agree.gather_group_bytes(call, 0, length, [&](std::span<std::byte>, std::span<std::byte> piece) {
          if (!is_near(context.rank())) std::copy_n(mine.data() + at, length, piece.data());
          return bootstrap::for_first_rank;
        });
    for (int rank = 0; rank < context.size() && context.rank() == 0; ++rank) {
      const auto first =
          pieces.group.parts.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * length);
      if (!is_near(rank)) far[rank].insert(far[rank].end(), first, first + static_cast<std::ptrdiff_t>(length));
    }
  }

  context.agree.together(call, [&] {
    for (int rank = 0; rank < context.size() && context.rank() == 0; ++rank) {
      if (is_inside(rank)) {
        take(rank, inside->of.at(rank));
      } else if (is_near(rank)) {
        take(rank, part_of(context.process->links().take_memory(number, rank, until), bytes));
      } else {
        take(rank, far.at(rank));
      }
    }
  });
  on_failure.keep();
}

}  // namespace devcomm::host::detail
