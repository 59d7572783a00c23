#include <util/environment.hpp>

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace devcomm::host;
using namespace devcomm::host::detail;
using namespace std::chrono_literals;

namespace {

environment with(const std::string& value) {
  return [value](const std::string& name) -> std::optional<std::string> {
    if (name == "DEVCOMM_X") return value;
    return std::nullopt;
  };
}

std::string error_of(const std::string& value, const std::string& kind) {
  try {
    if (kind == "integer") (void)integer_variable(with(value), "DEVCOMM_X", 1, 8, "a number from 1 to 8");
    if (kind == "flag") (void)flag_variable(with(value), "DEVCOMM_X");
    if (kind == "seconds") (void)seconds_variable(with(value), "DEVCOMM_X", {.most = 10}, "seconds up to 10");
  } catch (const invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a variable that is unset has no value") {
  CHECK(!integer_variable(with("1"), "DEVCOMM_Y", 0, 1, ""));
  CHECK(!flag_variable(with("1"), "DEVCOMM_Y"));
  CHECK(!seconds_variable(with("1"), "DEVCOMM_Y", {}, ""));
}

TEST_CASE("variables that nobody knows are named, with the nearest one that is known") {
  const auto said = [](std::initializer_list<const char*> settings) {
    std::vector<const char*> all(settings);
    all.push_back(nullptr);
    return misspelt_variables(all.data());
  };
  const auto meant = [&](const std::string& name, const std::string& right) {
    return said({(name + "=1").c_str()}) ==
           "devcomm: the environment has " + name + ", which devcomm does not know; did you mean " + right + "?\n";
  };
  CHECK(meant("DEVCOMM_TIMOUT", "DEVCOMM_TIMEOUT"));
  CHECK(meant("DEVCOMM_LSA_SZIE", "DEVCOMM_LSA_SIZE"));
  CHECK(meant("DEVCOMM_CHECK_LAUNCHES", "DEVCOMM_CHECK_LAUNCH"));
  CHECK(meant("DEVCOMM_SIM_SEDE", "DEVCOMM_SIM_SEED"));
  CHECK(meant("DEVCOMM_RNAK", "DEVCOMM_RANK"));
  CHECK(
      said({"DEVCOMM_QUITE_ANOTHER=1"}) ==
      "devcomm: the environment has DEVCOMM_QUITE_ANOTHER, which devcomm does not know; docs/environment.md lists what "
      "it knows\n");
  CHECK(said({"DEVCOMM_TIMEOUT=1", "DEVCOM_TIMEOUT=1", "PATH=/bin", "devcomm_timeout=1", "=", ""}).empty());
  CHECK(said({"DEVCOMM_RANKZ=1", "DEVCOMM_TIMEOUTS"}).find("\ndevcomm: the environment has DEVCOMM_TIMEOUTS, ") !=
        std::string::npos);
}

TEST_CASE("the reader refuses to be asked for a variable that is not listed") {
  CHECK(process_variables()("DEVCOMM_TEST_SEEDS") != "no such value");
  CHECK_THROWS_AS(process_variables()("DEVCOMM_NOT_LISTED"), std::logic_error);
}

TEST_CASE("values within their range are taken, seconds rounded up to milliseconds") {
  CHECK(integer_variable(with("8"), "DEVCOMM_X", 1, 8, "") == 8);
  CHECK(flag_variable(with("0"), "DEVCOMM_X") == false);
  CHECK(flag_variable(with("1"), "DEVCOMM_X") == true);
  CHECK(seconds_variable(with("2.5"), "DEVCOMM_X", {}, "") == 2500ms);
  CHECK(seconds_variable(with("0.0001"), "DEVCOMM_X", {}, "") == 1ms);
  CHECK(seconds_variable(with("0"), "DEVCOMM_X", {.zero_allowed = true}, "") == 0ms);
}

TEST_CASE("another value is an error that names variable, value and what is expected") {
  CHECK(error_of("9", "integer") == "DEVCOMM_X is \"9\"; set it to a number from 1 to 8, or unset it");
  for (const char* bad : {"0", "-1", "", "4 ", "4x", "99999999999", "4.0"}) CHECK(!error_of(bad, "integer").empty());
  for (const char* bad : {"", "2", "yes", "01"}) CHECK(!error_of(bad, "flag").empty());
  for (const char* bad : {"", "0", "-1", "nan", "inf", "10.1", "1s"}) CHECK(!error_of(bad, "seconds").empty());
}
