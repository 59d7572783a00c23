/// \file captured_buffers_state.hpp
/// What a `captured_buffers` owns.
#pragma once

#include <devcomm/host/captured_buffers.hpp>

#include "device/backend.hpp"
#include "diagnostics/live_objects.hpp"
#include "memory/registration.hpp"
#include "rank/rank_context.hpp"
#include "rank/window_table.hpp"
#include "util/process_stamp.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host {

class captured_buffers::state {
 public:
  /// *Collective*: room for `max_buffers` buffers.
  state(detail::rank_context& context, const std::string& call, std::size_t max_buffers, const std::string& name,
        code_place made);

  [[nodiscard]] window add(void* data, std::size_t bytes);
  /// *Collective*: those that were added since the last time.
  void register_new(detail::rank_context& context, const std::string& call);
  void check() const;
  [[nodiscard]] std::size_t size() const noexcept { return buffers_.size(); }
  [[nodiscard]] std::size_t registered() const noexcept { return registered_.size(); }

  detail::process_stamp made_in;

 private:
  struct buffer {
    char* data;
    std::size_t bytes;
  };
  /// What a registered buffer needs.
  struct held {
    std::uint64_t allocation;  ///< that its memory was part of
    std::vector<std::shared_ptr<detail::opened_memory>> opened;
    std::unique_ptr<detail::memory_label> label;
    std::unique_ptr<detail::window_table::listing> listing;  ///< destroyed first
  };

  [[nodiscard]] std::string name_of(std::size_t index) const;
  void require_same_calls(const detail::rank_context& context, const std::string& call) const;
  /// *Collective*: the ranks' descriptions of buffers from `first` on, `count` of them: `result[i][rank]`.
  [[nodiscard]] std::vector<std::vector<detail::registration>> gather(detail::rank_context& context,
                                                                      const std::string& call, std::size_t first,
                                                                      std::size_t count) const;

  detail::backend& devices_;
  int device_;
  team lsa_;
  std::shared_ptr<detail::opened_memory> lsa_table_;  ///< the communicator's
  std::string start_;                                 ///< of messages: who this is
  std::string name_;
  std::size_t max_;
  std::uint64_t first_number_;  ///< of the windows, among the communicator's
  std::uint32_t first_id_;
  std::unique_ptr<detail::opened_memory> tables_;
  std::vector<buffer> buffers_;
  std::vector<held> registered_;
  detail::live_objects::entry entry_;
};

}  // namespace devcomm::host
