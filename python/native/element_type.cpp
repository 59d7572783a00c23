#include "element_type.hpp"

#include <devcomm/host/error.hpp>

#include <cstdint>
#include <initializer_list>

namespace devcomm::python {
namespace {

namespace nb = nanobind;
using code = nb::dlpack::dtype_code;

struct entry {
  const char* name;
  code kind;
  std::uint8_t bits;
  std::initializer_list<std::string_view> in_cpp;
};

const entry entries[] = {
    {"float32", code::Float, 32, {"float"}},
    {"float16", code::Float, 16, {"__half", "devcomm::simulator::detail::small_float<5, 10, __half_raw>"}},
    {"bfloat16",
     code::Bfloat,
     16,
     {"__nv_bfloat16", "devcomm::simulator::detail::small_float<8, 7, __nv_bfloat16_raw>"}},
    {"float64", code::Float, 64, {"double"}},
    {"int32", code::Int, 32, {"int"}},
    {"uint32", code::UInt, 32, {"unsigned int"}},
    {"int64", code::Int, 64, {"long", "long long"}},
    {"uint64", code::UInt, 64, {"unsigned long", "unsigned long long"}},
    {"int16", code::Int, 16, {"short"}},
    {"uint16", code::UInt, 16, {"unsigned short"}},
    {"int8", code::Int, 8, {"signed char"}},
    {"uint8", code::UInt, 8, {}},
    {"bool", code::Bool, 8, {"bool"}},
    {"float8_e4m3fn", code::Float8_E4M3FN, 8, {"__nv_fp8_e4m3", "devcomm::simulator::detail::fp8<4, 3>"}},
    {"float8_e5m2", code::Float8_E5M2, 8, {"__nv_fp8_e5m2", "devcomm::simulator::detail::fp8<5, 2>"}},
};

nb::dlpack::dtype code_of(const entry& e) { return {static_cast<std::uint8_t>(e.kind), e.bits, 1}; }

}  // namespace

std::string element_type::name() const {
  for (const entry& e : entries)
    if (code_of(e) == code) return e.name;
  if (code.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Complex))
    return "complex" + std::to_string(code.bits);
  return "a type of " + std::to_string(code.bits) + " bits";
}

namespace {

std::string name_of(nb::handle dtype) {
  std::string text;
  if (nb::isinstance<nb::str>(dtype)) {
    text = nb::cast<std::string>(dtype);
  } else {
    // numpy and its kin have `name`, also classes such as numpy.float32; torch's are written "torch.float32".
    const nb::object name = nb::getattr(dtype, "name", nb::none());
    const nb::object own =
        name.is_none() || !nb::isinstance<nb::str>(name) ? nb::getattr(dtype, "__name__", nb::none()) : name;
    text = nb::cast<std::string>(own.is_none() ? nb::str(dtype) : nb::str(own));
  }
  if (text.rfind("torch.", 0) == 0) text = text.substr(6);
  if (text == "float") text = "float32";
  if (text == "half") text = "float16";
  if (text == "double") text = "float64";
  return text;
}

}  // namespace

bool find_element_type(nb::handle dtype, element_type& found) {
  const std::string text = name_of(dtype);
  for (const entry& e : entries) {
    if (text != e.name) continue;
    found = {code_of(e)};
    return true;
  }
  return false;
}

element_type element_type_of(nb::handle dtype) {
  element_type found;
  if (find_element_type(dtype, found)) return found;
  std::string all;
  for (const entry& e : entries) all += (all.empty() ? "" : ", ") + std::string(e.name);
  throw host::invalid_argument("'" + name_of(dtype) + "' is no element type; take one of " + all);
}

bool element_type_of_cpp(std::string_view type, element_type& found) {
  for (const entry& e : entries) {
    for (const std::string_view name : e.in_cpp) {
      if (name != type) continue;
      found = {code_of(e)};
      return true;
    }
  }
  return false;
}

}  // namespace devcomm::python
