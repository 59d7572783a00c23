/// What kernels need of a device communicator, and the handles that they take for it.
#include <devcomm/channel/fifos.hpp>
#include <devcomm/channel/messages.hpp>
#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/collective/network_slots.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/buffer.hpp>
#include <devcomm/gin/contexts.hpp>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/ll_slots.hpp>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/signals.hpp>
#include <devcomm/lsa/whole_world.hpp>
#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/resources.hpp>

#include "demangle.hpp"
#include "objects.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <type_traits>
#include <typeinfo>

namespace devcomm::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): nanobind's names of arguments

struct requirements {
  std::shared_ptr<rank_state> rank;
  devcomm::requirements asked;

  requirements(std::shared_ptr<rank_state> r, devcomm::requirements a) : rank(std::move(r)), asked(a) {}

  [[nodiscard]] const host::communicator& comm() const { return *rank->comm; }
};

template <class Handle>
resource resource_of(const Handle& value) {
  static_assert(std::is_trivially_copyable_v<Handle>);
  resource result{demangled(typeid(Handle).name()), std::vector<std::byte>(sizeof value)};
  std::memcpy(result.bytes.data(), &value, sizeof value);
  return result;
}

/// Features are asked for by numbers from 1; Python's are of any size and sign.
std::uint32_t number(std::int64_t given, const char* what, std::int64_t least = 1) {
  if (given < least || given > 0xffffffff) {
    throw host::invalid_argument(std::string(what) + " is a number from " + std::to_string(least) + "; it is " +
                                 std::to_string(given));
  }
  return static_cast<std::uint32_t>(given);
}

template <class Call>
auto with_protocol(const std::string& protocol, Call call) {
  if (protocol == "ll") return call(std::integral_constant<packet_protocol, packet_protocol::ll>());
  if (protocol == "lamport") return call(std::integral_constant<packet_protocol, packet_protocol::lamport>());
  if (protocol == "ll128") return call(std::integral_constant<packet_protocol, packet_protocol::ll128>());
  throw host::invalid_argument("add_mailboxes: protocol is 'll', 'lamport' or 'll128'; it is '" + protocol + "'");
}

resource add_fifos(requirements& needs, const std::string& protocol, std::int64_t count, std::optional<team> members,
                   std::optional<std::int64_t> packs, std::int64_t slots) {
  const team of = members.value_or(needs.comm().lsa());
  const auto add = [&](auto fifos) {
    if (packs) fifos.packs = number(*packs, "packs");
    return resource_of(needs.asked.add(fifos));
  };
  const std::uint32_t n = number(count, "count");
  const std::uint32_t s = number(slots, "slots");
  if (protocol == "simple") return add(channel::fifos<channel::protocol::simple>{of, n, 8192, s});
  if (protocol == "ll") return add(channel::fifos<channel::protocol::ll>{of, n, 1024, s});
  if (protocol == "ll128") return add(channel::fifos<channel::protocol::ll128>{of, n, 1920, s});
  throw host::invalid_argument("add_fifos: protocol is 'simple', 'll' or 'll128'; it is '" + protocol + "'");
}

gin::contexts contexts_of(const requirements& needs, std::int64_t count, std::int64_t signals, std::int64_t counters,
                          std::int64_t depth, std::int64_t barriers) {
  return {needs.comm().world(),          number(count, "count"),
          number(signals, "signals", 0), number(counters, "counters", 0),
          number(depth, "depth"),        number(barriers, "barriers", 0)};
}

resource add_buffer(requirements& needs, std::int64_t count, nb::handle dtype) {
  const element_type type = element_type_of(dtype);
  const auto elements = static_cast<std::uint64_t>(number(count, "count"));
  // The layout is the same for every type; which one, the kernel's parameter says.
  resource made = resource_of(buffer_handle<char>{needs.asked.add(elements * type.bytes(), 128, {type.bytes()}),
                                                  elements, needs.asked.owner()});
  made.type = "devcomm::buffer_handle<" + type.name() + ">";
  return made;
}

}  // namespace

void bind_requirements(nb::module_& m) {
  nb::class_<resource>(m, "Handle", "What a kernel takes by value for a feature that `Requirements` asked for.")
      .def_ro("type", &resource::type, "In C++.")
      .def("__bytes__", [](const resource& h) { return nb::bytes(h.bytes.data(), h.bytes.size()); })
      .def("__repr__", [](const resource& h) { return "Handle(" + h.type + ")"; });

  nb::class_<requirements>(
      m, "Requirements",
      "What kernels need of a device communicator: the same on all ranks. Methods that begin with `add` "
      "return the handle that a kernel takes; the others return the requirements.")
      .def(
          "lsa_barriers",
          [](requirements& r, std::int64_t count) -> requirements& {
            r.asked.lsa_barriers(number(count, "count"));
            return r;
          },
          "count"_a, nb::rv_policy::reference,
          "Barriers of the LSA team that sessions name by index; usually one a block.")
      .def(
          "whole_world",
          [](requirements& r) -> requirements& {
            r.asked.with(lsa::whole_world{});
            return r;
          },
          nb::rv_policy::reference, "Refuses ranks that cannot all load and store each other's memory.")
      .def(
          "multimem",
          [](requirements& r, const std::string& policy) -> requirements& {
            if (policy != "required" && policy != "or_software")
              throw host::invalid_argument("multimem: policy is 'required' or 'or_software'; it is '" + policy + "'");
            r.asked.with(devcomm::multimem::resources{policy == "required" ? host::multimem_policy::required
                                                                           : host::multimem_policy::or_software});
            return r;
          },
          "policy"_a = "or_software", nb::rv_policy::reference,
          "Memory of the communicator's own for multimem: 'required' or 'or_software'.")
      .def(
          "tracing",
          [](requirements& r, std::int64_t blocks, std::int64_t spans, std::int64_t warps) -> requirements& {
            r.asked.with(tracing{number(blocks, "blocks"), number(spans, "spans"), number(warps, "warps")});
            return r;
          },
          "blocks"_a, "spans"_a, "warps"_a = 1, nb::rv_policy::reference,
          "Room for a trace: so many spans of each of `warps` warps of each block.")
      .def(
          "add_lsa_barriers",
          [](requirements& r, std::int64_t count, std::optional<team> t) {
            return resource_of(r.asked.add(lsa::barriers{t.value_or(r.comm().lsa()), number(count, "count")}));
          },
          "count"_a, "team"_a = nb::none(), "Barriers of a part of the LSA team.")
      .def(
          "add_multimem_barriers",
          [](requirements& r, std::int64_t count) {
            return resource_of(r.asked.add(devcomm::multimem::barriers{number(count, "count")}));
          },
          "count"_a, "Barriers of the LSA team by multimem.")
      .def(
          "add_signals",
          [](requirements& r, std::int64_t count, std::optional<team> t) {
            return resource_of(r.asked.add(lsa::signals{t.value_or(r.comm().lsa()), number(count, "count")}));
          },
          "count"_a, "team"_a = nb::none(), "64-bit words on each rank that its peers add to and it waits for.")
      .def(
          "add_mailboxes",
          [](requirements& r, const std::string& protocol, std::int64_t count, std::int64_t packets,
             std::optional<team> t) {
            return with_protocol(protocol, [&](auto p) {
              return resource_of(r.asked.add(lsa::mailboxes<decltype(p)::value>{
                  t.value_or(r.comm().lsa()), number(count, "count"), number(packets, "packets")}));
            });
          },
          "protocol"_a, "count"_a, "packets"_a, "team"_a = nb::none(),
          "Mailboxes for packet sessions, usually one a block, with room for so many packets from each member. `protocol` "
          "is 'll', 'lamport' or 'll128'.")
      .def(
          "add_ll_slots",
          [](requirements& r, std::int64_t count, std::int64_t slots, std::int64_t value_bytes, std::optional<team> t) {
            return resource_of(r.asked.add(lsa::ll_slots{t.value_or(r.comm().lsa()), number(count, "count"),
                                                         number(slots, "slots"), number(value_bytes, "value_bytes")}));
          },
          "count"_a, "slots"_a, "value_bytes"_a = 8, "team"_a = nb::none(), "Slots of LL all-to-all sessions.")
      .def(
          "add_fifos", &add_fifos, "protocol"_a, "count"_a, "team"_a = nb::none(), "packs"_a = nb::none(),
          "slots"_a = 4,
          "FIFOs into each rank and out of it. `protocol` is 'simple', 'll' or 'll128'; a slot holds `packs` packs of 16 "
          "bytes.")
      .def(
          "add_network_fifos",
          [](requirements& r, std::int64_t count, std::int64_t contexts, std::int64_t signals, std::int64_t counters,
             std::int64_t depth, std::int64_t barriers, std::int64_t packs, std::int64_t slots) {
            return resource_of(r.asked.add(
                channel::network_fifos{contexts_of(r, contexts, signals, counters, depth, barriers),
                                       number(count, "count"), number(packs, "packs"), number(slots, "slots")}));
          },
          "count"_a, nb::kw_only(), "contexts"_a = 1, "signals"_a = 0, "counters"_a = 0, "depth"_a = 256,
          "barriers"_a = 0, "packs"_a = 8192, "slots"_a = 4, "FIFOs over the network.")
      .def(
          "add_gin_contexts",
          [](requirements& r, std::int64_t count, std::int64_t signals, std::int64_t counters, std::int64_t depth,
             std::int64_t barriers) {
            return resource_of(r.asked.add(contexts_of(r, count, signals, counters, depth, barriers)));
          },
          "count"_a = 1, "signals"_a = 0, "counters"_a = 0, "depth"_a = 256, "barriers"_a = 0,
          "Contexts of GPU-initiated networking, each with so many signals, counters and barriers, and a queue of `depth` "
          "operations.")
      .def(
          "add_connections",
          [](requirements& r, std::int64_t stripes, std::optional<team> t, std::int64_t slots,
             std::int64_t slot_bytes) {
            return resource_of(
                r.asked.add(channel::connections{t.value_or(r.comm().lsa()), number(stripes, "stripes"),
                                                 number(slots, "slots"), number(slot_bytes, "slot_bytes")}));
          },
          "stripes"_a, "team"_a = nb::none(), "slots"_a = 4, "slot_bytes"_a = 65536,
          "Connections for groups of sends and receives, with so many stripes, usually one a block.")
      .def("add_buffer", &add_buffer, "count"_a, "dtype"_a, "Memory of the communicator's own, on every rank.")
      .def_prop_ro(
          "nbytes", [](const requirements& r) { return r.asked.bytes(); }, "Memory that they take on each rank.");

  nb::class_<device_state>(m, "DeviceCommunicator", nb::is_weak_referenceable(),
                           "What kernels take as `device_comm`, with the resources that they need.")
      .def_prop_ro("rank", [](const device_state& d) { return d.comm.get().rank; })
      .def_prop_ro("size", [](const device_state& d) { return d.comm.get().size; })
      .def_prop_ro(
          "network", [](const device_state& d) { return d.comm.network(); }, "How its contexts reach other ranks.")
      .def(
          "check", [](const device_state& d) { without_lock(d.rank.get(), [&] { d.comm.check(); }); },
          "Raises what went wrong in its kernels since the last time.")
      .def(
          "failures",
          [](const device_state& d) {
            std::vector<std::string> texts;
            for (const failure_record& each : d.comm.failures()) texts.push_back(host::describe(each));
            return texts;
          },
          "What went wrong in its kernels, a text each.")
      .def(
          "kernel_argument", [](const device_state& d) { return nb::bytes(&d.comm.get(), sizeof(device_comm)); },
          "The bytes of the structure, for other ways to launch.");

  const nb::object type = m.attr("Communicator");
  nb::cpp_function_def(
      [](communicator& c) {
        return requirements{c.state, c.open("requirements").requirements()};
      },
      nb::scope(type), nb::name("requirements"), nb::is_method(), "Empty ones, to be filled.");
  nb::cpp_function_def(
      [](communicator& c, const requirements& needs) {
        host::communicator& comm = c.open("create_device_comm");
        return without_lock(c.state.get(), [&] {
          return std::make_unique<device_state>(c.state, comm.create_device_comm(needs.asked));
        });
      },
      nb::scope(type), nb::name("create_device_comm"), nb::is_method(), "requirements"_a,
      "Resources for kernels; the same on all ranks. *Collective*.");
}

}  // namespace devcomm::python
