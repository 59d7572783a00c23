#include "state.hpp"

#include "control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <new>
#include <utility>

namespace stand_in {

process_state& state() {
  static auto& the_state = *new process_state;  // calls may come from destructors of static objects
  return the_state;
}

object* process_state::find(CUmemGenericAllocationHandle handle) {
  const auto found = objects.find(handle);
  return found == objects.end() ? nullptr : &found->second;
}

std::map<CUdeviceptr, mapping>::iterator process_state::mapping_of(CUdeviceptr address) {
  auto next = mappings.upper_bound(address);
  if (next == mappings.begin()) return mappings.end();
  --next;
  return address < next->first + next->second.bytes ? next : mappings.end();
}

stream::~stream() {
  ends_ = true;
  if (alone_.joinable()) alone_.join();
}

void stream::begin(std::function<void()> work) {
  waiting_.push_back(std::move(work));
  if (state().copy_delay == 0) do_all();
}

void stream::do_next() {
  waiting_.front()();
  waiting_.pop_front();
}

void stream::do_all() {
  while (!waiting_.empty()) do_next();
}

void stream::go_on_alone() {
  if (state().copy_delay == 0) do_all();
  if (waiting_.empty() || alone_.joinable()) return;
  alone_ = std::thread([this] {
    for (int looks = 0; !ends_; std::this_thread::sleep_for(std::chrono::microseconds(10))) {
      const std::unique_lock lock(state().mutex, std::try_to_lock);
      if (!lock || waiting_.empty() || ++looks < state().copy_delay) continue;
      looks = 0;
      if (state().copy_delay == 0) {
        do_all();
      } else {
        do_next();
      }
    }
  });
}

call::call(const char* function) : lock_(state().mutex) {
  process_state& s = state();
  const int number = ++s.calls[function];
  fails_ = s.failing == function && s.failing_call == number;
  if (fails_) s.failing.clear();
}

void wait_for_kernels() {
  while (state().busy) ::usleep(1000);
}

CUresult complain(const std::string& sentence, CUresult code) {
  state().complaints += sentence + "\n";
  return code;
}

shared_name shared_file::name() const {
  struct stat file {};
  ::fstat(descriptor, &file);
  return {::getpid(), descriptor, file.st_ino, header->bytes};
}

shared_file create_file(shared_header::kind what, std::size_t bytes) {
  shared_file made;
  made.descriptor = ::memfd_create("devcomm-stand-in", MFD_CLOEXEC);
  if (made.descriptor < 0) return made;
  void* page = MAP_FAILED;
  if (::ftruncate(made.descriptor, static_cast<off_t>(header_bytes + bytes)) == 0) {
    page = ::mmap(nullptr, header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.descriptor, 0);
  }
  if (page == MAP_FAILED) {
    ::close(made.descriptor);
    return {};
  }
  made.header = new (page) shared_header{what, 0, 0, 0, bytes, {}, {}};
  return made;
}

shared_file open_file(int descriptor) {
  struct stat file {};
  shared_file opened;
  opened.descriptor = descriptor;
  if (::fstat(descriptor, &file) == 0 && static_cast<std::size_t>(file.st_size) >= header_bytes) {
    void* const page = ::mmap(nullptr, header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (page != MAP_FAILED) {
      opened.header = static_cast<shared_header*>(page);
      const auto kind = opened.header->what;
      if (kind >= shared_header::kind::memory && kind <= shared_header::kind::plain) return opened;
    }
  }
  close_file(opened);
  return {};
}

shared_file open_file(const shared_name& name) {
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat file {};
  if (descriptor < 0 || ::fstat(descriptor, &file) != 0 || file.st_ino != name.inode) {
    if (descriptor >= 0) ::close(descriptor);
    return {};
  }
  return open_file(descriptor);
}

void close_file(shared_file& file) {
  if (file.header != nullptr) ::munmap(file.header, header_bytes);
  if (file.descriptor >= 0) ::close(file.descriptor);
  file = {};
}

}  // namespace stand_in

using stand_in::state;

stand_in_held stand_in_count_held() {
  const std::lock_guard lock(state().mutex);
  stand_in_held now{};
  for (const auto& [handle, each] : state().objects) {
    ++(each.is_multicast() ? now.multicast : now.memory);
    now.bindings += static_cast<int>(each.bindings.size());
  }
  now.reservations = static_cast<int>(state().reservations.size());
  now.mappings = static_cast<int>(state().mappings.size());
  now.device_memory = static_cast<int>(state().plain.size());
  now.host_memory = static_cast<int>(state().host.size());
  now.registered = static_cast<int>(state().registered.size());
  now.streams = state().streams;
  return now;
}

void stand_in_fail(const char* function, int nth) {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
  state().failing = function == nullptr ? "" : function;
  state().failing_call = nth;
}

int stand_in_count_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  int count = 0;
  for (const auto& [name, calls] : state().calls) {
    if (function == nullptr || name == function) count += calls;
  }
  return count;
}

void stand_in_delay_copies(int looks) {
  const std::lock_guard lock(state().mutex);
  state().copy_delay = looks;
}

void stand_in_keep_busy(int busy) { state().busy = busy != 0; }

const char* stand_in_complaints() {
  const std::lock_guard lock(state().mutex);
  thread_local std::string copy;
  copy = state().complaints;
  return copy.c_str();
}
