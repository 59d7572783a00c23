/// Kernels of a person's own: their parameters, and launches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <devcomm/host/all_reduce_plan.hpp>

#include "demangle.hpp"
#include "device.hpp"
#include "foreign_array.hpp"
#include "objects.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace devcomm::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): nanobind's names of arguments

enum class parameter_kind { device_comm, window, sym_ptr, pointer, integer, floating, boolean, structure };

struct parameter {
  std::string text;  ///< its type in C++
  parameter_kind kind = parameter_kind::structure;
  std::size_t bytes = 0;
  bool is_signed = false;
  bool has_element = false;  ///< of pointers: whether only arrays of `element` fit
  bool is_read = false;      ///< of pointers: to constants
  element_type element;
};

struct scalar_type {
  const char* name;
  std::size_t bytes;
  bool is_signed;
};
const scalar_type integers[] = {
    {"int", 4, true},         {"unsigned int", 4, false},       {"long", 8, true},  {"unsigned long", 8, false},
    {"long long", 8, true},   {"unsigned long long", 8, false}, {"short", 2, true}, {"unsigned short", 2, false},
    {"signed char", 1, true}, {"unsigned char", 1, false},      {"char", 1, true},
};

std::string without_const(std::string text) {
  constexpr std::string_view suffix = " const";
  while (text.size() > suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0)
    text.resize(text.size() - suffix.size());
  return text;
}

parameter parameter_of(const std::string& text) {
  parameter p;
  p.text = text;
  constexpr std::string_view sym_ptr_begin = "devcomm::sym_ptr<";
  if (text == "devcomm::device_comm") {
    p.kind = parameter_kind::device_comm;
    p.bytes = sizeof(device_comm);
  } else if (text == "devcomm::window") {
    p.kind = parameter_kind::window;
    p.bytes = sizeof(window);
  } else if (text.compare(0, sym_ptr_begin.size(), sym_ptr_begin) == 0) {
    p.kind = parameter_kind::sym_ptr;
    p.bytes = sizeof(sym_ptr<char>);
    std::string element = text.substr(sym_ptr_begin.size(), text.size() - sym_ptr_begin.size() - 1);
    while (!element.empty() && element.back() == ' ') element.pop_back();
    p.has_element = element_type_of_cpp(without_const(element), p.element);
  } else if (text.back() == '*') {
    p.kind = parameter_kind::pointer;
    p.bytes = sizeof(void*);
    const std::string element = text.substr(0, text.size() - 1);
    p.is_read = without_const(element) != element;
    p.has_element = element_type_of_cpp(without_const(element), p.element);
  } else if (text == "float" || text == "double") {
    p.kind = parameter_kind::floating;
    p.bytes = text == "float" ? 4 : 8;
  } else if (text == "bool") {
    p.kind = parameter_kind::boolean;
    p.bytes = 1;
  } else {
    for (const scalar_type& each : integers) {
      if (text != each.name) continue;
      p.kind = parameter_kind::integer;
      p.bytes = each.bytes;
      p.is_signed = each.is_signed;
    }
  }
  return p;
}

struct kernel {
  std::string name;
  std::shared_ptr<loaded_kernel> code;
  std::vector<parameter> parameters;
  std::uint64_t key = 0;

  [[nodiscard]] std::string text() const {
    std::string result = name + "(";
    for (const parameter& p : parameters) result += (&p == parameters.data() ? "" : ", ") + p.text;
    return result + ")";
  }
};

/// A kernel with shape and stream: what is called with arguments.
struct prepared_launch {
  nb::object of;  ///< keeps the kernel
  const kernel* what;
  launch_shape shape;
};

std::string name_of_type(nb::handle value) { return nb::cast<std::string>(value.type().attr("__name__")); }

std::string name_of_argument(const kernel& k, std::size_t index) {
  return "argument " + std::to_string(index + 1) + " of kernel " + k.text() + ", " + k.parameters[index].text;
}

[[noreturn]] void refuse(const kernel& k, std::size_t index, const std::string& why) {
  throw host::invalid_argument(name_of_argument(k, index) + ": " + why);
}

/// Room for the arguments of a launch.
class packed_arguments {
 public:
  static constexpr std::size_t max_bytes = 4096;  // bytes of parameters that every driver takes

  void add(const void* value, std::size_t bytes) {
    if (!fits(bytes)) throw host::not_supported("a kernel's arguments are more than there is room for: pass a pointer");
    used_ = (used_ + 15) / 16 * 16;
    void* const place = room_ + used_;
    std::memcpy(place, value, bytes);
    used_ += bytes;
    places_[count_++] = place;
  }
  [[nodiscard]] bool fits(std::size_t bytes) const {
    return used_ + 16 + bytes <= sizeof room_ && count_ < max_arguments;
  }
  [[nodiscard]] void** places() { return places_; }

 private:
  static constexpr std::size_t max_arguments = 256;
  alignas(16) std::byte room_[2 * max_bytes];
  void* places_[max_arguments];
  std::size_t used_ = 0;
  std::size_t count_ = 0;
};

/// The device of a launch: that of what it is given.
struct chosen_device {
  int device = -1;
  rank_state* rank = nullptr;
};

void check_element(const kernel& k, std::size_t i, const element_type& given) {
  const parameter& p = k.parameters[i];
  if (p.has_element && !(p.element == given))
    refuse(k, i, "takes elements of " + p.element.name() + ", and the array has " + given.name());
}

template <class T>
void add_integer(packed_arguments& arguments, const kernel& k, std::size_t i, nb::handle value) {
  const nb::object as_int = nb::steal(PyNumber_Index(value.ptr()));
  if (!as_int.is_valid()) {
    PyErr_Clear();
    refuse(k, i, "takes a whole number; it was given a " + name_of_type(value));
  }
  int overflow = 0;
  T result{};
  if constexpr (std::is_signed_v<T>) {
    const long long number = PyLong_AsLongLongAndOverflow(as_int.ptr(), &overflow);
    result = static_cast<T>(number);
    if (overflow != 0 || static_cast<long long>(result) != number) overflow = 1;
  } else {
    const unsigned long long number = PyLong_AsUnsignedLongLong(as_int.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      overflow = 1;
    }
    result = static_cast<T>(number);
    if (static_cast<unsigned long long>(result) != number) overflow = 1;
  }
  if (overflow != 0) refuse(k, i, nb::cast<std::string>(nb::str(as_int)) + " does not fit");
  arguments.add(&result, sizeof result);
}

/// How kernels of the device reach another library's array.
void* reached(const foreign_array& given, const chosen_device& chosen) {
  if (given.bytes() == 0) return nullptr;  // its pointer may be anything
  if (given.on_host) {
    if (void* const lent = lend_host_memory(chosen.device, given.data, given.bytes()); lent != nullptr) {
      const std::lock_guard lock(chosen.rank->guard);
      chosen.rank->lent.push_back(lent);
    }
  } else if (given.device != chosen.device) {
    throw host::invalid_argument("the array is on device " + std::to_string(given.device) +
                                 " and the launch on device " + std::to_string(chosen.device));
  }
  return given.data;
}

void* pointer_of(const kernel& k, std::size_t i, const foreign_array& given, const chosen_device& chosen) {
  check_element(k, i, given.type);
  if (given.read_only && !k.parameters[i].is_read)
    refuse(k, i, "the array is read-only, and the kernel may write to it; copy it, or take a pointer to constants");
  return with_name_in_errors([&] { return name_of_argument(k, i); }, [&] { return reached(given, chosen); });
}

void add_pointer(packed_arguments& arguments, const kernel& k, std::size_t i, nb::handle value,
                 const chosen_device& chosen) {
  void* pointer = nullptr;
  const symmetric_array* own = nullptr;
  const foreign_array* facts = nullptr;
  if (value.is_none()) {
  } else if (nb::try_cast(value, facts) && facts != nullptr) {
    pointer = pointer_of(k, i, *facts, chosen);
  } else if (nb::try_cast(value, own) && own != nullptr) {
    check_element(k, i, own->type);
    pointer = own->data();
  } else {
    pointer = pointer_of(k, i, foreign_array::of(value, [&] { return name_of_argument(k, i); }), chosen);
  }
  arguments.add(&pointer, sizeof pointer);
}

void add_structure(packed_arguments& arguments, const kernel& k, std::size_t i, nb::handle value) {
  const parameter& p = k.parameters[i];
  const resource* given = nullptr;
  if (nb::try_cast(value, given) && given != nullptr) {
    constexpr std::string_view buffer = "devcomm::buffer_handle<";
    const bool both_buffers =
        p.text.compare(0, buffer.size(), buffer) == 0 && given->type.compare(0, buffer.size(), buffer) == 0;
    if (both_buffers) {
      element_type wanted;
      const std::string element = p.text.substr(buffer.size(), p.text.size() - buffer.size() - 1);
      if (element_type_of_cpp(element, wanted) && given->type != "devcomm::buffer_handle<" + wanted.name() + ">")
        refuse(k, i, "the handle is a " + given->type);
    } else if (given->type != p.text) {
      refuse(k, i, "the handle is a " + given->type);
    }
    arguments.add(given->bytes.data(), given->bytes.size());
    return;
  }
  // ctypes structures, numpy.void, bytes: whatever has a buffer of that size.
  Py_buffer view;
  if (PyObject_GetBuffer(value.ptr(), &view, PyBUF_SIMPLE) != 0) {
    PyErr_Clear();
    refuse(k, i,
           "takes the handle that Requirements returned, or a ctypes structure or bytes of its size; it was given a " +
               name_of_type(value));
  }
  const auto bytes = static_cast<std::size_t>(view.len);
  const bool fits = (p.bytes == 0 || bytes == p.bytes) && arguments.fits(bytes);
  if (fits) arguments.add(view.buf, bytes);
  PyBuffer_Release(&view);
  if (!fits) refuse(k, i, "has " + std::to_string(p.bytes) + " bytes, and was given " + std::to_string(bytes));
}

void add_argument(packed_arguments& arguments, const kernel& k, std::size_t i, nb::handle value,
                  chosen_device& chosen) {
  const parameter& p = k.parameters[i];
  switch (p.kind) {
    case parameter_kind::device_comm: {
      const device_state* given = nullptr;
      if (!nb::try_cast(value, given) || given == nullptr)
        refuse(k, i, "takes what Communicator.create_device_comm returned; it was given a " + name_of_type(value));
      const device_comm comm = given->comm.get().with_launch_key(given->comm.get().launch_key ^ k.key);
      arguments.add(&comm, sizeof comm);
      return;
    }
    case parameter_kind::window:
    case parameter_kind::sym_ptr: {
      const symmetric_array* given = nullptr;
      if (!nb::try_cast(value, given) || given == nullptr)
        refuse(k, i, "takes an array of Communicator.empty or register; it was given a " + name_of_type(value));
      if (given->member >= 0)
        refuse(k, i, "the array is another rank's; give this rank's own, and name the peer in the kernel");
      const window& w = given->memory->memory.window();
      if (p.kind == parameter_kind::window) {
        if (given->offset != 0) refuse(k, i, "a window has no offset; give the whole array, or take a sym_ptr");
        arguments.add(&w, sizeof w);
        return;
      }
      check_element(k, i, given->type);
      const sym_ptr<char> pointer{w, given->offset};
      arguments.add(&pointer, sizeof pointer);
      return;
    }
    case parameter_kind::pointer: return add_pointer(arguments, k, i, value, chosen);
    case parameter_kind::integer:
      switch (p.bytes) {
        case 1:
          return p.is_signed ? add_integer<std::int8_t>(arguments, k, i, value)
                             : add_integer<std::uint8_t>(arguments, k, i, value);
        case 2:
          return p.is_signed ? add_integer<std::int16_t>(arguments, k, i, value)
                             : add_integer<std::uint16_t>(arguments, k, i, value);
        case 4:
          return p.is_signed ? add_integer<std::int32_t>(arguments, k, i, value)
                             : add_integer<std::uint32_t>(arguments, k, i, value);
        default:
          return p.is_signed ? add_integer<std::int64_t>(arguments, k, i, value)
                             : add_integer<std::uint64_t>(arguments, k, i, value);
      }
    case parameter_kind::floating: {
      const double number = PyFloat_AsDouble(value.ptr());
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        refuse(k, i, "takes a number; it was given a " + name_of_type(value));
      }
      const auto single = static_cast<float>(number);
      arguments.add(p.bytes == 4 ? static_cast<const void*>(&single) : &number, p.bytes);
      return;
    }
    case parameter_kind::boolean: {
      if (!nb::isinstance<nb::bool_>(value)) refuse(k, i, "takes True or False; it was given a " + name_of_type(value));
      const bool flag = value.is(nb::handle(Py_True));
      arguments.add(&flag, 1);
      return;
    }
    case parameter_kind::structure: return add_structure(arguments, k, i, value);
  }
}

void find_device(chosen_device& chosen, nb::handle value) {
  const device_state* comm = nullptr;
  const symmetric_array* array = nullptr;
  std::shared_ptr<rank_state> rank;
  if (nb::try_cast(value, comm) && comm != nullptr)
    rank = comm->rank;
  else if (nb::try_cast(value, array) && array != nullptr)
    rank = array->memory->rank;
  if (!rank) return;
  chosen.rank = rank.get();
  chosen.device = rank->comm->device();
}

void call(const prepared_launch& l, const nb::args& given) {
  const kernel& k = *l.what;
  if (given.size() != k.parameters.size()) {
    throw host::invalid_argument("kernel " + k.text() + " takes " + std::to_string(k.parameters.size()) +
                                 " arguments and was given " + std::to_string(given.size()));
  }
  chosen_device chosen;
  for (std::size_t i = 0; i < given.size() && chosen.rank == nullptr; ++i) find_device(chosen, given[i]);
  if (chosen.rank == nullptr) {
    throw host::invalid_argument("kernel " + k.text() +
                                 ": none of its arguments is of a communicator, so its device is not known; give it a "
                                 "device communicator or a symmetric array");
  }
  packed_arguments arguments;
  for (std::size_t i = 0; i < given.size(); ++i) add_argument(arguments, k, i, given[i], chosen);
  chosen.rank->busy = true;
  const nb::gil_scoped_release released;
  k.code->launch(chosen.device, l.shape, arguments.places());
}

void set_shape(unsigned (&to)[3], nb::handle given, const char* what) {
  const auto set = [&](std::size_t at, nb::handle size) {
    std::int64_t value = 0;
    if (at >= 3 || !nb::try_cast(size, value) || value < 1 || value > 0x7fffffff) {
      throw host::invalid_argument(std::string(what) + " is a number from 1, or a tuple of up to three; it is " +
                                   nb::cast<std::string>(nb::repr(given)) +
                                   ". A kernel is launched by kernel(grid, block)(arguments)");
    }
    to[at] = static_cast<unsigned>(value);
  };
  if (!nb::isinstance<nb::tuple>(given) && !nb::isinstance<nb::list>(given)) {
    set(0, given);
    return;
  }
  std::size_t at = 0;
  for (const nb::handle each : given) set(at++, each);
}

void check_threads(const unsigned (&block)[3], nb::handle given) {
  constexpr std::uint64_t max_threads = 1024;  // of every GPU
  std::uint64_t threads = 1;
  for (const unsigned size : block) {
    threads *= size;
    if (threads > max_threads) {
      throw host::invalid_argument("block has more than " + std::to_string(max_threads) + " threads; it is " +
                                   nb::cast<std::string>(nb::repr(given)));
    }
  }
}

/// The texts of loaded kernels by their keys. The GIL guards it.
std::unordered_map<std::uint64_t, std::string>& texts_of_kernels() {
  static auto* const texts = new std::unordered_map<std::uint64_t, std::string>;
  return *texts;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

nb::list load(const nb::object& library, const std::vector<std::tuple<std::string, std::string, std::string>>& wanted) {
  std::vector<kernel_name> names;
  for (const auto& [name, symbol, type] : wanted) names.push_back({name, symbol, type});
  const std::string content = nb::isinstance<nb::bytes>(library) ? std::string(nb::cast<nb::bytes>(library).c_str(),
                                                                               nb::cast<nb::bytes>(library).size())
                                                                 : nb::cast<std::string>(library);
  std::vector<std::shared_ptr<loaded_kernel>> loaded;
  {
    const nb::gil_scoped_release released;
    loaded = load_kernels(content, names);
  }
  nb::list result;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    auto k = std::make_unique<kernel>();
    k->name = names[i].name;
    k->code = loaded[i];
    const std::vector<std::size_t>& bytes = k->code->parameter_bytes();
    for (const std::string& text : parameters_of(demangled(names[i].type))) {
      k->parameters.push_back(parameter_of(text));
      parameter& p = k->parameters.back();
      const std::size_t at = k->parameters.size() - 1;
      if (at >= bytes.size()) continue;
      if (p.bytes == 0) p.bytes = bytes[at];
      if (p.bytes != bytes[at]) {
        throw host::not_supported("kernel " + k->name + ": its " + p.text + " has " + std::to_string(bytes[at]) +
                                  " bytes and this package's " + std::to_string(p.bytes) +
                                  "; compile it with the headers of devcomm.include_path()");
      }
    }
    k->key = hash_of(k->text());
    texts_of_kernels()[k->key] = k->text();
    result.append(nb::cast(k.release(), nb::rv_policy::take_ownership));
  }
  return result;
}

}  // namespace

std::string with_names_of_kernels(std::string text) {
  static constexpr std::string_view word = "key ";
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    if (end == begin || end - begin > 20) continue;
    const auto found = texts_of_kernels().find(std::strtoull(text.c_str() + begin, nullptr, 10));
    if (found != texts_of_kernels().end()) text.replace(at, end - at, "kernel " + found->second);
  }
  return text;
}

void bind_kernels(nb::module_& m) {
  nb::class_<prepared_launch>(m, "Launch", "A kernel with its shape: called with the arguments, it is launched.")
      .def("__call__", &call);
  nb::class_<kernel>(m, "Kernel", "A `__global__` function of a compiled source.")
      .def_ro("name", &kernel::name, "As the source or the caller has it.")
      .def_prop_ro(
          "parameters",
          [](const kernel& k) {
            std::vector<std::string> all;
            for (const parameter& p : k.parameters) all.push_back(p.text);
            return all;
          },
          "Their types in C++.")
      .def("__repr__", [](const kernel& k) { return "<kernel " + k.text() + ">"; })
      .def(
          "load", [](const kernel& k, int device) { k.code->prepare(device); }, "device"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Loads it on the device, which its first launch does otherwise: that waits for kernels that run there.")
      .def(
          "__call__",
          [](nb::handle self, nb::handle grid, nb::handle block, nb::handle stream, std::size_t shared_bytes,
             nb::handle cluster, bool cooperative, bool dependent) {
            prepared_launch l{nb::borrow(self), nb::cast<const kernel*>(self), {}};
            set_shape(l.shape.grid, grid, "grid");
            set_shape(l.shape.block, block, "block");
            check_threads(l.shape.block, block);
            set_shape(l.shape.cluster, cluster, "cluster");
            l.shape.shared_bytes = shared_bytes;
            l.shape.stream = stream.is_none() ? 0 : stream_of(stream);
            l.shape.cooperative = cooperative;
            l.shape.dependent = dependent;
            return l;
          },
          "grid"_a, "block"_a, "stream"_a = nb::none(), nb::kw_only(), "shared_bytes"_a = 0, "cluster"_a = 1,
          "cooperative"_a = false, "dependent"_a = false,
          "The kernel with a grid and blocks, numbers or tuples; `stream` is torch's, CuPy's, cuda.core's or a handle. "
          "`dependent`: it may start while the one before it in the stream ends.");
  nb::cpp_function_def(
      [](communicator& c, const nb::args& prepared) {
        host::communicator& comm = c.open("prepare");
        std::vector<std::shared_ptr<loaded_kernel>> all;
        const auto add = [&](nb::handle each) {
          const kernel* one = nullptr;
          if (!nb::try_cast(each, one) || one == nullptr)
            throw host::invalid_argument("prepare: takes kernels and modules of kernels; it was given a " +
                                         name_of_type(each));
          all.push_back(one->code);
        };
        for (const nb::handle each : prepared) {
          if (nb::isinstance<kernel>(each))
            add(each);
          else if (nb::hasattr(each, "kernels"))
            for (const nb::handle one : each.attr("kernels").attr("values")()) add(one);
          else
            add(each);
        }
        without_lock(c.state.get(), [&] {
          for (const auto& each : all) each->prepare(comm.device());
          comm.barrier();
        });
      },
      nb::scope(m.attr("Communicator")), nb::name("prepare"), nb::is_method(),
      "Loads kernels and modules of kernels on the device, before the first launch that waits for peers. *Collective*.");
  nb::cpp_function_def(
      [](communicator& c, nb::handle array) {
        chosen_device chosen;
        chosen.device = c.open("device_pointer").device();
        chosen.rank = c.state.get();
        const symmetric_array* own = nullptr;
        if (nb::try_cast(array, own) && own != nullptr) return reinterpret_cast<std::uintptr_t>(own->data());
        const auto name = [] { return std::string("device_pointer"); };
        const foreign_array given = foreign_array::of(array, name);
        return reinterpret_cast<std::uintptr_t>(with_name_in_errors(name, [&] { return reached(given, chosen); }));
      },
      nb::scope(m.attr("Communicator")), nb::name("device_pointer"), nb::is_method(), "array"_a,
      nb::sig("def device_pointer(self, array: typing.Any) -> int"),
      "The address of an array, for pointers in structures. It stays where it is until the kernel has ended.");
  nb::class_<host::all_reduce_plan>(m, "AllReducePlan")
      .def_prop_ro("algorithm", [](const host::all_reduce_plan& p) { return host::to_string(p.algorithm); })
      .def_prop_ro("protocol", [](const host::all_reduce_plan& p) { return host::to_string(p.protocol); })
      .def_ro("blocks", &host::all_reduce_plan::blocks)
      .def_ro("threads", &host::all_reduce_plan::threads)
      .def_ro("microseconds", &host::all_reduce_plan::microseconds)
      .def_ro("why", &host::all_reduce_plan::why);
  m.def(
      "plan_all_reduce",
      [](std::uint64_t bytes, int ranks, unsigned max_blocks, bool lamport, bool ll128) {
        host::all_reduce_request request;
        request.bytes = bytes;
        request.ranks = ranks;
        request.max_blocks = max_blocks;
        request.lamport = lamport;
        request.chunks = true;
        request.ll128 = ll128;
        return host::plan_all_reduce(request);
      },
      "bytes"_a, "ranks"_a, "max_blocks"_a, "lamport"_a, "ll128"_a);
  m.def("load", &load, "library"_a, "kernels"_a);
}

}  // namespace devcomm::python
