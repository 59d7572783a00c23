#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/gather_arguments.hpp"

#include <cstring>
#include <exception>
#include <utility>

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

}  // namespace devcomm::host
