/// \file element_type.hpp
/// Element types of arrays: their names in Python, in DLPack, and in C++.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace devcomm::python {

struct element_type {
  nanobind::dlpack::dtype code{};

  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(code.bits) / 8; }
  /// "float32"; "unknown" for what the table lacks.
  [[nodiscard]] std::string name() const;
  friend bool operator==(const element_type& a, const element_type& b) { return a.code == b.code; }
};

/// Of a name, or of a dtype object of numpy, torch, CuPy or JAX. Throws `host::invalid_argument` with the names there
/// are.
[[nodiscard]] element_type element_type_of(nanobind::handle dtype);
/// The same; false for what the table lacks.
[[nodiscard]] bool find_element_type(nanobind::handle dtype, element_type& found);
/// Of a type in C++, as the demangler writes it; false where elements of any type may lie there.
[[nodiscard]] bool element_type_of_cpp(std::string_view type, element_type& found);

}  // namespace devcomm::python
