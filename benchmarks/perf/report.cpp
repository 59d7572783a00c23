#include "perf/report.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace perf {
namespace {

std::FILE* open_file(const std::string& path, const char* mode) {
  if (path.empty()) return nullptr;
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file == nullptr) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  return file;
}

const char* name_of(devcomm::host::memory_place place) {
  return place == devcomm::host::memory_place::device ? "device" : "pinned";
}

constexpr int width_of_times(bool with_net) { return with_net ? 67 : 57; }

std::string names_of_times(bool with_net) {
  char text[80];
  const int begun = std::snprintf(text, sizeof text, "%9s %9s %9s%s", "us", "p99", "max", with_net ? "       net" : "");
  std::snprintf(text + begun, sizeof text - static_cast<std::size_t>(begun), " %9s %9s %7s", "algbw", "busbw",
                "#wrong");
  return text;
}

void print_times(const row* line, bool with_net) {
  if (line == nullptr) {
    std::printf(" %*s", width_of_times(with_net), "");
    return;
  }
  std::printf(" %9.2f %9.2f %9.2f", line->median, line->p99, line->most);
  if (with_net) std::printf(" %9.2f", line->net());
  std::printf(" %9.2f %9.2f %7llu", line->algorithm_bandwidth(), line->bus_bandwidth(),
              static_cast<unsigned long long>(line->wrong));
}

}  // namespace

report::report(const options& settings)
    : settings_(settings), csv_(open_file(settings.csv, "w")), json_(open_file(settings.json, "a")) {
  shows_progress_ = isatty(fileno(stderr)) != 0;
  if (csv_ != nullptr)
    std::fputs(
        "op,impl,algo,protocol,ranks,bytes,dtype,in_place,blocks,threads,graph,pdl,us_median,us_p99,us_max,us_min,"
        "calls,late_us,jitter_us,mean_late_us,us_spin,us_net,algbw,busbw,wrong,us_lag_of_max,memory\n",
        csv_);
}

report::~report() {
  if (csv_ != nullptr) std::fclose(csv_);
  if (json_ != nullptr) std::fclose(json_);
}

void report::print_header(const std::string& machine, const std::vector<std::string>& left_out) const {
  std::printf("# %s\n", machine.c_str());
  for (const std::string& line : left_out) std::printf("# left out: %s\n", line.c_str());
  std::printf(
      "# %s, %s%s, %s%s; microseconds: slowest rank, median, 99th percentile and maximum of %d measurements; "
      "GB/s\n",
      settings_.operation.c_str(), to_string(settings_.type),
      settings_.memory == devcomm::host::memory_place::device ? "" : " in pinned host memory",
      settings_.graph ? "CUDA graph" : "eager", settings_.dependent ? ", programmatic dependent launch" : "",
      settings_.replays);
  const bool with_lateness = shows_lateness();
  if (with_lateness)
    std::printf(
        settings_.late.empty()
            ? "# each rank late for each call by a random time up to `jitter` us; net: us, less the spinning kernels\n"
            : "# the last rank starts each chain of calls `late` us late; net: (us of the chain - late) / calls\n");
  const std::string columns = names_of_times(with_lateness);
  const std::string lateness = !with_lateness           ? ""
                               : settings_.late.empty() ? "  jitter mean late"
                                                        : "    late mean late";
  std::printf("#%9s %-24s %9s%*s | %*s | %*s\n", "", "", "", static_cast<int>(lateness.size()), "",
              width_of_times(with_lateness), "out of place", width_of_times(with_lateness), "in place");
  std::printf("#%9s %-24s %9s%s | %s | %s\n", "bytes", "algorithm", "shape", lateness.c_str(), columns.c_str(),
              columns.c_str());
  std::fflush(stdout);
}

void report::progress(const std::string& what) {
  if (shows_progress_) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

void report::add(const row* out_of_place, const row* in_place) {
  const row* either = out_of_place != nullptr ? out_of_place : in_place;
  if (either == nullptr) return;
  progress("");
  const std::string shape = either->shape.blocks == 0
                                ? ""
                                : std::to_string(either->shape.blocks) + "x" + std::to_string(either->shape.threads);
  const std::string name = either->algorithm + "_" + either->protocol;
  std::printf("%10s %-24s %9s", bytes_text(either->bytes).c_str(), name.c_str(), shape.c_str());
  if (shows_lateness())
    std::printf(" %7llu %9.2f", static_cast<unsigned long long>(either->late.late + either->late.jitter),
                either->mean_late);
  std::printf(" |");
  print_times(out_of_place, shows_lateness());
  std::printf(" |");
  print_times(in_place, shows_lateness());
  std::printf("\n");
  std::fflush(stdout);
  for (const row* line : {out_of_place, in_place})
    if (line != nullptr) write(*line);
}

void report::write(const row& line) {
  rows_.push_back(line);
  const auto bytes = static_cast<unsigned long long>(line.bytes);
  const auto wrong = static_cast<unsigned long long>(line.wrong);
  const auto late = static_cast<unsigned long long>(line.late.late);
  const auto jitter = static_cast<unsigned long long>(line.late.jitter);
  if (csv_ != nullptr)
    std::fprintf(
        csv_,
        "%s,%s,%s,%s,%d,%llu,%s,%d,%u,%u,%d,%d,%.3f,%.3f,%.3f,%.3f,%d,%llu,%llu,%.3f,%.3f,%.3f,%.3f,%.3f,%llu,%.3f,%s\n",
        line.operation.c_str(), line.implementation.c_str(), line.algorithm.c_str(), line.protocol.c_str(), line.ranks,
        bytes, to_string(line.type), line.in_place ? 1 : 0, line.shape.blocks, line.shape.threads, line.graph ? 1 : 0,
        line.dependent ? 1 : 0, line.median, line.p99, line.most, line.least, line.calls, late, jitter, line.mean_late,
        line.spin, line.net(), line.algorithm_bandwidth(), line.bus_bandwidth(), wrong, line.lag_of_most,
        name_of(settings_.memory));
  if (json_ != nullptr) {
    std::fprintf(
        json_,
        "{\"op\": \"%s\", \"impl\": \"%s\", \"algo\": \"%s\", \"protocol\": \"%s\", \"ranks\": %d, \"bytes\": %llu, "
        "\"dtype\": \"%s\", \"in_place\": %s, \"blocks\": %u, \"threads\": %u, \"graph\": %s, \"pdl\": %s, "
        "\"us_median\": %.3f, \"us_p99\": %.3f, \"us_max\": %.3f, \"us_min\": %.3f, \"calls\": %d, \"late_us\": %llu, "
        "\"jitter_us\": %llu, \"mean_late_us\": %.3f, \"us_spin\": %.3f, \"us_net\": %.3f, \"us_lag_of_max\": %.1f, \"algbw\": %.3f, "
        "\"busbw\": %.3f, \"memory\": \"%s\", \"wrong\": %llu}\n",
        line.operation.c_str(), line.implementation.c_str(), line.algorithm.c_str(), line.protocol.c_str(), line.ranks,
        bytes, to_string(line.type), line.in_place ? "true" : "false", line.shape.blocks, line.shape.threads,
        line.graph ? "true" : "false", line.dependent ? "true" : "false", line.median, line.p99, line.most, line.least,
        line.calls, late, jitter, line.mean_late, line.spin, line.net(), line.lag_of_most, line.algorithm_bandwidth(),
        line.bus_bandwidth(), name_of(settings_.memory), wrong);
    std::fflush(json_);
  }
}

bool report::any_wrong() const {
  for (const row& line : rows_)
    if (line.wrong != 0) return true;
  return false;
}

}  // namespace perf
