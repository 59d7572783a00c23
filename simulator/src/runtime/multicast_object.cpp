#include "runtime/multicast_object.hpp"

#include "runtime/memory_file.hpp"

#include <devcomm/host/error.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace devcomm::simulator::detail {
namespace {

using host::invalid_argument;
using host::system_error;
using host::detail::unique_fd;

/// Devices are numbered in each process.
std::uint64_t member_of(int device) {
  return static_cast<std::uint64_t>(::getpid()) << 32 | static_cast<std::uint32_t>(device);
}

std::string count_of(std::uint32_t added, std::uint32_t members) {
  return std::to_string(added) + " of the " + std::to_string(members) + " devices of the multicast object were added";
}

}  // namespace

std::uint64_t name_of_file(int descriptor) {
  const struct stat status = status_of(descriptor);
  return static_cast<std::uint64_t>(status.st_dev) << 40 ^ status.st_ino;
}

multicast_file::multicast_file(unique_fd file) : file_(std::move(file)), state_(nullptr) {
  void* const shared = ::mmap(nullptr, sizeof(multicast_state), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (shared == MAP_FAILED) fail_call("mmap");
  state_ = static_cast<multicast_state*>(shared);
}

std::unique_ptr<multicast_file> multicast_file::create(int members, std::size_t bytes) {
  if (members < 1 || members > static_cast<int>(multicast_state::max_members))
    throw invalid_argument("simulator: a multicast object has 1 to 128 devices, not " + std::to_string(members));
  if (bytes == 0 || bytes % granularity != 0) {
    throw invalid_argument("simulator: a multicast object of " + std::to_string(bytes) +
                           " bytes is no multiple of the granularity, " + std::to_string(granularity));
  }
  std::unique_ptr<multicast_file> object(new multicast_file(make_file(sizeof(multicast_state))));
  object->state_->members = static_cast<std::uint32_t>(members);
  object->state_->bytes = bytes;
  return object;
}

std::unique_ptr<multicast_file> multicast_file::open(unique_fd file, std::size_t bytes) {
  if (status_of(file.get()).st_size != static_cast<off_t>(sizeof(multicast_state)))
    throw system_error("simulator: this handle is not one of a multicast object");
  std::unique_ptr<multicast_file> object(new multicast_file(std::move(file)));
  if (object->state_->bytes != bytes) {
    throw invalid_argument("simulator: the multicast object has " + std::to_string(object->state_->bytes) +
                           " bytes, not " + std::to_string(bytes));
  }
  return object;
}

multicast_file::~multicast_file() {
  {
    const multicast_lock hold(*state_);
    multicast_binding* const end = state_->bindings + state_->bound;
    multicast_binding* const kept = std::remove_if(state_->bindings, end, [this](const multicast_binding& b) {
      return std::find(bound_.begin(), bound_.end(), std::pair(b.member, std::size_t{b.offset})) != bound_.end();
    });
    state_->bound = static_cast<std::uint32_t>(kept - state_->bindings);
    ++state_->changes;
  }
  ::munmap(state_, sizeof(multicast_state));
}

int multicast_file::export_descriptor() { return copy_of(file_.get()); }

std::vector<std::byte> multicast_file::export_bytes() { return export_by_name(file_.get(), sizeof(multicast_state)); }

void multicast_file::add_device(int device) {
  const multicast_lock hold(*state_);
  std::uint64_t* const end = state_->devices + state_->added;
  if (std::find(state_->devices, end, member_of(device)) != end) {
    throw invalid_argument("simulator: device " + std::to_string(device) +
                           " was added to the multicast object before; each rank needs a GPU of its own");
  }
  if (state_->added == state_->members)
    throw invalid_argument("simulator: all " + count_of(state_->added, state_->members) + " before this one");
  *end = member_of(device);
  ++state_->added;
}

void multicast_file::bind(int device, std::size_t offset, host::detail::physical_memory& memory, std::size_t bytes) {
  const auto& from = dynamic_cast<const file_memory&>(memory);
  const multicast_lock hold(*state_);
  if (state_->added != state_->members) {
    throw system_error("simulator: memory is bound when " + count_of(state_->added, state_->members) +
                       "; add all of them, in all processes, and wait for that, before any memory is bound");
  }
  std::uint64_t* const end = state_->devices + state_->added;
  if (std::find(state_->devices, end, member_of(device)) == end)
    throw invalid_argument("simulator: device " + std::to_string(device) + " is none of the multicast object's");
  if (offset % granularity != 0 || bytes == 0 || bytes % granularity != 0) {
    throw invalid_argument("simulator: " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                           " of a multicast object are no multiples of the granularity, " +
                           std::to_string(granularity));
  }
  if (offset + bytes > state_->bytes || bytes > from.bytes()) {
    throw invalid_argument("simulator: " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                           " are more than the multicast object of " + std::to_string(state_->bytes) +
                           ", or the memory of " + std::to_string(from.bytes()) + ", has");
  }
  for (std::uint32_t i = 0; i < state_->bound; ++i) {
    const multicast_binding& b = state_->bindings[i];
    if (b.member == member_of(device) && offset < b.offset + b.bytes && b.offset < offset + bytes)
      throw invalid_argument("simulator: memory of device " + std::to_string(device) + " is bound there already");
  }
  if (state_->bound == multicast_state::max_bindings)
    throw system_error("simulator: a multicast object takes 4096 bindings at most");
  state_->bindings[state_->bound++] = {member_of(device), offset, bytes, name_of_file(from.file())};
  ++state_->changes;
  bound_.emplace_back(member_of(device), offset);
}

void multicast_file::check_mapping(std::size_t bytes) const {
  const multicast_lock hold(*state_);
  if (state_->added != state_->members) {
    throw system_error("simulator: a multicast object is mapped when " + count_of(state_->added, state_->members) +
                       "; add all of them first");
  }
  if (bytes > state_->bytes) throw invalid_argument("simulator: more bytes are mapped than the multicast object has");
}

}  // namespace devcomm::simulator::detail
