/// \file foreign_array.hpp
/// What is known of an array of another library: numpy, torch, CuPy, JAX.
#pragma once

#include <nanobind/nanobind.h>

#include <devcomm/host/error.hpp>

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
  bool records_gradient = false;  ///< torch's, where autograd would record what is done with it
  int device = 0;

  [[nodiscard]] std::size_t elements() const;
  [[nodiscard]] std::size_t bytes() const { return elements() * type.bytes(); }
  /// Throws `host::invalid_argument` for what is no array, or not contiguous, with what `name` returns in front.
  template <class Name>
  [[nodiscard]] static foreign_array of(nanobind::handle array, const Name& name);

 private:
  static foreign_array of(nanobind::handle array);
};

/// What `call` returns; `invalid_argument` that it throws gets what `name` returns in front.
template <class Name, class Call>
auto with_name_in_errors(const Name& name, const Call& call) {
  try {
    return call();
  } catch (const host::invalid_argument& e) {
    throw host::invalid_argument(name() + ": " + e.what());
  }
}

template <class Name>
foreign_array foreign_array::of(nanobind::handle array, const Name& name) {
  return with_name_in_errors(name, [&] { return of(array); });
}

}  // namespace devcomm::python
