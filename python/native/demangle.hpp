/// \file demangle.hpp
/// C++ types as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace devcomm::python {

/// As it came where it is no mangled name.
[[nodiscard]] std::string demangled(const std::string& mangled);
/// Of "void (int, float*)": "int", "float*".
[[nodiscard]] std::vector<std::string> parameters_of(std::string_view function_type);

}  // namespace devcomm::python
