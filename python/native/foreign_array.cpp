#include "foreign_array.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <utility>

namespace devcomm::python {

namespace nb = nanobind;

std::size_t foreign_array::elements() const {
  std::size_t total = 1;
  for (const std::int64_t each : shape) total *= static_cast<std::size_t>(each);
  return total;
}

namespace {

/// Of numpy's arrays of types that DLPack's caster does not take from it, such as those of ml_dtypes.
bool take_numpy_array(nb::handle array, foreign_array& result) {
  if (!nb::hasattr(array, "__array_interface__") || !nb::hasattr(array, "dtype")) return false;
  const nb::object facts = array.attr("__array_interface__");
  if (!facts["strides"].is_none()) {
    throw host::invalid_argument("the array is not contiguous; copy it, by numpy.ascontiguousarray");
  }
  const nb::object dtype = array.attr("dtype");
  if (nb::hasattr(dtype, "isnative") && !nb::cast<bool>(dtype.attr("isnative"))) {
    throw host::invalid_argument(
        "the array's elements have the other byte order; convert them, by "
        "array.astype(array.dtype.newbyteorder('='))");
  }
  result.type = element_type_of(dtype);
  result.read_only = nb::cast<bool>(facts["data"][1]);
  result.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(facts["data"][0]));
  for (const nb::handle each : facts["shape"]) result.shape.push_back(nb::cast<std::int64_t>(each));
  result.on_host = true;
  return true;
}

[[noreturn]] void refuse_strides() {
  throw host::invalid_argument("the array is not contiguous; copy it, by numpy.ascontiguousarray or Tensor.contiguous");
}

/// What nanobind has seen of an array.
template <class Seen>
void take_seen(const Seen& seen, foreign_array& result) {
  result.data = const_cast<void*>(static_cast<const void*>(seen.data()));
  result.type = {seen.dtype()};
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::size_t i = seen.ndim(); i-- > 0;) {
    const auto size = static_cast<std::int64_t>(seen.shape(i));
    if (size != 1 && seen.stride(i) != expected) contiguous = false;
    expected *= size;
  }
  if (!contiguous && expected != 0) refuse_strides();
  for (std::size_t i = 0; i < seen.ndim(); ++i) result.shape.push_back(static_cast<std::int64_t>(seen.shape(i)));
  result.on_host = seen.device_type() == nb::device::cpu::value;
  result.device = seen.device_id();
}

/// PyTorch's classes and names, when the program has imported it.
class torch_names {
 public:
  /// Null without PyTorch. With the interpreter's lock, which guards it.
  static torch_names* found() {
    static torch_names* only = nullptr;  // until the process ends
    if (only != nullptr) return only;
    const nb::handle torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
    if (!torch.is_valid() || !nb::hasattr(torch, "Tensor") || !nb::hasattr(torch, "nn")) return nullptr;
    only = new torch_names(torch);
    return only;
  }

  /// Of other classes only DLPack knows what their elements are.
  [[nodiscard]] bool is_tensor(nb::handle array) const {
    return array.type().is(tensor_) || array.type().is(parameter_);
  }
  [[nodiscard]] bool grad_enabled() const { return nb::cast<bool>(is_grad_enabled_()); }

  /// False for types that only DLPack has.
  bool type_of(nb::handle dtype, element_type& type) {
    for (const auto& [object, known] : types_) {
      if (!dtype.is(object)) continue;
      type = known;
      return true;
    }
    if (!find_element_type(dtype, type)) return false;
    types_.emplace_back(nb::borrow(dtype), type);
    return true;
  }

  const nb::object data_ptr = name("data_ptr");
  const nb::object dtype = name("dtype");
  const nb::object shape = name("shape");
  const nb::object get_device = name("get_device");
  const nb::object is_contiguous = name("is_contiguous");
  const nb::object is_cpu = name("is_cpu");
  const nb::object is_neg = name("is_neg");
  const nb::object requires_grad = name("requires_grad");

 private:
  explicit torch_names(nb::handle torch)
      : tensor_(torch.attr("Tensor")),
        parameter_(torch.attr("nn").attr("Parameter")),
        is_grad_enabled_(torch.attr("is_grad_enabled")) {}

  static nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

  nb::object tensor_;
  nb::object parameter_;
  nb::object is_grad_enabled_;
  std::vector<std::pair<nb::object, element_type>> types_;
};

/// Of PyTorch's tensors, from their attributes: their DLPack export takes three times as long, and drops a lazy
/// negation.
bool take_tensor(nb::handle array, foreign_array& result) {
  torch_names* const torch = torch_names::found();
  if (torch == nullptr || !torch->is_tensor(array)) return false;
  const auto checked = [](PyObject* value) {
    if (value == nullptr) throw nb::python_error();
    return nb::steal(value);
  };
  PyObject* const self = array.ptr();
  const auto property = [&](const nb::object& name) { return checked(PyObject_GetAttr(self, name.ptr())); };
  const auto method = [&](const nb::object& name) {
    return checked(PyObject_VectorcallMethod(name.ptr(), &self, 1, nullptr));
  };
  const auto is_true = [](const nb::object& value) { return value.is(nb::handle(Py_True)); };
  if (!torch->type_of(property(torch->dtype), result.type)) return false;
  if (!is_true(method(torch->is_contiguous))) refuse_strides();
  if (is_true(method(torch->is_neg)))
    throw host::invalid_argument("the tensor's memory has the negatives of its elements; give it resolve_neg()");
  result.records_gradient = is_true(property(torch->requires_grad)) && torch->grad_enabled();
  for (const nb::handle each : nb::borrow<nb::tuple>(property(torch->shape)))
    result.shape.push_back(nb::cast<std::int64_t>(each));
  result.on_host = is_true(property(torch->is_cpu));
  if (!result.on_host) result.device = nb::cast<int>(method(torch->get_device));
  result.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(method(torch->data_ptr)));
  return true;
}

}  // namespace

foreign_array foreign_array::of(nb::handle array) {
  foreign_array result;
  if (take_tensor(array, result)) return result;
  if (nb::ndarray<> seen; nb::try_cast(array, seen)) {
    take_seen(seen, result);
    return result;
  }
  if (take_numpy_array(array, result)) return result;
  if (nb::ndarray<nb::ro> seen; nb::try_cast(array, seen)) {
    take_seen(seen, result);
    result.read_only = true;
    return result;
  }
  throw host::invalid_argument("a " + nb::cast<std::string>(nb::str(array.type())) +
                               " is no array; take one of numpy, torch, CuPy or JAX, or of Communicator.empty");
}

}  // namespace devcomm::python
