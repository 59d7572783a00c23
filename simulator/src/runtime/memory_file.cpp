#include "runtime/memory_file.hpp"

#include <devcomm/host/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace devcomm::simulator::detail {

using host::system_error;
using host::detail::unique_fd;

void fail_call(const char* call) {
  throw system_error(std::string("simulator: ") + call + " failed: " + std::strerror(errno));
}

struct stat status_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_call("fstat");
  return status;
}

std::vector<std::byte> export_by_name(int descriptor, std::size_t bytes) {
  const remote_descriptor name{::getpid(), descriptor, status_of(descriptor).st_ino, bytes};
  const auto raw = std::as_bytes(std::span(&name, 1));
  return {raw.begin(), raw.end()};
}

remote_descriptor parse_name(std::span<const std::byte> handle) {
  remote_descriptor name{};
  if (handle.size() != sizeof name) {
    throw system_error("simulator: a memory handle of " + std::to_string(handle.size()) + " bytes is not one of the " +
                       "simulator's; link all ranks with the simulator");
  }
  std::memcpy(&name, handle.data(), sizeof name);
  return name;
}

unique_fd open_by_name(const remote_descriptor& name) {
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.descriptor);
  unique_fd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto same = [&](const struct stat& file) {
    return file.st_ino == name.inode && static_cast<std::uint64_t>(file.st_size) >= name.bytes;
  };
  if (!opened || !same(status_of(opened.get()))) {
    throw system_error("simulator: memory of process " + std::to_string(name.pid) + " cannot be opened (" +
                       (opened ? "it was freed" : std::strerror(errno)) +
                       "); all ranks must run as one user, and keep their memory until all are done");
  }
  return opened;
}

unique_fd make_file(std::size_t bytes) {
  unique_fd descriptor(::memfd_create("devcomm", MFD_CLOEXEC));
  if (!descriptor) fail_call("memfd_create");
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) fail_call("ftruncate");
  return descriptor;
}

int copy_of(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail_call("fcntl");
  return copy;
}

}  // namespace devcomm::simulator::detail
