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
  const nb::object dtype = array.attr("dtype");
  if (nb::hasattr(dtype, "isnative") && !nb::cast<bool>(dtype.attr("isnative"))) {
    throw host::invalid_argument(call +
                                 ": the array's elements have the other byte order; convert them, by "
                                 "array.astype(array.dtype.newbyteorder('='))");
  }
  result.type = element_type_of(dtype);
  result.read_only = nb::cast<bool>(facts["data"][1]);
  result.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(facts["data"][0]));
  for (const nb::handle each : facts["shape"]) result.shape.push_back(nb::cast<std::int64_t>(each));
  result.on_host = true;
  return true;
}

/// What nanobind has seen of an array.
template <class Seen>
void take_seen(const Seen& seen, const std::string& call, foreign_array& result) {
  result.data = const_cast<void*>(static_cast<const void*>(seen.data()));
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
}

}  // namespace

foreign_array foreign_array::of(nb::handle array, const std::string& call) {
  foreign_array result;
  if (nb::ndarray<> seen; nb::try_cast(array, seen)) {
    take_seen(seen, call, result);
    return result;
  }
  if (take_numpy_array(array, call, result)) return result;
  if (nb::ndarray<nb::ro> seen; nb::try_cast(array, seen)) {
    take_seen(seen, call, result);
    result.read_only = true;
    return result;
  }
  throw host::invalid_argument(call + ": a " + nb::cast<std::string>(nb::str(array.type())) +
                               " is no array; take one of numpy, torch, CuPy or JAX, or of Communicator.empty");
}

}  // namespace devcomm::python
