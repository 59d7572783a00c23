/// \file schedule_log.hpp
/// Schedules in files: every choice of a run, written down or repeated.
///
/// A line is "FROM POINT TO": the thread FROM, at its own POINT-th preemption point, stops, and TO continues.
/// A thread is "DEVICE.LAUNCH.BLOCK.THREAD", its launch counted by device; "nRANK.OPERATION.CONTEXT.STEP" is a step of
/// the network's proxy in an exploration; "-" is the start of a part of the run.
/// Points are counted by thread, so a line keeps its meaning when others are removed.
#pragma once

#include "schedule/runnable.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace devcomm::simulator::detail {

/// Where the running thread stopped.
struct stop_point {
  thread_key thread;
  uint64_t point = 0;
};

class schedule_log {
 public:
  /// Of `DEVCOMM_SIM_RECORD`, `DEVCOMM_SIM_REPLAY` and `DEVCOMM_SIM_REPLAY_REPORT`; null without any. Ends the program
  /// if a file cannot be used.
  [[nodiscard]] static std::unique_ptr<schedule_log> from_environment();

  [[nodiscard]] bool replays() const { return replays_; }
  /// The thread that continues from there; null where there is no entry.
  [[nodiscard]] const thread_key* next(const stop_point& from) const;
  /// The first point after `point` that has an entry for `thread`; `never` if there is none.
  [[nodiscard]] uint64_t next_point(const thread_key& thread, uint64_t point) const;

  void record(const stop_point& from, const thread_key& to);
  /// Writes one line.
  static void print(std::FILE* file, const stop_point& from, const thread_key& to);

  /// Whether switches of the file are to be reported with their source locations.
  [[nodiscard]] bool reports() const { return report_ != nullptr; }
  /// Keeps the call stack of the running thread `t`.
  static void keep_frames(scheduled_thread& t);
  void report(const scheduled_thread* from, const scheduled_thread& to);

 private:
  void read(const char* name);

  std::FILE* record_ = nullptr;
  std::FILE* report_ = nullptr;
  bool replays_ = false;
  std::map<thread_key, std::map<uint64_t, thread_key>> entries_;
};

}  // namespace devcomm::simulator::detail
