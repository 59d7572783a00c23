#include "transport/fabric_endpoint.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_tokens.hpp"
#include "util/random.hpp"
#include "util/window_number.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// Payload that messages carry, in steps of this.
constexpr std::size_t carried_step = 64;

/// Messages carry what they have room for.
std::size_t carried_by(const fabric& reached, std::size_t wanted) {
  const std::uint64_t largest = std::max<std::uint64_t>(reached.largest_message(), sizeof(fabric_message));
  const std::uint64_t room = largest - sizeof(fabric_message);
  return wanted <= room ? wanted : static_cast<std::size_t>(room / carried_step * carried_step);
}

}  // namespace

std::size_t fabric_endpoint::carried_among(std::uint32_t ranks) {
  constexpr std::size_t memory = std::size_t{8} << 20;
  const std::size_t share = memory / (std::size_t{ranks} * max_unacknowledged);
  return std::clamp(share / carried_step * carried_step, carried_step, max_carried);
}

fabric_endpoint::fabric_endpoint(surroundings about, std::unique_ptr<fabric> reached)
    : about_(std::move(about)),
      fabric_(std::move(reached)),
      name_(fabric_->name()),
      largest_transfer_(fabric_->largest_transfer()),
      secret_(random_value<fabric_secret>()) {
  about_.carried = carried_by(*fabric_, about_.carried);
  receive_bytes_.resize(receive_buffers * buffer_bytes());
  receive_memory_ = fabric_->add_buffers(receive_bytes_);
  notice_memory_ = fabric_->add_buffers(bytes_of(notice_messages_));
  for (std::size_t i = 0; i < notice_buffers; ++i) free_notices_.push_back(i);
  for (std::size_t i = 0; i < receive_buffers; ++i) {
    if (!fabric_->receive(receive_buffer(i), *receive_memory_, make_token(token_kind::received, 0, i))) {
      throw system_error(name_ + " takes " + std::to_string(i) + " buffers for messages and not " +
                         std::to_string(receive_buffers) + "; set DEVCOMM_GIN_PROVIDER to another provider");
    }
  }
}

void fabric_endpoint::connect(const std::vector<card>& cards) {
  std::vector<fabric_address> addresses;
  addresses.reserve(cards.size());
  for (const card& each : cards) addresses.push_back(each.address);
  fabric_->connect(addresses);
  cards_ = cards;
  for (card& each : cards_) each.carried = std::min<std::uint64_t>(each.carried, about_.carried);
}

void fabric_endpoint::close(const std::string& why) {
  if (!fabric_) return;
  for (endpoint_user* const each : users_) {
    if (each != nullptr && !each->is_left_alone()) each->lose_fabric(why);
  }
  users_.clear();
  numbers_.clear();
  named_ = {};
  regions_.clear();
  table_.close();
  notice_memory_.reset();
  receive_memory_.reset();
  fabric_.reset();
}

std::uint32_t fabric_endpoint::attach(endpoint_user& one, std::uint32_t number) {
  const auto free = std::find(users_.begin(), users_.end(), nullptr);
  const auto index = static_cast<std::uint32_t>(free - users_.begin());
  if (free == users_.end()) users_.emplace_back();
  users_[index] = &one;
  numbers_[number] = &one;
  next_number_ = std::max(next_number_, number + 1);
  endpoint_user*& named = named_[number % named_.size()];
  const auto taken = named_.size() - static_cast<std::size_t>(std::count(named_.begin(), named_.end(), nullptr));
  if (named == nullptr && taken < max_named(ranks())) named = &one;
  return index;
}

void fabric_endpoint::end(std::uint32_t number) {
  const auto found = numbers_.find(number);
  if (found == numbers_.end()) return;
  endpoint_user*& named = named_[number % named_.size()];
  if (named == found->second) named = nullptr;
  numbers_.erase(found);
}

bool fabric_endpoint::names_writes_to(std::uint32_t number) const {
  const auto found = numbers_.find(number);
  return fabric_->names_writes() && cards_.size() <= max_ranks_of_names && found != numbers_.end() &&
         named_[number % named_.size()] == found->second;
}

bool fabric_endpoint::poll() {
  if (!fabric_) return false;
  const std::size_t count = fabric_->poll(over_);
  for (const fabric_completion& each : std::span(over_).first(count)) {
    if (each.arrived) {
      handle_arrival(*each.arrived);
      continue;
    }
    const token_parts of = parts_of(each.token);
    endpoint_user* const user = of.user < users_.size() ? users_[of.user] : nullptr;
    const bool is_users = user != nullptr && !user->is_left_alone();
    switch (of.kind) {
      case token_kind::received: handle_received(of.slot, each); break;
      case token_kind::notice: free_notices_.push_back(of.slot); break;
      case token_kind::table: table_.handle_read(each.error); break;
      case token_kind::sent:
        if (is_users) user->handle_sent(of.slot, each.error);
        break;
      case token_kind::moved:
        if (is_users) user->handle_moved(of.slot, each.error);
        break;
      default:
        throw system_error(name_ + " completes what it was not given" + (each.error.empty() ? "" : ": " + each.error));
    }
  }
  table_.step(*fabric_);
  send_notices();
  return count != 0;
}

void fabric_endpoint::handle_received(std::size_t buffer, const fabric_completion& over) {
  fabric_message message;
  std::string why = over.error;
  if (why.empty()) {
    const auto received = receive_buffer(buffer).first(std::min(over.bytes, buffer_bytes()));
    why = parse_message(received, secret_, static_cast<std::uint32_t>(about_.rank),
                        static_cast<std::uint32_t>(cards_.size()), message);
    carried_.clear();
    if (why.empty()) carried_.assign(received.begin() + sizeof message, received.end());
  }
  if (!fabric_->receive(receive_buffer(buffer), *receive_memory_, make_token(token_kind::received, 0, buffer))) {
    throw system_error(name_ +
                       " does not take a buffer back that it filled; set DEVCOMM_GIN_PROVIDER to another provider");
  }
  if (!why.empty()) return drop(why);
  const auto user = numbers_.find(message.device_comm);
  if (user != numbers_.end()) {
    if (!user->second->is_left_alone()) user->second->handle_message(message, carried_);
  } else if (message.device_comm >= next_number_) {
    drop("rank " + std::to_string(message.sender) + " sends it to device communicator " +
         std::to_string(message.device_comm) + ", which does not exist");
  } else if (message.kind != message_kind::leave && message.kind != message_kind::leave_heard) {
    notices_.emplace(message.sender, message.device_comm);
  }
}

void fabric_endpoint::send_notices() {
  while (!notices_.empty() && !free_notices_.empty()) {
    const auto [rank, number] = *notices_.begin();
    const std::size_t slot = free_notices_.back();
    fabric_message& notice = notice_messages_[slot] = {};
    notice.secret = cards_[rank].secret;
    notice.sender = static_cast<std::uint32_t>(about_.rank);
    notice.device_comm = number;
    notice.kind = message_kind::leave;
    try {
      if (!fabric_->send(static_cast<int>(rank), bytes_of(notice), *notice_memory_,
                         make_token(token_kind::notice, 0, slot))) {
        return;
      }
      free_notices_.pop_back();
    } catch (const system_error&) {
      // A peer that cannot be reached waits for nobody.
    }
    notices_.erase(notices_.begin());
  }
}

void fabric_endpoint::drop(const std::string& why) {
  constexpr std::uint64_t max_reports = 8;
  if (++dropped_ > max_reports) return;
  about_.report("a message over the network is dropped: " + why +
                (dropped_ == max_reports ? "; further ones are dropped in silence" : ""));
}

void fabric_endpoint::handle_arrival(std::uint32_t name) {
  const write_name made = write_name::of(name, secret_);
  if (made.sender >= cards_.size() || made.sender == static_cast<std::uint32_t>(about_.rank)) {
    return drop("a write that rank " + std::to_string(made.sender) + " may have made is no member's");
  }
  endpoint_user* const user = named_[made.device_comm];
  if (user != nullptr && !user->is_left_alone()) user->handle_arrival(made.sender, made.sequence);
}

const fabric_region& fabric_endpoint::region_of(std::uint32_t window, const window_table::entry& memory) {
  const auto found = regions_.find(window);
  if (found != regions_.end()) return *found->second;
  const auto device = memory.on_device ? std::optional(about_.device) : std::nullopt;
  return *regions_.emplace(window, fabric_->add_memory(memory.local, memory.bytes, device)).first->second;
}

void fabric_endpoint::prepare(std::uint32_t window) {
  if (!fabric_) return;
  try {
    static_cast<void>(about_.windows->with(window, [&](const window_table::entry& memory) {
      if (!stages(memory)) static_cast<void>(region_of(window, memory));
    }));
  } catch (const registration_error&) {
    // The first operation that uses it fails, and reports why.
  }
}

bool fabric_endpoint::forget(std::uint32_t window) {
  const auto found = regions_.find(window);
  if (found == regions_.end()) return false;
  const auto uses = [&](const endpoint_user* each) { return each != nullptr && each->uses(*found->second); };
  if (std::any_of(users_.begin(), users_.end(), uses)) return true;
  regions_.erase(found);
  for (const auto& [number, user] : numbers_) user->refuse_writes_to(window);
  return false;
}

void fabric_endpoint::take_away(std::uint32_t window) {
  const auto found = regions_.find(window);
  if (found == regions_.end()) return;
  const std::string freed = "this rank freed window " + std::to_string(window_number(window)) +
                            " meanwhile: flush before its owner is destroyed";
  bool moves = false;
  for (endpoint_user* const each : users_) {
    if (each != nullptr && each->take_away(*found->second, freed)) moves = true;
  }
  if (!moves) {
    static_cast<void>(forget(window));
    return;
  }
  // The fabric has the memory's address. Nothing but its end keeps it from there.
  close("rank " + std::to_string(about_.rank) + ": the network of this communicator is closed, as window " +
        std::to_string(window_number(window)) +
        " was freed while an operation of another device communicator used it: flush before a window's owner is "
        "destroyed");
}

}  // namespace devcomm::host::detail
