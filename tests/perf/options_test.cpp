#include "perf/options.hpp"
#include "perf/left_out.hpp"
#include "perf/plot.hpp"
#include "perf/report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

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
  refuses({"all_reduce", "--faster"}, "unknown option --faster");
  refuses({"all_reduce", "--algo", "a,,b"}, "a name is empty");
  refuses({"all_reduce", "--blocks", "3"}, "give --blocks and --threads together");
  refuses({"all_reduce", "--plan", "x"}, "--plan needs --sweep");
  refuses({"fused_rms_norm", "--sweep", "--plan", "x"}, "--plan is for all_reduce");
  refuses({"fused_rms_norm", "--hidden", "0"}, "from 1 on");
}

TEST_CASE("rows are written as JSON, CSV and a picture") {
  perf::options settings;
  settings.operation = "all_reduce";
  settings.json = "perf_options_test.jsonl";
  settings.csv = "perf_options_test.csv";
  std::remove(settings.json.c_str());
  const std::string picture = "perf_options_test.svg";
  {
    perf::report report(settings);
    const perf::row first = a_row("devcomm", 1024, 2.5);
    const perf::row second = a_row("nccl", 4096, 9);
    report.add(&first, nullptr);
    report.add(nullptr, &second);
    perf::write_plot(picture, report.rows());
    CHECK_FALSE(report.any_wrong());
  }
  CHECK_THAT(contents(settings.json),
             ContainsSubstring("{\"op\": \"all_reduce\", \"impl\": \"devcomm\", \"algo\": \"one_shot\", \"protocol\": "
                               "\"lamport\", \"ranks\": 4, \"bytes\": 1024, \"dtype\": \"bf16\", \"in_place\": false, "
                               "\"blocks\": 8, \"threads\": 128,") &&
                 ContainsSubstring("\"us_median\": 2.500, \"us_p99\": 3.500,") &&
                 ContainsSubstring("\"algbw\": 0.410, \"busbw\": 0.614, \"wrong\": 0}"));
  CHECK_THAT(contents(settings.csv),
             ContainsSubstring("all_reduce,nccl,one_shot,lamport,4,4096,bf16,0,8,128,1,0,9.000"));
  CHECK_THAT(contents(picture), ContainsSubstring("devcomm one_shot lamport") && ContainsSubstring("nccl lamport") &&
                                    ContainsSubstring("</svg>"));
  for (const auto& path : {settings.json, settings.csv, picture}) std::remove(path.c_str());
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
