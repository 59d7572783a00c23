/// The extension module of one backend; `DEVCOMM_PYTHON_MODULE` is its name.
#include "device.hpp"
#include "interrupt.hpp"
#include "objects.hpp"

#include <devcomm/host/error.hpp>

#include <nanobind/stl/string.h>

#include <exception>
#include <string>
#include <type_traits>

namespace devcomm::python {
namespace {

/// A class of exceptions with several bases, such as ValueError, that is raised for `Error`.
template <class Error>
nb::object bind_error(nb::module_& m, const char* name, const nb::tuple& bases) {
  static nb::object* type = nullptr;  // until the process ends
  const std::string full = nb::cast<std::string>(m.attr("__name__")) + "." + name;
  type = new nb::object(nb::steal(PyErr_NewException(full.c_str(), bases.ptr(), nullptr)));
  if (!type->is_valid()) throw nb::python_error();
  m.attr(name) = *type;
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& e) {
          std::string text = e.what();
          if constexpr (std::is_same_v<Error, host::kernel_error>) text = with_names_of_kernels(text);
          const nb::object made = (*type)(nb::str(text.c_str(), text.size()));
          if constexpr (std::is_same_v<Error, host::remote_error>) made.attr("rank") = e.rank();
          PyErr_SetObject(type->ptr(), made.ptr());
        }
      },
      nullptr);
  return *type;
}

/// Of `hand_over`.
struct order_cell {
  void* known = nullptr;
};

}  // namespace
}  // namespace devcomm::python

NB_MODULE(DEVCOMM_PYTHON_MODULE, m) {
  using namespace devcomm;          // NOLINT(google-build-using-namespace)
  using namespace devcomm::python;  // NOLINT(google-build-using-namespace)
  nb::set_leak_warnings(false);     // objects may be alive when the interpreter ends
  remember_main_thread();

  const auto bases = [](auto... each) { return nb::make_tuple(each...); };
  const nb::object base = bind_error<host::error>(m, "Error", bases(nb::handle(PyExc_RuntimeError)));
  bind_error<host::invalid_argument>(m, "InvalidArgument", bases(base, nb::handle(PyExc_ValueError)));
  bind_error<host::not_supported>(m, "NotSupported", bases(base));
  bind_error<host::timeout_error>(m, "TimedOut", bases(base, nb::handle(PyExc_TimeoutError)));
  bind_error<host::system_error>(m, "DeviceError", bases(base));
  bind_error<host::kernel_error>(m, "KernelError", bases(base));
  bind_error<host::remote_error>(m, "RemoteError", bases(base));  // with `rank`

  bind_communicator(m);
  bind_requirements(m);
  bind_arrays(m);
  bind_kernels(m);

  m.attr("backend") = backend_name();
  m.attr("layout_version") = device_comm::layout_version;
  m.def("architecture", &architecture, nb::arg("device"));
  bind_simulation(m);
  nb::class_<order_cell>(m, "OrderCell").def(nb::init<>());
  m.def(
      "hand_over", [](order_cell& c) { hand_over(&c.known); }, nb::arg("cell"));
  m.def(
      "take_over", [](order_cell& c) { take_over(&c.known); }, nb::arg("cell"));
}
