#include "perf/options.hpp"
#include "perf/left_out.hpp"
#include "perf/report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

using Catch::Matchers::ContainsSubstring;

namespace {

void refuses(const std::vector<std::string>& arguments, const std::string& part) {
  CHECK_THROWS_MATCHES(perf::parse_options(arguments), perf::usage_error,
                       Catch::Matchers::MessageMatches(ContainsSubstring(part)));
}

perf::row a_row(const char* implementation, std::uint64_t bytes, double microseconds) {
  perf::row line;
  line.operation = "all_reduce";
  line.implementation = implementation;
  line.algorithm = "one_shot";
  line.protocol = "lamport";
  line.ranks = 4;
  line.bytes = bytes;
  line.shape = {8, 128};
  line.median = microseconds;
  line.p99 = microseconds + 1;
  line.most = microseconds + 2;
  line.least = microseconds - 1;
  line.bus_factor = 1.5;
  return line;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("sizes have suffixes and come back as they were") {
  CHECK(perf::parse_bytes("100", "-b") == 100);
  CHECK(perf::parse_bytes("4K", "-b") == 4096);
  CHECK(perf::parse_bytes("3M", "-b") == 3u << 20);
  CHECK(perf::bytes_text(4096) == "4K");
  CHECK(perf::bytes_text(1u << 30) == "1G");
  CHECK(perf::bytes_text(1000) == "1000");
}

TEST_CASE("the command line becomes options") {
  const auto got =
      perf::parse_options({"all_reduce", "-b", "2K", "-e", "1M", "-f", "4", "-n", "3", "--dtype", "half", "--algo",
                           "one_shot,two_shot_ll", "--place", "in", "--pdl", "--compare", "nccl"});
  CHECK(got.operation == "all_reduce");
  CHECK(got.begin == 2048);
  CHECK(got.end == 1u << 20);
  CHECK(got.factor == 4);
  CHECK(got.ranks == 3);
  CHECK(got.type == perf::data_type::half);
  CHECK(got.algorithms == std::vector<std::string>{"one_shot", "two_shot_ll"});
  CHECK((got.in_place && !got.out_of_place));
  CHECK(got.dependent);
  CHECK(got.compare == std::vector<std::string>{"nccl"});
  CHECK(got.memory == devcomm::host::memory_place::device);
  CHECK(perf::parse_options({"gin_put", "--memory", "pinned"}).memory == devcomm::host::memory_place::pinned_host);
}

TEST_CASE("a command line that makes no sense is refused, and the message says what would") {
  refuses({}, "name an operation");
  refuses({"all_reduce", "all_gather"}, "two operations");
  refuses({"all_reduce", "-b"}, "-b needs a value: BYTES");
  refuses({"all_reduce", "-b", "0"}, "give a size as 4096, 4K, 1M or 1G");
  refuses({"all_reduce", "-b", "1T"}, "give a size as");
  refuses({"all_reduce", "-b", "99999999999999999G"}, "give a size as");
  refuses({"all_reduce", "-b", "2M", "-e", "1M"}, "-b is larger than -e");
  refuses({"all_reduce", "-f", "1"}, "from 2 on");
  refuses({"all_reduce", "-n", "-3"}, "from 1 on");
  refuses({"all_reduce", "-n", "3x"}, "give a whole number");
  refuses({"all_reduce", "--dtype", "fp3"}, "give bf16, half, float, double or int32");
  refuses({"all_reduce", "--compare", "mpi"}, "the peers are: nccl");
  refuses({"all_reduce", "--place", "there"}, "give in, out or both");
  refuses({"all_reduce", "--memory", "host"}, "give device or pinned");
  refuses({"all_reduce", "--faster"}, "unknown option --faster");
  refuses({"all_reduce", "--algo", "a,,b"}, "a name is empty");
  refuses({"all_reduce", "--blocks", "3"}, "give --blocks and --threads together");
  refuses({"all_reduce", "--plan", "x"}, "--plan needs --sweep");
  refuses({"fused_rms_norm", "--sweep", "--plan", "x"}, "--plan is for all_reduce");
  refuses({"fused_rms_norm", "--hidden", "0"}, "from 1 on");
  refuses({"all_reduce", "--late"}, "--late needs a value: US,...");
  refuses({"all_reduce", "--late", "-5"}, "--late -5: give a whole number from 0 on");
  refuses({"all_reduce", "--late", "20,fast"}, "--late fast: give a whole number from 0 on");
  refuses({"all_reduce", "--late", "1.5"}, "give a whole number");
  refuses({"all_reduce", "--jitter", "20,,50"}, "--jitter 20,,50");
  refuses({"all_reduce", "--jitter", "1000001"}, "give at most 1000000 microseconds");
  refuses({"all_reduce", "--late", "50", "--jitter", "20"}, "measure them one after the other");
  refuses({"all_reduce", "--pdl", "--jitter", "20"}, "--pdl with --jitter");
  refuses({"all_reduce", "--sweep", "--plan", "x", "--late", "0,50"}, "a plan is made with one lateness");
}

TEST_CASE("numbers of --late and --jitter are a row each, and without them there is one") {
  const auto rows = [](const std::vector<std::string>& arguments) {
    std::string text;
    for (const perf::lateness& each : perf::parse_options(arguments).latenesses())
      text += " " + std::to_string(each.late) + "/" + std::to_string(each.jitter);
    return text;
  };
  CHECK(rows({"all_reduce"}) == " 0/0");
  CHECK(rows({"all_reduce", "--late", "50"}) == " 50/0");
  CHECK(rows({"all_reduce", "--late", "0,20,10000", "--pdl"}) == " 0/0 20/0 10000/0");
  CHECK(rows({"all_reduce", "--jitter", "0,100", "--eager"}) == " 0/0 0/100");
  CHECK_FALSE(perf::parse_options({"all_reduce", "--eager"}).graph);
  CHECK(perf::parse_options({"all_reduce"}).graph);
}

TEST_CASE("random lateness is uniform, differs by rank and call, and its mean is that of the latest rank") {
  constexpr std::uint64_t most = 20000;
  constexpr int calls = 10000;
  double total = 0;
  int equal = 0;
  std::uint64_t largest = 0;
  for (int call = 0; call < calls; ++call) {
    const std::uint64_t drawn = perf::jitter_of(0, call, most);
    total += static_cast<double>(drawn);
    largest = std::max(largest, drawn);
    equal += static_cast<int>(drawn == perf::jitter_of(1, call, most));
  }
  CHECK(largest <= most);
  CHECK(largest > most * 99 / 100);
  CHECK(std::abs(total / calls - most / 2.0) < most * 0.02);
  CHECK(equal < 10);
  CHECK(perf::jitter_of(3, 5, 0) == 0);
  // The largest of n uniform numbers is n / (n + 1) on the average.
  for (const int ranks : {1, 2, 4, 8})
    CHECK(std::abs(perf::mean_lateness({.jitter = 20}, ranks, calls) - 20.0 * ranks / (ranks + 1)) < 0.4);
  CHECK(perf::mean_lateness({.late = 500}, 2, 200) == 2.5);
  CHECK(perf::mean_lateness({}, 2, 200) == 0);
}

TEST_CASE("the net time of a call is without the lateness") {
  perf::row line = a_row("devcomm", 1024, 12.5);
  CHECK(line.net() == 12.5);
  line.late.late = 500;
  line.mean_late = 2.5;
  CHECK(line.net() == 10);
  line.late = {.jitter = 20};
  line.mean_late = 8;
  line.spin = 7.5;  // half a microsecond more than was asked for
  line.spun = 7;
  CHECK(line.net() == 4);
}

TEST_CASE("rows are written as JSON and CSV") {
  perf::options settings;
  settings.operation = "all_reduce";
  settings.json = "perf_options_test.jsonl";
  settings.csv = "perf_options_test.csv";
  std::remove(settings.json.c_str());
  {
    perf::report report(settings);
    const perf::row first = a_row("devcomm", 1024, 2.5);
    perf::row second = a_row("nccl", 4096, 9);
    second.calls = 50;
    second.late.late = 100;
    second.mean_late = 2;
    report.add(&first, nullptr);
    report.add(nullptr, &second);
    CHECK_FALSE(report.any_wrong());
  }
  CHECK_THAT(
      contents(settings.json),
      ContainsSubstring("{\"op\": \"all_reduce\", \"impl\": \"devcomm\", \"algo\": \"one_shot\", \"protocol\": "
                        "\"lamport\", \"ranks\": 4, \"bytes\": 1024, \"dtype\": \"bf16\", \"in_place\": false, "
                        "\"blocks\": 8, \"threads\": 128,") &&
          ContainsSubstring("\"us_median\": 2.500, \"us_p99\": 3.500,") &&
          ContainsSubstring("\"us_max\": 4.500, \"us_min\": 1.500, \"calls\": 1, \"late_us\": 0, "
                            "\"jitter_us\": 0, \"mean_late_us\": 0.000, \"us_spin\": 0.000, \"us_net\": 2.500,") &&
          ContainsSubstring("\"algbw\": 0.410, \"busbw\": 0.614, \"memory\": \"device\", \"wrong\": 0}"));
  CHECK_THAT(contents(settings.csv),
             ContainsSubstring("all_reduce,nccl,one_shot,lamport,4,4096,bf16,0,8,128,1,0,9.000") &&
                 ContainsSubstring(",10.000,11.000,8.000,50,100,0,2.000,0.000,7.000,"));
  for (const auto& path : {settings.json, settings.csv}) std::remove(path.c_str());
}

TEST_CASE("a wrong result is remembered") {
  perf::options settings;
  settings.operation = "all_reduce";
  perf::report report(settings);
  perf::row line = a_row("devcomm", 1024, 2.5);
  line.wrong = 1;
  report.add(&line, nullptr);
  CHECK(report.any_wrong());
}

TEST_CASE("what is left out is told by algorithm and reason, with its sizes") {
  perf::left_out without;
  for (const std::uint64_t bytes : {1024u, 2048u, 4096u, 8192u, 16384u}) {
    without.add("one_shot_lamport", bytes, "no int32");
    without.add("one_shot_ll", bytes, bytes == 1024 || bytes >= 8192 ? "too large" : "");
    without.add("two_shot_ll", bytes, bytes == 2048 ? "no room" : bytes > 2048 ? "too large" : "");
    without.add("direct_simple", bytes, "");
  }
  CHECK(without.lines() ==
        std::vector<std::string>{"one_shot_lamport for 1K to 16K: no int32", "one_shot_ll for 1K, 8K to 16K: too large",
                                 "two_shot_ll for 2K: no room", "two_shot_ll for 4K to 16K: too large"});
  CHECK(perf::left_out().lines().empty());
}
