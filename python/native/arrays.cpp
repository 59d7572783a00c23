/// Arrays over symmetric memory, for numpy, torch, CuPy and JAX.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "device.hpp"
#include "foreign_array.hpp"
#include "objects.hpp"

#include <algorithm>
#include <cstring>

namespace devcomm::python {

std::uint64_t symmetric_array::elements() const {
  std::uint64_t count = 1;
  for (const std::int64_t each : shape) count *= static_cast<std::uint64_t>(each);
  return count;
}

char* symmetric_array::data() const {
  const window& w = memory->memory.window();
  return member < 0 ? static_cast<char*>(memory->memory.data()) + offset : w.lsa_pointer(member, offset);
}

std::uintptr_t stream_of(nb::handle stream) {
  if (nb::isinstance<nb::int_>(stream)) return nb::cast<std::uintptr_t>(stream);
  if (nb::hasattr(stream, "cuda_stream")) return nb::cast<std::uintptr_t>(stream.attr("cuda_stream"));
  if (nb::hasattr(stream, "__cuda_stream__")) {
    nb::object found = stream.attr("__cuda_stream__");
    if (PyCallable_Check(found.ptr()) != 0) found = found();
    return nb::cast<std::uintptr_t>(found[1]);
  }
  if (nb::hasattr(stream, "ptr")) return nb::cast<std::uintptr_t>(stream.attr("ptr"));
  throw host::invalid_argument(
      "a stream is an object of torch, CuPy or cuda.core, or its handle as a number; None is the default stream");
}

namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): nanobind's names of arguments

std::vector<std::int64_t> shape_of(nb::handle given) {
  std::vector<std::int64_t> shape;
  if (nb::isinstance<nb::int_>(given)) {
    shape.push_back(nb::cast<std::int64_t>(given));
  } else {
    for (const nb::handle each : given) shape.push_back(nb::cast<std::int64_t>(each));
  }
  std::uint64_t elements = 1;
  for (const std::int64_t each : shape) {
    if (each < 0) throw host::invalid_argument("a shape has sizes from 0; this one has " + std::to_string(each));
    if (each > 0 && elements > (std::uint64_t{1} << 56) / static_cast<std::uint64_t>(each))
      throw host::invalid_argument("the shape has more elements than any memory holds");
    elements *= static_cast<std::uint64_t>(each);
  }
  return shape;
}

/// Zeroed. An array without elements has memory too: a window has at least one byte.
symmetric_array empty(communicator& c, nb::handle shape, nb::handle dtype, const std::string& name,
                      const std::string& place, const std::string& multimem) {
  host::communicator& comm = c.open("empty");
  symmetric_array made;
  made.type = element_type_of(dtype);
  made.shape = shape_of(shape);
  const std::size_t bytes = std::max<std::size_t>(1, made.bytes());
  if (place != "device" && place != "pinned_host")
    throw host::invalid_argument("empty: place is 'device' or 'pinned_host'; it is '" + place + "'");
  if (multimem != "none" && multimem != "required" && multimem != "or_software")
    throw host::invalid_argument("empty: multimem is 'none', 'required' or 'or_software'; it is '" + multimem + "'");
  if (place == "pinned_host" && multimem != "none")
    throw host::invalid_argument("empty: there is no multimem on memory of the host; leave multimem at 'none'");
  const auto policy = multimem == "none"       ? host::multimem_policy::none
                      : multimem == "required" ? host::multimem_policy::required
                                               : host::multimem_policy::or_software;
  made.memory = without_lock(c.state.get(), [&] {
    c.state->collect();
    return std::make_shared<memory_state>(c.state, place == "device"
                                                       ? comm.allocate(bytes, name, policy)
                                                       : comm.allocate(bytes, host::memory_place::pinned_host, name));
  });
  return made;
}

symmetric_array register_array(communicator& c, nb::object array, const std::string& name) {
  host::communicator& comm = c.open("register");
  const foreign_array given = foreign_array::of(array, [] { return std::string("register"); });
  symmetric_array made;
  made.type = given.type;
  made.shape = given.shape;
  try {
    made.memory = without_lock(c.state.get(), [&] {
      return std::make_shared<memory_state>(
          c.state, comm.register_memory(given.data, std::max<std::size_t>(1, given.bytes()), name));
    });
  } catch (const host::error& e) {
    const bool refused = dynamic_cast<const host::not_supported*>(&e) != nullptr ||
                         dynamic_cast<const host::invalid_argument*>(&e) != nullptr;
    if (!given.on_host || !refused) throw;
    throw host::not_supported("register (rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) +
                              "): the array is in memory of the host, which peers cannot reach; copy it into an array "
                              "of Communicator.empty");
  }
  made.memory->registered = std::move(array);
  return made;
}

symmetric_array peer(const symmetric_array& a, int rank) {
  const window& w = a.memory->memory.window();
  const int member = w.lsa_member(rank);
  if (member < 0) {
    throw host::invalid_argument("peer: rank " + std::to_string(rank) +
                                 " is none of the LSA team, whose memory this rank can load and store; "
                                 "Communicator.lsa_ranks lists them");
  }
  symmetric_array result = a;
  result.member = member == w.lsa_rank ? -1 : member;
  return result;
}

symmetric_array reshaped(const symmetric_array& a, nb::handle shape) {
  symmetric_array result = a;
  result.shape = shape_of(shape);
  if (result.elements() != a.elements()) {
    throw host::invalid_argument("reshape: the array has " + std::to_string(a.elements()) + " elements and the shape " +
                                 std::to_string(result.elements()));
  }
  return result;
}

symmetric_array viewed_as(const symmetric_array& a, nb::handle dtype) {
  symmetric_array result = a;
  result.type = element_type_of(dtype);
  const std::uint64_t last =
      a.shape.empty() ? a.type.bytes() : static_cast<std::uint64_t>(a.shape.back()) * a.type.bytes();
  if (a.shape.empty() ? last != result.type.bytes() : last % result.type.bytes() != 0) {
    throw host::invalid_argument("view: rows of " + std::to_string(last) + " bytes are not whole elements of " +
                                 result.type.name());
  }
  if (!a.shape.empty()) result.shape.back() = static_cast<std::int64_t>(last / result.type.bytes());
  return result;
}

/// `array[begin:end]` along the first axis.
symmetric_array slice(const symmetric_array& a, nb::handle part) {
  if (!nb::isinstance<nb::slice>(part)) {
    throw nb::type_error(
        "a symmetric array has slices of its first axis, array[2:5]; elements are in numpy.asarray(array) or array.get()");
  }
  const auto which = nb::borrow<nb::slice>(part);
  if (a.shape.empty()) throw host::invalid_argument("an array without axes has no parts");
  const auto [start, stop, step, length] = which.compute(static_cast<std::size_t>(a.shape.front()));
  static_cast<void>(stop);
  if (step != 1) throw host::invalid_argument("parts of a symmetric array are contiguous: give a slice without a step");
  symmetric_array result = a;
  const std::uint64_t row = a.shape.front() == 0 ? 0 : a.bytes() / static_cast<std::uint64_t>(a.shape.front());
  result.offset += static_cast<std::uint64_t>(start) * row;
  result.shape.front() = static_cast<std::int64_t>(length);
  return result;
}

/// Who sees simulated memory from here on sees what was launched before.
void await_launches(const symmetric_array& a) {
  rank_state* const rank = a.memory->rank.get();
  if (!rank->busy) return;
  without_lock(rank, [&] { synchronize(rank->comm->device(), nullptr); });
  rank->idle();
}

/// nanobind's own array over the memory, which speaks DLPack.
nb::object exported(nb::handle self) {
  const auto& a = nb::cast<const symmetric_array&>(self);
  const bool on_host = std::strcmp(backend_name(), "simulator") == 0;
  if (on_host) await_launches(a);
  std::vector<std::size_t> shape(a.shape.begin(), a.shape.end());
  const nb::ndarray<nb::array_api> array(a.data(), shape.size(), shape.data(), self, nullptr, a.type.code,
                                         on_host ? nb::device::cpu::value : nb::device::cuda::value,
                                         on_host ? 0 : a.memory->rank->comm->device());
  return nb::cast(array);
}

/// numpy's type of the elements; what numpy lacks comes with ml_dtypes.
nb::object numpy_type(const nb::module_& numpy, const element_type& type) {
  const std::string name = type.name();
  if (name.rfind("bfloat", 0) == 0 || name.rfind("float8", 0) == 0) {
    try {
      return numpy.attr("dtype")(nb::module_::import_("ml_dtypes").attr(name.c_str()));
    } catch (const nb::python_error&) {
      throw host::not_supported("numpy has no " + name + "; install ml_dtypes, or take the array as torch's");
    }
  }
  return numpy.attr("dtype")(name);
}

nb::object tuple_of(const std::vector<std::int64_t>& shape) {
  nb::list result;
  for (const std::int64_t each : shape) result.append(each);
  return nb::tuple(result);
}
nb::object shape_tuple(const symmetric_array& a) { return tuple_of(a.shape); }

/// A copy of the array in numpy's memory.
nb::object get(const symmetric_array& a) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object copied = numpy.attr("empty")(shape_tuple(a), numpy_type(numpy, a.type));
  void* const to = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(copied.attr("ctypes").attr("data")));
  rank_state* const rank = a.memory->rank.get();
  without_lock(rank, [&] { copy(rank->comm->device(), to, a.data(), a.bytes(), false); });
  return copied;
}

/// Copies what numpy can make an array of the same shape and type of.
void set(const symmetric_array& a, const nb::object& values) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object type = numpy_type(numpy, a.type);
  const nb::object cast = numpy.attr("asarray")(values).attr("astype")(type, "C", "same_kind", true, false);
  const nb::object whole = numpy.attr("ascontiguousarray")(numpy.attr("broadcast_to")(cast, shape_tuple(a)));
  const void* const from = reinterpret_cast<const void*>(nb::cast<std::uintptr_t>(whole.attr("ctypes").attr("data")));
  rank_state* const rank = a.memory->rank.get();
  without_lock(rank, [&] { copy(rank->comm->device(), a.data(), from, a.bytes(), true); });
}

nb::dict array_interface(const symmetric_array& a, bool on_host) {
  const bool is_simulated = std::strcmp(backend_name(), "simulator") == 0;
  if (on_host != is_simulated)
    throw nb::attribute_error(on_host ? "__array_interface__: the array is in a GPU's memory"
                                      : "__cuda_array_interface__: simulated GPUs have their memory on the host");
  if (on_host) await_launches(a);
  std::string kind;
  switch (static_cast<nb::dlpack::dtype_code>(a.type.code.code)) {
    case nb::dlpack::dtype_code::Int: kind = "<i"; break;
    case nb::dlpack::dtype_code::UInt: kind = "<u"; break;
    case nb::dlpack::dtype_code::Float: kind = "<f"; break;
    case nb::dlpack::dtype_code::Bool: kind = "|b"; break;
    default: throw nb::attribute_error(("numpy has no " + a.type.name()).c_str());
  }
  nb::dict result;
  result["shape"] = shape_tuple(a);
  result["typestr"] = kind + std::to_string(a.type.bytes());
  result["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(a.data()), false);
  result["strides"] = nb::none();
  result["version"] = 3;
  return result;
}

}  // namespace

void bind_arrays(nb::module_& m) {
  nb::class_<symmetric_array>(
      m, "SymmetricArray", nb::is_weak_referenceable(),
      "A contiguous array of which every rank has one, and which kernels reach on all of them. By DLPack "
      "and the array interfaces other libraries see it without a copy.")
      .def_prop_ro("shape", &shape_tuple, nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")))
      .def_prop_ro("ndim", [](const symmetric_array& a) { return a.shape.size(); })
      .def_prop_ro("size", &symmetric_array::elements, "Number of elements.")
      .def_prop_ro("nbytes", &symmetric_array::bytes)
      .def_prop_ro(
          "dtype", [](const symmetric_array& a) { return a.type.name(); }, "As a word, such as 'float32'.")
      .def_prop_ro(
          "data_ptr", [](const symmetric_array& a) { return reinterpret_cast<std::uintptr_t>(a.data()); },
          "Address of the first element.")
      .def_prop_ro(
          "offset", [](const symmetric_array& a) { return a.offset; }, "Bytes from the start of its window.")
      .def_prop_ro(
          "name", [](const symmetric_array& a) { return a.memory->memory.name(); }, "Of the window, in reports.")
      .def_prop_ro(
          "handle_type", [](const symmetric_array& a) { return a.memory->memory.handle_type(); },
          "How the memory is shared with other processes.")
      .def_prop_ro(
          "multimem", [](const symmetric_array& a) { return a.memory->memory.multimem(); },
          "Whether NVLink multicast reaches it, and why not.")
      .def_prop_ro(
          "rank",
          [](const symmetric_array& a) {
            const window& w = a.memory->memory.window();
            return w.world_rank(a.member < 0 ? w.lsa_rank : a.member);
          },
          "Whose part it is.")
      .def("get", &get, nb::sig("def get(self) -> typing.Any"), "A copy as numpy's, when the device has become idle.")
      .def("set", &set, "values"_a, nb::sig("def set(self, values: typing.Any) -> None"),
           "Copies what numpy can make an array of the same shape and type of, when the device has become idle.")
      .def("peer", &peer, "rank"_a,
           "The same array on another rank of the LSA team. Nobody frees it while it is used here.")
      .def(
          "kernel_argument",
          [](const symmetric_array& a) {
            if (a.member >= 0)
              throw host::invalid_argument("kernel_argument: the array is another rank's; take this rank's own");
            const sym_ptr<char> pointer{a.memory->memory.window(), a.offset};
            return nb::bytes(&pointer, sizeof pointer);
          },
          "The bytes of its `sym_ptr`, for other ways to launch.")
      .def("reshape", &reshaped, "shape"_a, "The same elements in another shape.")
      .def("view", &viewed_as, "dtype"_a, "The same memory as elements of another type.")
      .def("__getitem__", &slice, nb::sig("def __getitem__(self, part: slice) -> SymmetricArray"), "part"_a,
           "A contiguous part along the first axis: `array[begin:end]`.")
      .def("__len__",
           [](const symmetric_array& a) { return a.shape.empty() ? 0 : static_cast<std::size_t>(a.shape.front()); })
      .def("__dlpack__",
           [](nb::handle self, const nb::kwargs& options) {
             nb::object method = exported(self).attr("__dlpack__");
             return method(**options);
           })
      .def("__dlpack_device__", [](nb::handle self) { return exported(self).attr("__dlpack_device__")(); })
      .def_prop_ro("__array_interface__", [](const symmetric_array& a) { return array_interface(a, true); })
      .def_prop_ro("__cuda_array_interface__", [](const symmetric_array& a) { return array_interface(a, false); })
      .def("__repr__", [](const symmetric_array& a) {
        std::string shape;
        for (const std::int64_t each : a.shape) shape += std::to_string(each) + ", ";
        return "SymmetricArray(shape=(" +
               shape.substr(0, shape.size() < 2 ? 0 : shape.size() - (a.shape.size() == 1 ? 1 : 2)) +
               "), dtype=" + a.type.name() + ", " + a.memory->memory.name() + ")";
      });
  nb::class_<foreign_array>(
      m, "ArrayFacts",
      "Address, shape and type of an array. Kernels accept it in place of the array, which the caller keeps alive.")
      .def_prop_ro(
          "shape", [](const foreign_array& a) { return tuple_of(a.shape); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")))
      .def_prop_ro("dtype", [](const foreign_array& a) { return a.type.name(); })
      .def_prop_ro("elements", &foreign_array::elements)
      .def("is_like",
           [](const foreign_array& a, const foreign_array& b) { return a.type == b.type && a.shape == b.shape; })
      .def("overlaps",
           [](const foreign_array& a, const foreign_array& b) {
             const auto begin = [](const foreign_array& x) { return reinterpret_cast<std::uintptr_t>(x.data); };
             return begin(a) < begin(b) + b.bytes() && begin(b) < begin(a) + a.bytes();
           })
      .def_prop_ro("bytes", &foreign_array::bytes)
      .def_ro("on_host", &foreign_array::on_host)
      .def_ro("read_only", &foreign_array::read_only)
      .def_prop_ro("data", [](const foreign_array& a) { return reinterpret_cast<std::uintptr_t>(a.data); });
  m.def(
      "array_facts",
      [](nb::handle array, const std::string& call) {
        const symmetric_array* own = nullptr;
        if (nb::try_cast(array, own) && own != nullptr) {
          foreign_array result;
          result.data = own->data();
          result.type = own->type;
          result.shape = own->shape;
          result.device = own->memory->rank->comm->device();
          return result;
        }
        foreign_array given = foreign_array::of(array, [&] { return call; });
        if (given.records_gradient) {
          throw host::not_supported(
              call +
              ": the tensor requires a gradient, which is not recorded here; give "
              "tensor.detach(), call it under torch.no_grad(), or take devcomm.torch's operators");
        }
        return given;
      },
      "array"_a, "call"_a);
  m.def(
      "element_bytes", [](nb::handle dtype) { return element_type_of(dtype).bytes(); }, "dtype"_a);
  m.def(
      "type_name", [](nb::handle dtype) { return element_type_of(dtype).name(); }, "dtype"_a);
  const nb::object type = m.attr("Communicator");
  nb::cpp_function_def(
      &empty, nb::scope(type), nb::name("empty"), nb::is_method(),
      nb::sig("def empty(self, shape: int | typing.Sequence[int], dtype: typing.Any = 'float32', *, name: str = '', "
              "place: str = 'device', multimem: str = 'none') -> SymmetricArray"),
      "shape"_a, "dtype"_a = "float32", nb::kw_only(), "name"_a = "", "place"_a = "device", "multimem"_a = "none",
      "A symmetric array of zeros; of the same number of bytes on all ranks. `place` is 'device' or 'pinned_host'. "
      "`multimem` asks for NVLink multicast: 'required', 'or_software' or 'none'. *Collective*.");
  nb::cpp_function_def(
      &register_array, nb::scope(type), nb::name("register"), nb::is_method(),
      nb::sig("def register(self, array: typing.Any, *, name: str = '') -> SymmetricArray"), "array"_a, nb::kw_only(),
      "name"_a = "",
      "A symmetric array over a GPU's memory that another library allocated, which stays alive as long. "
      "*Collective*.");
  nb::cpp_function_def(
      [](const communicator& c) {
        static_cast<void>(c.open("pool"));
        return nb::module_::import_("devcomm.torch").attr("pool")();
      },
      nb::scope(type), nb::name("pool"), nb::is_method(), nb::sig("def pool(self) -> typing.Any"),
      "Memory for `torch.cuda.use_mem_pool`, as `devcomm.torch.pool`.");
}

}  // namespace devcomm::python
