/// devcomm-model: predicts how long all-reduces take, from the figures of links. `devcomm-model --help` says how.
#include "model/chakra.hpp"
#include "model/measured.hpp"
#include "model/schedule.hpp"
#include "model/time_model.hpp"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace model;

const char* const help =
    "devcomm-model [table | scale | crossover | check | chakra] [OPTION VALUE]...\n"
    "\n"
    "table      times of an all-reduce by every algorithm, over sizes\n"
    "scale      the same over numbers of hosts, up to --hosts, for --bytes\n"
    "crossover  the number of hosts, and on one host of ranks, from which trees are faster than rings\n"
    "check      the model beside what was measured on 2, 4 and 8 H200s\n"
    "chakra     the schedule of --algo as Chakra execution traces, --output.RANK.et\n"
    "\n"
    "  --hosts N          hosts, 1 (scale: 2048)\n"
    "  --per-host N       ranks of each, 8\n"
    "  --bytes SIZE       of scale and chakra: 4096, 4K, 1M or 1G; 1M\n"
    "  --algo NAME        one_shot, two_shot, ring, tree, rail_ring or rail_tree; ring\n"
    "  --chunks N         of trees in traces, 8\n"
    "  --output PREFIX    of traces, all_reduce\n"
    "  --link-us, --link-gbs        latency of every protocol, and rate of stores, inside a host\n"
    "  --network-us, --network-gbs, --network-message-us\n"
    "                     latency, rate and time of a message of a rank's network card: 5, 48, 0.5\n";

struct usage_error : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class T>
T number(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw usage_error(option + " " + text + ": give a number from " + std::to_string(least) + " to " +
                      std::to_string(most));
  }
  return value;
}

std::uint64_t size(const std::string& option, const std::string& text) {
  const std::map<char, int> suffixes = {{'K', 10}, {'M', 20}, {'G', 30}};
  const auto suffix = text.empty() ? suffixes.end() : suffixes.find(text.back());
  if (suffix == suffixes.end()) return number<std::uint64_t>(option, text, 1, std::uint64_t{1} << 40);
  return number<std::uint64_t>(option, text.substr(0, text.size() - 1), 1, 1024) << suffix->second;
}

struct options {
  std::string command = "table";
  int hosts = 0;
  int per_host = 8;
  std::uint64_t bytes = 1 << 20;
  algorithm which = algorithm::ring;
  int chunks = 8;
  std::string output = "all_reduce";
  std::function<void(machine&)> adjust = [](machine&) {};

  [[nodiscard]] machine on(int count) const {
    machine m = h200(count, per_host);
    adjust(m);
    return m;
  }
};

algorithm algorithm_named(const std::string& name) {
  for (const algorithm each : algorithms_of(h200(2, 1))) {
    if (name_of(each) == name) return each;
  }
  throw usage_error("--algo " + name + ": give one_shot, two_shot, ring, tree, rail_ring or rail_tree");
}

void set(options& o, const std::string& name, const std::string& value) {
  const auto adjust = [&](auto change) {
    const double figure = number(name, value, 1e-6, 1e9);
    o.adjust = [before = o.adjust, change, figure](machine& m) {
      before(m);
      change(m, figure);
    };
  };
  if (name == "--hosts") {
    o.hosts = number(name, value, 1, 1 << 20);
  } else if (name == "--per-host") {
    o.per_host = number(name, value, 1, 1 << 10);
  } else if (name == "--bytes") {
    o.bytes = size(name, value);
  } else if (name == "--algo") {
    o.which = algorithm_named(value);
  } else if (name == "--chunks") {
    o.chunks = number(name, value, 1, 1 << 16);
  } else if (name == "--output") {
    o.output = value;
  } else if (name == "--link-us") {
    adjust([](machine& m, double us) { m.loads.latency = m.packets.latency = m.lines.latency = m.flags.latency = us; });
  } else if (name == "--link-gbs") {
    adjust([](machine& m, double rate) {
      m.loads.rate = m.flags.rate = rate * 1000;
      m.packets.rate = rate * 1000 / 2;
      m.lines.rate = rate * 1000 * 15 / 16;
    });
  } else if (name == "--network-us") {
    adjust([](machine& m, double us) { m.network.latency = us; });
  } else if (name == "--network-gbs") {
    adjust([](machine& m, double rate) { m.network.rate = rate * 1000; });
  } else if (name == "--network-message-us") {
    adjust([](machine& m, double us) { m.network.message = us; });
  } else {
    throw usage_error(name + ": no such option; --help lists them");
  }
}

options parse(const std::vector<std::string>& arguments) {
  options o;
  std::size_t next = 0;
  if (!arguments.empty() && arguments[0].rfind("--", 0) != 0) o.command = arguments[next++];
  for (; next < arguments.size(); next += 2) {
    if (next + 1 == arguments.size()) throw usage_error(arguments[next] + ": give a value");
    set(o, arguments[next], arguments[next + 1]);
  }
  return o;
}

std::string size_text(double bytes) {
  const char* const suffixes[] = {"B", "KiB", "MiB", "GiB"};
  int i = 0;
  for (; i < 3 && bytes >= 1024; ++i) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%g %s", bytes, suffixes[i]);
  return text;
}

/// A row of a Markdown table: the algorithms' times, and which is the fastest.
void print_row(const std::string& first, const machine& on, const std::vector<algorithm>& columns, double bytes) {
  std::printf("| %s |", first.c_str());
  prediction best{};
  algorithm fastest{};
  for (const algorithm which : columns) {
    const prediction p = predict(on, which, bytes);
    std::printf(" %.1f |", p.us);
    if (best.us == 0 || p.us < best.us) {
      best = p;
      fastest = which;
    }
  }
  std::printf(" %s, %s |\n", name_of(fastest).c_str(), name_of(best.inside).c_str());
}

void print_head(const char* first, const std::vector<algorithm>& columns) {
  std::printf("| %s |", first);
  for (const algorithm which : columns) std::printf(" %s |", name_of(which).c_str());
  std::printf(" fastest |\n|---|");
  for (std::size_t i = 0; i <= columns.size(); ++i) std::printf("---|");
  std::printf("\n");
}

void print_table(const options& o) {
  const machine on = o.on(o.hosts == 0 ? 1 : o.hosts);
  const std::vector<algorithm> columns = algorithms_of(on);
  std::printf("%d hosts of %d ranks, us\n\n", on.hosts, on.ranks_per_host);
  print_head("bytes", columns);
  for (double bytes = 1024; bytes <= 1024.0 * 1024 * 1024; bytes *= 4) print_row(size_text(bytes), on, columns, bytes);
}

void print_scale(const options& o) {
  const auto bytes = static_cast<double>(o.bytes);
  const int most = o.hosts == 0 ? 2048 : o.hosts;
  const std::vector<algorithm> columns = algorithms_of(o.on(2));
  std::printf("%s, us\n\n", size_text(bytes).c_str());
  print_head("hosts x ranks", columns);
  for (int hosts = 2; hosts <= most; hosts *= 2) {
    const std::string first = std::to_string(hosts) + " x " + std::to_string(o.per_host);
    print_row(first, o.on(hosts), columns, bytes);
  }
}

/// "12", or "more than MOST": the first number for which `tree` is faster than `ring`.
template <class MachineOf>
std::string first_faster(int most, MachineOf machine_of, algorithm tree, algorithm ring, double bytes) {
  for (int count = 2; count <= most; ++count) {
    const machine on = machine_of(count);
    if (predict(on, tree, bytes).us < predict(on, ring, bytes).us) return std::to_string(count);
  }
  return "more than " + std::to_string(most);
}

void print_crossover(const options& o) {
  std::printf("| bytes | hosts: tree, ring | hosts: rail tree, rail ring | ranks of one host: tree, ring |\n");
  std::printf("|---|---|---|---|\n");
  const auto hosts = [&](int count) { return o.on(count); };
  const auto ranks = [&](int count) {
    machine on = o.on(1);
    on.ranks_per_host = count;
    return on;
  };
  for (const double mebibytes : {1.0 / 64, 1.0, 16.0, 64.0, 256.0, 1024.0, 8192.0}) {
    const double bytes = mebibytes * (1 << 20);
    std::printf("| %s | %s | %s | %s |\n", size_text(bytes).c_str(),
                first_faster(4096, hosts, algorithm::tree, algorithm::ring, bytes).c_str(),
                first_faster(4096, hosts, algorithm::rail_tree, algorithm::rail_ring, bytes).c_str(),
                first_faster(4096, ranks, algorithm::tree, algorithm::ring, bytes).c_str());
  }
}

void print_check() {
  std::printf("| | GPUs | bytes | measured, us | model | error | with NCCL's start | error |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const measured_row& row : measured_rows()) {
    const machine on = h200(1, row.ranks);
    const double bytes = row.kib * 1024;
    const double us = row.how ? predict(on, row.which, *row.how, bytes) : predict(on, row.which, bytes).us;
    const auto error = [&](double predicted) { return 100 * (predicted / row.us - 1); };
    std::printf("| %s | %d | %s | %.2f | %.2f | %+.0f %% |", row.who, row.ranks, size_text(bytes).c_str(), row.us, us,
                error(us));
    if (row.which == algorithm::ring) {
      std::printf(" %.2f | %+.0f %% |\n", us + nccl_start(), error(us + nccl_start()));
    } else {
      std::printf(" | |\n");
    }
  }
  std::printf("\n| two hosts by sockets | measured, us | model | error |\n|---|---|---|---|\n");
  for (const socket_row& row : socket_rows()) {
    const double us = predict(socket_pair(), algorithm::ring, row.kib * 1024).us;
    std::printf("| %s | %.0f | %.0f | %+.0f %% |\n", size_text(row.kib * 1024).c_str(), row.us, us,
                100 * (us / row.us - 1));
  }
}

void write_traces(const options& o) {
  const machine on = o.on(o.hosts == 0 ? 1 : o.hosts);
  const std::string about = name_of(o.which) + " all-reduce of " + std::to_string(o.bytes) + " bytes over " +
                            std::to_string(on.hosts) + " hosts of " + std::to_string(on.ranks_per_host) + " ranks";
  for (int rank = 0; rank < on.ranks(); ++rank) {
    const std::string path = o.output + "." + std::to_string(rank) + ".et";
    std::ofstream file(path, std::ios::binary);
    file << chakra_trace(schedule_of(o.which, on, rank, o.bytes, o.chunks), rank, on.memory, about);
    file.close();
    if (!file) throw std::runtime_error(path + " cannot be written");
  }
  std::printf("%s: %s.0.et to %s.%d.et\n", about.c_str(), o.output.c_str(), o.output.c_str(), on.ranks() - 1);
}

void run(const options& o) {
  const std::map<std::string, std::function<void()>> commands = {{"table", [&] { print_table(o); }},
                                                                 {"scale", [&] { print_scale(o); }},
                                                                 {"crossover", [&] { print_crossover(o); }},
                                                                 {"check", [] { print_check(); }},
                                                                 {"chakra", [&] { write_traces(o); }}};
  const auto found = commands.find(o.command);
  if (found == commands.end()) throw usage_error(o.command + ": give table, scale, crossover, check or chakra");
  found->second();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    if (argument != "--help" && argument != "-h") continue;
    std::fputs(help, stdout);
    return 0;
  }
  try {
    run(parse(arguments));
    return 0;
  } catch (const usage_error& error) {
    std::fprintf(stderr, "devcomm-model: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "devcomm-model: %s\n", error.what());
    return 1;
  }
}
