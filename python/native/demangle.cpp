#include "demangle.hpp"

#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>

namespace devcomm::python {

std::string demangled(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : mangled;
  std::free(text);
  return result;
}

std::vector<std::string> parameters_of(std::string_view function_type) {
  std::vector<std::string> found;
  // As NVRTC gives it, see _nvrtc.py.
  constexpr std::string_view wrapped = "void devcomm_kernel_type<";
  if (function_type.substr(0, wrapped.size()) == wrapped) {
    function_type.remove_prefix(wrapped.size());
    function_type = function_type.substr(0, function_type.rfind('>'));
    while (!function_type.empty() && function_type.back() == ' ') function_type.remove_suffix(1);
  }
  const std::size_t open = function_type.find('(');
  if (open == std::string_view::npos || function_type.back() != ')') return found;
  const std::string_view list = function_type.substr(open + 1, function_type.size() - open - 2);
  if (list.empty()) return found;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] == '<' || list[i] == '(' || list[i] == '[')) ++depth;
    if (i < list.size() && (list[i] == '>' || list[i] == ')' || list[i] == ']')) --depth;
    if (i < list.size() && (list[i] != ',' || depth != 0)) continue;
    std::string_view one = list.substr(begin, i - begin);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    found.emplace_back(one);
    begin = i + 1;
  }
  return found;
}

}  // namespace devcomm::python
