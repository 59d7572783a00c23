#include "schedule/schedule_log.hpp"

#include "base/environment.hpp"
#include "base/sanitizer.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace devcomm::simulator::detail {
namespace {

std::FILE* open_or_end(const char* from, const char* name, const char* mode) {
  if (std::FILE* const file = std::fopen(name, mode)) return file;
  std::fprintf(stderr, "devcomm simulator: %s is '%s', which cannot be opened; give the name of a file\n", from, name);
  std::_Exit(2);
}

bool parse(const char* text, thread_key& key) {
  if (std::strcmp(text, "-") == 0) {
    key = {};
    return true;
  }
  const bool of_network = text[0] == 'n';
  if (of_network) ++text;
  int end = 0;
  const int found = std::sscanf(text, "%d.%" SCNu64 ".%" SCNu64 ".%" SCNu32 "%n", &key.device, &key.launch, &key.block,
                                &key.thread, &end);
  if (of_network) key.device = -2 - key.device;
  return found == 4 && text[end] == '\0';
}

void print_key(std::FILE* file, const thread_key& key) {
  if (key.device == -1) {
    std::fputc('-', file);
    return;
  }
  const bool of_network = key.device < -1;
  std::fprintf(file, "%s%d.%" PRIu64 ".%" PRIu64 ".%" PRIu32, of_network ? "n" : "",
               of_network ? -2 - key.device : key.device, key.launch, key.block, key.thread);
}

}  // namespace

std::unique_ptr<schedule_log> schedule_log::from_environment() {
  const char* const record = variable("DEVCOMM_SIM_RECORD");
  const char* const replay = variable("DEVCOMM_SIM_REPLAY");
  const char* const report = variable("DEVCOMM_SIM_REPLAY_REPORT");
  if (record == nullptr && replay == nullptr) return nullptr;
  auto log = std::make_unique<schedule_log>();
  if (replay != nullptr) log->read(replay);
  if (record != nullptr) log->record_ = open_or_end("DEVCOMM_SIM_RECORD", record, "w");
  if (report != nullptr) log->report_ = open_or_end("DEVCOMM_SIM_REPLAY_REPORT", report, "w");
  return log;
}

void schedule_log::read(const char* name) {
  std::FILE* const file = open_or_end("DEVCOMM_SIM_REPLAY", name, "r");
  replays_ = true;
  char line[256];
  for (unsigned number = 1; std::fgets(line, sizeof line, file) != nullptr; ++number) {
    char from_text[100];
    char to_text[100];
    uint64_t point = 0;
    thread_key from;
    thread_key to;
    if (std::sscanf(line, "%99s %" SCNu64 " %99s", from_text, &point, to_text) != 3 || !parse(from_text, from) ||
        !parse(to_text, to)) {
      std::fprintf(stderr, "devcomm simulator: %s:%u is not \"FROM POINT TO\" of a recorded schedule\n", name, number);
      std::_Exit(2);
    }
    entries_[from][point] = to;
  }
  std::fclose(file);
}

const thread_key* schedule_log::next(const stop_point& from) const {
  const auto thread = entries_.find(from.thread);
  if (thread == entries_.end()) return nullptr;
  const auto at = thread->second.find(from.point);
  return at == thread->second.end() ? nullptr : &at->second;
}

uint64_t schedule_log::next_point(const thread_key& thread, uint64_t point) const {
  const auto entry = entries_.find(thread);
  if (entry == entries_.end()) return ~uint64_t{0};
  const auto at = entry->second.upper_bound(point);
  return at == entry->second.end() ? ~uint64_t{0} : at->first;
}

void schedule_log::record(const stop_point& from, const thread_key& to) {
  if (record_ == nullptr) return;
  const sanitizer::unobserved hidden;
  print(record_, from, to);
}

void schedule_log::print(std::FILE* file, const stop_point& from, const thread_key& to) {
  print_key(file, from.thread);
  std::fprintf(file, " %" PRIu64 " ", from.point);
  print_key(file, to);
  std::fputc('\n', file);
}

void schedule_log::keep_frames(scheduled_thread& t) {
  const sanitizer::unobserved hidden;
  t.frame_count = static_cast<uint32_t>(backtrace(t.frames, static_cast<int>(std::size(t.frames))));
}

void schedule_log::report(const scheduled_thread* from, const scheduled_thread& to) {
  const sanitizer::unobserved hidden;
  const auto write = [&](const char* what, const scheduled_thread& t) {
    std::fprintf(report_, "%s\tdevice %d, block %" PRIu64 ", thread %" PRIu32, what, t.group->device, t.group->rank,
                 t.rank);
    for (uint32_t i = 0; i < t.frame_count; ++i) {
      Dl_info about{};
      if (dladdr(t.frames[i], &about) == 0 || about.dli_fname == nullptr) continue;
      // A frame's address is where a call returns to.
      std::fprintf(report_, "\t%s+0x%" PRIxPTR, about.dli_fname,
                   reinterpret_cast<uintptr_t>(t.frames[i]) - reinterpret_cast<uintptr_t>(about.dli_fbase) - 1);
    }
    std::fputc('\n', report_);
  };
  if (from != nullptr) write("stops", *from);
  write("goes on", to);
  std::fflush(report_);
}

}  // namespace devcomm::simulator::detail
