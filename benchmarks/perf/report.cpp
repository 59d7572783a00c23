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

void print_times(const row* line) {
  if (line == nullptr) {
    std::printf(" %9s %9s %9s %9s %7s", "", "", "", "", "");
  } else {
    std::printf(" %9.2f %9.2f %9.2f %9.2f %7llu", line->median, line->p99, line->algorithm_bandwidth(),
                line->bus_bandwidth(), static_cast<unsigned long long>(line->wrong));
  }
}

}  // namespace

report::report(const options& settings)
    : settings_(settings), csv_(open_file(settings.csv, "w")), json_(open_file(settings.json, "a")) {
  shows_progress_ = isatty(fileno(stderr)) != 0;
  if (csv_ != nullptr)
    std::fputs(
        "op,impl,algo,protocol,ranks,bytes,dtype,in_place,blocks,threads,graph,pdl,us_median,us_p99,us_min,algbw,"
        "busbw,wrong\n",
        csv_);
}

report::~report() {
  if (csv_ != nullptr) std::fclose(csv_);
  if (json_ != nullptr) std::fclose(json_);
}

void report::print_header(const std::string& machine, const std::vector<std::string>& left_out) const {
  std::printf("# %s\n", machine.c_str());
  for (const std::string& line : left_out) std::printf("# left out: %s\n", line.c_str());
  std::printf("# %s, %s, %s%s; microseconds: slowest rank, median and 99th percentile of %d measurements; GB/s\n",
              settings_.operation.c_str(), to_string(settings_.type), settings_.graph ? "CUDA graph" : "eager",
              settings_.dependent ? ", programmatic dependent launch" : "", settings_.replays);
  std::printf("#%9s %-24s %9s |%39s %7s |%39s\n", "", "", "", "out of place", "", "in place");
  std::printf("#%9s %-24s %9s | %9s %9s %9s %9s %7s | %9s %9s %9s %9s %7s\n", "bytes", "algorithm", "shape", "us",
              "p99", "algbw", "busbw", "#wrong", "us", "p99", "algbw", "busbw", "#wrong");
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
  std::printf("%10s %-24s %9s |", bytes_text(either->bytes).c_str(), name.c_str(), shape.c_str());
  print_times(out_of_place);
  std::printf(" |");
  print_times(in_place);
  std::printf("\n");
  std::fflush(stdout);
  for (const row* line : {out_of_place, in_place})
    if (line != nullptr) write(*line);
}

void report::write(const row& line) {
  rows_.push_back(line);
  const auto bytes = static_cast<unsigned long long>(line.bytes);
  const auto wrong = static_cast<unsigned long long>(line.wrong);
  if (csv_ != nullptr)
    std::fprintf(csv_, "%s,%s,%s,%s,%d,%llu,%s,%d,%u,%u,%d,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%llu\n", line.operation.c_str(),
                 line.implementation.c_str(), line.algorithm.c_str(), line.protocol.c_str(), line.ranks, bytes,
                 to_string(line.type), line.in_place ? 1 : 0, line.shape.blocks, line.shape.threads, line.graph ? 1 : 0,
                 line.dependent ? 1 : 0, line.median, line.p99, line.least, line.algorithm_bandwidth(),
                 line.bus_bandwidth(), wrong);
  if (json_ != nullptr) {
    std::fprintf(
        json_,
        "{\"op\": \"%s\", \"impl\": \"%s\", \"algo\": \"%s\", \"protocol\": \"%s\", \"ranks\": %d, \"bytes\": %llu, "
        "\"dtype\": \"%s\", \"in_place\": %s, \"blocks\": %u, \"threads\": %u, \"graph\": %s, \"pdl\": %s, "
        "\"us_median\": %.3f, \"us_p99\": %.3f, \"us_min\": %.3f, \"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": "
        "%llu}\n",
        line.operation.c_str(), line.implementation.c_str(), line.algorithm.c_str(), line.protocol.c_str(), line.ranks,
        bytes, to_string(line.type), line.in_place ? "true" : "false", line.shape.blocks, line.shape.threads,
        line.graph ? "true" : "false", line.dependent ? "true" : "false", line.median, line.p99, line.least,
        line.algorithm_bandwidth(), line.bus_bandwidth(), wrong);
    std::fflush(json_);
  }
}

bool report::any_wrong() const {
  for (const row& line : rows_)
    if (line.wrong != 0) return true;
  return false;
}

}  // namespace perf
