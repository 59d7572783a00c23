/// \file foreign_array.hpp
/// An array of another library: numpy, torch, CuPy, JAX.
#pragma once

#include <nanobind/nanobind.h>

#include "element_type.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::python {

struct foreign_array {
  void* data = nullptr;
  element_type type;
  std::vector<std::int64_t> shape;
  bool on_host = false;
  bool read_only = false;
  int device = 0;

  [[nodiscard]] std::size_t bytes() const;
  /// Throws `host::invalid_argument`, with `call` in front, for what is no array, or not contiguous.
  [[nodiscard]] static foreign_array of(nanobind::handle array, const std::string& call);
};

}  // namespace devcomm::python
