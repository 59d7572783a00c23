#include "foreign_array.hpp"

#include <devcomm/host/error.hpp>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

namespace devcomm::python {

namespace nb = nanobind;

std::size_t foreign_array::bytes() const {
  std::size_t total = type.bytes();
  for (const std::int64_t each : shape) total *= static_cast<std::size_t>(each);
  return total;
}

namespace {

/// Of numpy's arrays of types that DLPack's caster does not take from it, such as those of ml_dtypes.
bool take_numpy_array(nb::handle array, const std::string& call, foreign_array& result) {
  if (!nb::hasattr(array, "__array_interface__") || !nb::hasattr(array, "dtype")) return false;
  const nb::object facts = array.attr("__array_interface__");
  if (!facts["strides"].is_none()) {
    throw host::invalid_argument(call + ": the array is not contiguous; copy it, by numpy.ascontiguousarray");
  }
  result.type = element_type_of(array.attr("dtype"));
  result.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(facts["data"][0]));
  for (const nb::handle each : facts["shape"]) result.shape.push_back(nb::cast<std::int64_t>(each));
  result.on_host = true;
  return true;
}

}  // namespace

foreign_array foreign_array::of(nb::handle array, const std::string& call) {
  nb::ndarray<> seen;
  foreign_array result;
  if (!nb::try_cast(array, seen)) {
    if (take_numpy_array(array, call, result)) return result;
    throw host::invalid_argument(call + ": a " + nb::cast<std::string>(nb::str(array.type())) +
                                 " is no array; take one of numpy, torch, CuPy or JAX, or of Communicator.empty");
  }
  result.data = seen.data();
  result.type = {seen.dtype()};
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::size_t i = seen.ndim(); i-- > 0;) {
    const auto size = static_cast<std::int64_t>(seen.shape(i));
    if (size != 1 && seen.stride(i) != expected) contiguous = false;
    expected *= size;
  }
  if (!contiguous && expected != 0) {
    throw host::invalid_argument(call +
                                 ": the array is not contiguous; copy it, by numpy.ascontiguousarray or "
                                 "Tensor.contiguous");
  }
  for (std::size_t i = 0; i < seen.ndim(); ++i) result.shape.push_back(static_cast<std::int64_t>(seen.shape(i)));
  result.on_host = seen.device_type() == nb::device::cpu::value;
  result.device = seen.device_id();
  return result;
}

}  // namespace devcomm::python
