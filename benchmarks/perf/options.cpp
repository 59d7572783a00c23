#include "perf/options.hpp"

#include <charconv>
#include <functional>
#include <map>
#include <sstream>

// Parsed by hand and not with CLI11: devcomm-perf must build on GPU machines where nothing can be installed beside the
// CUDA toolkit and Catch2, and CLI11 is in neither.
namespace perf {
namespace {

template <class T>
T parse_number(const std::string& text, const std::string& option, T least) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    throw usage_error(option + " " + text + ": give a whole number from " + std::to_string(least) + " on");
  return value;
}

std::vector<std::string> split(const std::string& text, const std::string& option) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (part.empty()) throw usage_error(option + " " + text + ": a name is empty");
    parts.push_back(part);
  }
  if (parts.empty()) throw usage_error(option + ": give names with commas between them");
  return parts;
}

std::vector<std::uint64_t> parse_microseconds(const std::string& text, const std::string& option) {
  constexpr std::uint64_t most = 1000000;
  std::vector<std::uint64_t> all;
  for (const std::string& part : split(text, option)) {
    all.push_back(parse_number<std::uint64_t>(part, option, 0));
    if (all.back() > most)
      throw usage_error(option + " " + part + ": give at most " + std::to_string(most) + " microseconds");
  }
  return all;
}

struct option_row {
  const char* name;
  const char* value;  ///< what it takes, or null
  const char* help;
  std::function<void(options&, const std::string&)> set;
};

const std::vector<option_row>& option_rows() {
  static const std::vector<option_row> rows = {
      {"-b", "BYTES", "smallest message, 1K", [](options& o, const std::string& v) { o.begin = parse_bytes(v, "-b"); }},
      {"-e", "BYTES", "largest message, 64M", [](options& o, const std::string& v) { o.end = parse_bytes(v, "-e"); }},
      {"-f", "FACTOR", "from one size to the next, 2",
       [](options& o, const std::string& v) { o.factor = parse_number<std::uint64_t>(v, "-f", 2); }},
      {"-n", "RANKS", "ranks when this process holds them all; else the launcher says",
       [](options& o, const std::string& v) { o.ranks = parse_number(v, "-n", 1); }},
      {"--dtype", "TYPE", "bf16, half, float, double or int32",
       [](options& o, const std::string& v) {
         const auto type = data_type_named(v);
         if (!type) throw usage_error("--dtype " + v + ": give bf16, half, float, double or int32");
         o.type = *type;
       }},
      {"--hidden", "ELEMENTS", "of a row, for operations on rows; shorter messages are one row, 8192",
       [](options& o, const std::string& v) { o.hidden = parse_number<std::uint64_t>(v, "--hidden", 1); }},
      {"--depth", "ELEMENTS", "columns of A, for matrix products, whose C has rows of --hidden, 4096",
       [](options& o, const std::string& v) { o.depth = parse_number<std::uint64_t>(v, "--depth", 1); }},
      {"--memory", "PLACE", "of inputs and outputs: device, or pinned, which is host memory",
       [](options& o, const std::string& v) {
         if (v != "device" && v != "pinned") throw usage_error("--memory " + v + ": give device or pinned");
         o.memory = v == "pinned" ? devcomm::host::memory_place::pinned_host : devcomm::host::memory_place::device;
       }},
      {"--algo", "NAMES", "auto (the plan's), all, or names as one_shot, one_shot_lamport",
       [](options& o, const std::string& v) { o.algorithms = split(v, "--algo"); }},
      {"--compare", "NAMES", "peers to run beside: nccl",
       [](options& o, const std::string& v) {
         o.compare = split(v, "--compare");
         for (const auto& name : o.compare)
           if (name != "nccl") throw usage_error("--compare " + name + ": the peers are: nccl");
       }},
      {"--blocks", "N", "blocks of each launch",
       [](options& o, const std::string& v) { o.blocks = parse_number(v, "--blocks", 1u); }},
      {"--threads", "N", "threads of each block",
       [](options& o, const std::string& v) { o.threads = parse_number(v, "--threads", 1u); }},
      {"--max-blocks", "N", "blocks that a launch may take",
       [](options& o, const std::string& v) { o.max_blocks = parse_number(v, "--max-blocks", 1u); }},
      {"--sweep", nullptr, "try all shapes of launches, report the best",
       [](options& o, const std::string&) { o.sweep = true; }},
      {"--place", "HOW", "in, out or both",
       [](options& o, const std::string& v) {
         if (v != "in" && v != "out" && v != "both") throw usage_error("--place " + v + ": give in, out or both");
         o.in_place = v != "out";
         o.out_of_place = v != "in";
       }},
      {"--eager", nullptr, "launch one by one instead of replaying a CUDA graph",
       [](options& o, const std::string&) { o.graph = false; }},
      {"--late", "US,...", "the last rank starts each chain of calls so late, in microseconds; a row for each",
       [](options& o, const std::string& v) { o.late = parse_microseconds(v, "--late"); }},
      {"--jitter", "US,...",
       "each rank is late for each call by a random time from 0 to so many microseconds; a row for each",
       [](options& o, const std::string& v) { o.jitter = parse_microseconds(v, "--jitter"); }},
      {"--pdl", nullptr, "programmatic dependent launch where the algorithm can",
       [](options& o, const std::string&) { o.dependent = true; }},
      {"--launches", "N", "calls in one measurement",
       [](options& o, const std::string& v) { o.launches = parse_number(v, "--launches", 1); }},
      {"--replays", "N", "measurements of each row, 7",
       [](options& o, const std::string& v) { o.replays = parse_number(v, "--replays", 1); }},
      {"--csv", "FILE", "write the rows as CSV", [](options& o, const std::string& v) { o.csv = v; }},
      {"--json", "FILE", "append a line of JSON for each row; scripts/plot_perf.py draws them",
       [](options& o, const std::string& v) { o.json = v; }},
      {"--plan", "FILE", "with --sweep: write the plan that `auto` would follow",
       [](options& o, const std::string& v) { o.plan = v; }},
  };
  return rows;
}

}  // namespace

std::vector<lateness> options::latenesses() const {
  std::vector<lateness> all;
  for (const std::uint64_t microseconds : late) all.push_back({.late = microseconds});
  for (const std::uint64_t microseconds : jitter) all.push_back({.jitter = microseconds});
  if (all.empty()) all.emplace_back();
  return all;
}

std::uint64_t parse_bytes(const std::string& text, const std::string& option) {
  static const std::map<char, int> shifts = {{'K', 10}, {'M', 20}, {'G', 30}};
  std::string digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const auto found = shifts.find(digits.back());
    if (found != shifts.end()) {
      shift = found->second;
      digits.pop_back();
    }
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value == 0 ||
      value > (std::uint64_t{1} << 40 >> shift))
    throw usage_error(option + " " + text + ": give a size as 4096, 4K, 1M or 1G, up to 1024G");
  return value << shift;
}

std::string bytes_text(std::uint64_t bytes) {
  static const char* const suffixes[] = {"", "K", "M", "G"};
  int i = 0;
  while (i < 3 && bytes % 1024 == 0 && bytes != 0) {
    bytes /= 1024;
    ++i;
  }
  return std::to_string(bytes) + suffixes[i];
}

std::string help(const std::vector<help_line>& operations) {
  std::ostringstream text;
  const auto add = [&](std::string name, const std::string& about) {
    name.resize(22, ' ');
    text << "  " << name << about << "\n";
  };
  text << "devcomm-perf OPERATION [OPTION...]\n"
          "devcomm-perf limits [-n RANKS]\n\n"
          "Measures collective operations, checks their results, and compares with peers. Operations:\n";
  for (const help_line& line : operations) add(line.name, line.about);
  text << "\nOptions, with the values they have when left out:\n";
  for (const option_row& row : option_rows())
    add(row.name + (row.value != nullptr ? std::string(" ") + row.value : ""), row.help);
  text
      << "\nTimes are microseconds for each call of a chain, of the slowest rank from its own start on: median (us), 99th\n"
         "percentile and maximum of the replays. With --late and --jitter they include the lateness; then `mean late` is\n"
         "what the latest rank is late for a call, on the average, and `net` is the median with the lateness taken off:\n"
         "for --late (chain - US) / calls; for --jitter the median less `mean late` and less what the spinning kernels\n"
         "take by themselves beyond their spinning.\n";
  return text.str();
}

options parse_options(const std::vector<std::string>& arguments) {
  options result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name.empty() || name[0] != '-') {
      if (!result.operation.empty()) throw usage_error("two operations: " + result.operation + " and " + name);
      result.operation = name;
      continue;
    }
    const option_row* row = nullptr;
    for (const option_row& candidate : option_rows())
      if (name == candidate.name) row = &candidate;
    if (row == nullptr) throw usage_error("unknown option " + name + "; --help lists them");
    if (row->value != nullptr && i + 1 == arguments.size()) throw usage_error(name + " needs a value: " + row->value);
    row->set(result, row->value != nullptr ? arguments[++i] : std::string());
  }
  if (result.operation.empty()) throw usage_error("name an operation, such as all_reduce");
  if (!result.late.empty() && !result.jitter.empty())
    throw usage_error("--late and --jitter: what is taken off differs; measure them one after the other");
  if (!result.jitter.empty() && result.dependent)
    throw usage_error("--pdl with --jitter: a spinning kernel before each call leaves no chain of dependent launches");
  if (!result.plan.empty() && result.latenesses().size() > 1)
    throw usage_error("--plan: a plan is made with one lateness; give one number");
  if (result.begin > result.end) throw usage_error("-b is larger than -e");
  if (!result.plan.empty() && !result.sweep) throw usage_error("--plan needs --sweep: a plan comes from trying shapes");
  if (!result.plan.empty() && result.operation != "all_reduce") throw usage_error("--plan is for all_reduce");
  if (result.blocks > max_blocks || result.threads > max_threads)
    throw usage_error("a launch has at most " + std::to_string(max_blocks) + " blocks of " +
                      std::to_string(max_threads) + " threads");
  if ((result.blocks != 0) != (result.threads != 0)) throw usage_error("give --blocks and --threads together");
  if (result.blocks != 0 && result.sweep) throw usage_error("--sweep tries shapes; leave --blocks and --threads out");
  return result;
}

}  // namespace perf
