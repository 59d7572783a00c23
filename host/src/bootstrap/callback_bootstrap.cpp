#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/gather_arguments.hpp"
#include "util/environment.hpp"
#include "util/fixed_text.hpp"
#include "util/host_identity.hpp"
#include "util/interfaces.hpp"
#include "util/outside_address.hpp"
#include "util/sha256.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

namespace devcomm::host {
namespace {

class callback_bootstrap_ranks final : public bootstrap {
 public:
  callback_bootstrap_ranks(int rank, int size, all_gather_function gather)
      : rank_(rank), size_(size), gather_(std::move(gather)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::chrono::milliseconds /*limit*/) override {
    // The caller's function has a limit of its own. When it returns late, all ranks have their bytes, so an error here
    // would be one of this rank alone.
    const std::string call = "all_gather on rank " + std::to_string(rank_) + " of " + std::to_string(size_);
    const std::string argument_problem =
        detail::problem_of_arguments(mine.size(), all.size(), static_cast<std::size_t>(size_));
    if (!argument_problem.empty()) throw invalid_argument(call + ": " + argument_problem);

    try {
      gather_(mine, all);
    } catch (const error&) {
      throw;
    } catch (const std::exception& failure) {
      throw error(call + ": the caller's all-gather failed: " + failure.what());
    } catch (...) {
      throw error(call + ": the caller's all-gather failed with something that is no std::exception");
    }
    const auto place = all.subspan(static_cast<std::size_t>(rank_) * mine.size(), mine.size());
    if (!mine.empty() && std::memcmp(place.data(), mine.data(), mine.size()) != 0) {
      throw error(call + ": the caller's all-gather did not put this rank's bytes at rank " + std::to_string(rank_) +
                  "; order its result by rank, with mine.size() bytes for each");
    }
  }

 private:
  int rank_;
  int size_;
  all_gather_function gather_;
};

}  // namespace

std::shared_ptr<bootstrap> callback_bootstrap(int rank, int size, all_gather_function gather) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw invalid_argument("callback_bootstrap: rank " + std::to_string(rank) + " of " + std::to_string(size) +
                           " makes no sense; ranks count from 0 up to size - 1");
  }
  if (!gather) {
    throw invalid_argument("callback_bootstrap on rank " + std::to_string(rank) + ": the all-gather is empty");
  }
  return std::make_shared<callback_bootstrap_ranks>(rank, size, std::move(gather));
}

std::shared_ptr<bootstrap> tcp_bootstrap(int rank, int size, const all_gather_function& gather,
                                         std::chrono::milliseconds limit) {
  const auto share = [ranks = callback_bootstrap(rank, size, gather), limit]<class T>(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(ranks->size()));
    ranks->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), limit);
    return all;
  };
  const auto hosts = share(detail::sha256::of(detail::bytes_of(detail::host_identity())));
  const bool one_host = std::count(hosts.begin(), hosts.end(), hosts[0]) == size;

  struct invitation {
    std::array<char, 320> id{};
    std::array<char, 512> problem{};  ///< why rank 0 has no id, which the others must not wait for
  };
  invitation mine;
  if (rank == 0) {
    try {
      const std::string address =
          one_host ? "127.0.0.1"
                   : detail::outside_address(detail::process_variables(), {}, detail::interface_addresses());
      detail::fill(mine.id, unique_id::create(address).to_string());
    } catch (const std::exception& error) {
      detail::fill(mine.problem, error.what());
    }
  }
  const invitation first = share(mine)[0];
  if (first.problem[0] != '\0') {
    throw not_supported("tcp_bootstrap on rank " + std::to_string(rank) + " of " + std::to_string(size) +
                        ": rank 0 cannot listen: " + detail::text_of(first.problem));
  }
  return tcp_bootstrap(unique_id::parse(detail::text_of(first.id)), rank, size, limit);
}

}  // namespace devcomm::host
