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
