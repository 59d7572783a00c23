#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/unique_id.hpp>

#include "communicator/ended_rank.hpp"
#include "device.hpp"
#include "device/backend.hpp"
#include "objects.hpp"
#include "rank/settings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <functional>
#include <future>
#include <thread>

namespace devcomm::python {

communicator::communicator(std::shared_ptr<rank_state> s)
    : state(std::move(s)), rank(state->comm->rank()), size(state->comm->size()), device(state->comm->device()) {}

communicator::~communicator() { close(); }

host::communicator& communicator::open(const char* call) const {
  if (!state) throw host::invalid_argument(std::string(call) + ": the communicator has been closed");
  return *state->comm;
}

void communicator::close() {
  const nb::gil_scoped_release released;
  state.reset();
}

rank_state::~rank_state() {
  if (!made) return;
  const int device = comm->device();
  host::detail::backend& devices = host::detail::current_backend();
  try {
    if (busy && !devices.wait_until_idle(device, std::chrono::seconds(10))) {
      comm->abort();
      static_cast<void>(devices.wait_until_idle(device, std::chrono::seconds(10)));
    }
  } catch (const std::exception&) {  // a kernel has failed, which its own messages say
  }
  idle();
}

void rank_state::collect() {
  {
    const std::lock_guard lock(guard);
    if (!busy || (kept_memory.empty() && kept_comms.empty())) return;
  }
  if (host::detail::current_backend().wait_until_idle(comm->device(), std::chrono::milliseconds(0))) idle();
}

void rank_state::idle() noexcept {
  std::vector<host::symmetric_memory> memory;
  std::vector<host::device_communicator> comms;
  const std::lock_guard lock(guard);
  busy = false;
  memory.swap(kept_memory);
  comms.swap(kept_comms);
  for (void* const each : lent) give_back_host_memory(each);
  lent.clear();
}

memory_state::~memory_state() {
  if (rank->busy) {
    const std::lock_guard lock(rank->guard);
    rank->kept_memory.push_back(std::move(memory));
  }
  if (!registered.is_valid()) return;
  const nb::gil_scoped_acquire held;
  registered.reset();
}

device_state::~device_state() {
  if (!rank->busy) return;
  const std::lock_guard lock(rank->guard);
  rank->kept_comms.push_back(std::move(comm));
}

void rank_state::interrupt(const std::string& why) noexcept {
  if (made) comm->abort();
  if (ranks) ranks->interrupt(ranks->rank(), why);
}

namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): nanobind's names of arguments

/// A bootstrap by Python's all-gather: takes this rank's bytes, returns those of all ranks, in their order.
std::shared_ptr<host::bootstrap> bootstrap_of(int rank, int size, const nb::callable& all_gather,
                                              std::chrono::milliseconds limit) {
  const auto kept = std::shared_ptr<nb::callable>(new nb::callable(all_gather), [](nb::callable* c) {
    const nb::gil_scoped_acquire held;
    delete c;
  });
  const host::all_gather_function gather = [kept, size](std::span<const std::byte> mine, std::span<std::byte> all) {
    const nb::gil_scoped_acquire held;
    try {
      const nb::bytes given(mine.data(), mine.size());
      const nb::object gathered = (*kept)(given);
      std::size_t filled = 0;
      int parts = 0;
      for (const nb::handle each : gathered) {
        const nb::bytes part = nb::cast<nb::bytes>(each);
        if (part.size() != mine.size() || parts == size) break;
        std::memcpy(all.data() + filled, part.c_str(), part.size());
        filled += part.size();
        ++parts;
      }
      if (filled != all.size()) {
        throw host::invalid_argument("the all-gather of this communicator has to return " + std::to_string(size) +
                                     " times " + std::to_string(mine.size()) +
                                     " bytes, in the order of the ranks; it returned something else");
      }
    } catch (const nb::python_error& error) {
      throw host::error(std::string("the all-gather of this communicator failed: ") + error.what());
    }
  };
  const nb::gil_scoped_release released;
  return host::tcp_bootstrap(rank, size, gather, limit);
}

/// Calls `connect` on a thread of its own, which Ctrl-C leaves to its time limit.
std::shared_ptr<host::bootstrap> connected(std::function<std::shared_ptr<host::bootstrap>()> connect) {
  std::packaged_task<std::shared_ptr<host::bootstrap>()> task(std::move(connect));
  std::future<std::shared_ptr<host::bootstrap>> result = task.get_future();
  std::thread(std::move(task)).detach();
  for (;;) {
    {
      const nb::gil_scoped_release released;
      if (result.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready) return result.get();
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  if (!(seconds > 0 && seconds < 1e9)) throw host::invalid_argument("a time limit is a number of seconds above 0");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000 + 0.5));
}

host::communicator_options options_of(std::optional<double> limit, std::optional<double> kernel_timeout, int device,
                                      int lsa_size, bool check_launch) {
  host::communicator_options options;
  if (limit) options.limit = milliseconds_of(*limit);
  if (kernel_timeout) options.kernel_timeout = milliseconds_of(*kernel_timeout);
  options.device = device;
  options.lsa_size = lsa_size;
  options.check_launch = check_launch;
  return options;
}

std::unique_ptr<communicator> split(const communicator& c, int color, int key) {
  host::communicator& parent = c.open("split");
  auto state = std::make_shared<rank_state>();
  without_lock(c.state.get(), [&] {
    if (const auto made = parent.split(color, key)) state->make(std::move(*made));
  });
  return state->made ? std::make_unique<communicator>(std::move(state)) : nullptr;
}

/// `reason` keeps this rank from going on: the others' waits end, and they hear of it.
void fail(communicator& c, const std::string& reason) {
  const nb::gil_scoped_release released;
  if (c.state) host::detail::ended_rank::leave(*c.state->comm, reason);
}

/// "ValueError: out of beans".
std::string text_of(nb::handle error) {
  const auto type = nb::cast<std::string>(error.type().attr("__name__"));
  const auto text = nb::cast<std::string>(nb::str(error));
  return text.empty() ? type : type + ": " + text;
}

/// Waits until the device is idle, and throws what no call has reported.
void finish(communicator& c) {
  host::communicator& comm = c.open("run_ranks");
  without_lock(c.state.get(), [&] { host::detail::ended_rank::finish(comm); });
  c.state->idle();
}

nb::dict dict_of(const host::properties& p) {
  nb::dict result;
  result["backend"] = p.backend;
  result["device_name"] = p.device_name;
  result["multiprocessors"] = p.multiprocessors;
  const std::pair<const char*, const host::capability*> all[] = {
      {"lsa", &p.lsa},
      {"rail", &p.rail},
      {"nvlink_domain", &p.nvlink_domain},
      {"ll128", &p.ll128},
      {"file_descriptor_handles", &p.file_descriptor_handles},
      {"fabric_handles", &p.fabric_handles},
      {"cuda_ipc", &p.cuda_ipc},
      {"multicast", &p.multicast},
      {"network", &p.network},
      {"pinned_host", &p.pinned_host},
      {"own_device", &p.own_device},
      {"timing", &p.timing},
  };
  for (const auto& [name, value] : all) result[name] = *value;
  return result;
}

}  // namespace

void bind_communicator(nb::module_& m) {
  nb::class_<host::capability>(
      m, "Capability", "Whether something is there, and why or why not; true or false where a condition is asked for.")
      .def_ro("available", &host::capability::available)
      .def_ro("reason", &host::capability::reason)
      .def("__bool__", [](const host::capability& c) { return c.available; })
      .def("__repr__", [](const host::capability& c) {
        return std::string(c.available ? "yes" : "no") + (c.reason.empty() ? "" : " (" + c.reason + ")");
      });

  nb::class_<team>(m, "Team", "Ranks that a kernel names by their number in the team: `rank` is this one's, of `size`.")
      .def_ro("rank", &team::rank)
      .def_ro("size", &team::size)
      .def(
          "inner", [](const team& t, int factor) { return inner_factor(t, factor); }, "factor"_a,
          "The `factor` neighbors that this rank is among, of a team that they divide evenly.")
      .def(
          "outer", [](const team& t, int factor) { return outer_factor(t, factor); }, "factor"_a,
          "The ranks with this one's place among their `factor` neighbors.")
      .def(
          "world_rank",
          [](const team& t, int member) {
            if (member < 0 || member >= t.size)
              throw host::invalid_argument("world_rank: members of the team are 0 to " + std::to_string(t.size - 1));
            if (!t.has_world_ranks())
              throw host::not_supported(
                  "world_rank: the members of this team are no arithmetic sequence of ranks; take Communicator.lsa_ranks");
            return t.world_rank(member);
          },
          "member"_a, "The rank of a member in the communicator.")
      .def("__repr__", [](const team& t) {
        return "Team(rank=" + std::to_string(t.rank) + ", size=" + std::to_string(t.size) + ")";
      });

  nb::class_<host::bootstrap>(m, "Bootstrap")
      .def_prop_ro("rank", &host::bootstrap::rank)
      .def_prop_ro("size", &host::bootstrap::size)
      .def(
          "interrupt", [](host::bootstrap& b, const std::string& why) { b.interrupt(b.rank(), why); }, "why"_a,
          nb::call_guard<nb::gil_scoped_release>());
  m.def("thread_bootstraps", &host::thread_bootstraps, "size"_a);
  m.def(
      "environment_bootstrap",
      [](std::optional<double> limit) {
        return connected([until = limit ? milliseconds_of(*limit) : host::default_bootstrap_limit()] {
          return host::environment_bootstrap(until);
        });
      },
      "limit"_a = nb::none());
  m.def("launched_by_environment", &host::launched_by_environment);
  m.def(
      "all_gather_bootstrap",
      [](int rank, int size, const nb::callable& gather, std::optional<double> limit) {
        return bootstrap_of(rank, size, gather, limit ? milliseconds_of(*limit) : host::default_bootstrap_limit());
      },
      "rank"_a, "size"_a, "all_gather"_a, "limit"_a = nb::none());
  m.def(
      "tcp_bootstrap",
      [](const std::string& id, int rank, int size, std::optional<double> limit) {
        return connected([=, until = limit ? milliseconds_of(*limit) : host::default_bootstrap_limit()] {
          return host::tcp_bootstrap(host::unique_id::parse(id), rank, size, until);
        });
      },
      "id"_a, "rank"_a, "size"_a, "limit"_a = nb::none());
  m.def(
      "create_unique_id",
      [](const std::string& host, int port) {
        if (port < 0 || port > 65535) throw host::invalid_argument("unique_id: a port is 0 to 65535");
        return host::unique_id::create(host, static_cast<std::uint16_t>(port)).to_string();
      },
      "host"_a = "127.0.0.1", "port"_a = 0);
  m.def(
      "wanted_ranks", [](int ranks) { return host::detail::wanted_ranks(host::detail::process_variables(), ranks); },
      "ranks"_a);
  m.def("device_count", [] { return host::detail::current_backend().device_count(); });
  m.def(
      "provide_devices", [](int count) { host::detail::current_backend().provide_devices(count); }, "count"_a);

  nb::class_<communicator>(
      m, "Communicator", nb::is_weak_referenceable(), nb::dynamic_attr(),
      "Ranks that share memory and run kernels together, as `connect` and `run_ranks` make it. A context "
      "manager: left by an exception, it tells the other ranks why. Methods called *collective* are "
      "called by all ranks, in the same order.")
      .def(
          "__init__",
          [](communicator* self, const std::shared_ptr<host::bootstrap>& ranks, std::optional<double> limit,
             std::optional<double> kernel_timeout, int device, int lsa_size, bool check_launch) {
            auto state = std::make_shared<rank_state>();
            state->ranks = ranks;
            const host::communicator_options options =
                options_of(limit, kernel_timeout, device, lsa_size, check_launch);
            without_lock(state.get(), [&] { state->make(ranks, options); });
            new (self) communicator(std::move(state));
          },
          "bootstrap"_a, nb::kw_only(), "limit"_a = nb::none(), "kernel_timeout"_a = nb::none(), "device"_a = -1,
          "lsa_size"_a = 0, "check_launch"_a = false)
      .def_ro("rank", &communicator::rank, "This process's or thread's, from 0.")
      .def_ro("size", &communicator::size, "Number of ranks.")
      .def_ro("device", &communicator::device, "The rank's GPU, by its number in this process.")
      .def_prop_ro(
          "closed", [](const communicator& c) { return !c.state; }, "Whether it has been closed.")
      .def_prop_ro(
          "world", [](const communicator& c) { return c.open("world").world(); }, "All ranks.")
      .def_prop_ro(
          "lsa", [](const communicator& c) { return c.open("lsa").lsa(); },
          "The ranks whose memory this one's kernels load and store (LSA).")
      .def_prop_ro(
          "rail", [](const communicator& c) { return c.open("rail").rail(); },
          "The ranks with this one's place in their LSA teams.")
      .def_prop_ro(
          "lsa_ranks", [](const communicator& c) { return c.open("lsa_ranks").lsa_ranks(); },
          "The members of the LSA team, as ranks of this communicator.")
      .def_prop_ro(
          "properties", [](const communicator& c) { return dict_of(c.open("properties").properties()); },
          nb::for_getter(nb::sig("def properties(self) -> dict[str, typing.Any]")),
          "What ranks and devices can do: `Capability` by name, and the device's name.")
      .def_prop_ro(
          "aborted", [](const communicator& c) { return c.open("aborted").aborted(); },
          "Whether `abort` has been called, or a rank has ended.")
      .def(
          "barrier",
          [](communicator& c) {
            host::communicator& comm = c.open("barrier");
            without_lock(c.state.get(), [&] { comm.barrier(); });
          },
          "Waits for all ranks, on the host alone: kernels may still run. *Collective*.")
      .def(
          "all_gather",
          [](communicator& c, const nb::bytes& mine) {
            host::communicator& comm = c.open("all_gather");
            std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(comm.size()));
            const auto* const data = static_cast<const std::byte*>(mine.data());
            without_lock(c.state.get(), [&] { comm.all_gather(std::span(data, mine.size()), std::span(all)); });
            nb::list result;
            for (int i = 0; i < comm.size(); ++i)
              result.append(nb::bytes(all.data() + static_cast<std::size_t>(i) * mine.size(), mine.size()));
            return result;
          },
          "mine"_a, nb::sig("def all_gather(self, mine: bytes) -> list[bytes]"),
          "The bytes of all ranks, of which each has as many. *Collective*.")
      .def(
          "check",
          [](communicator& c) {
            host::communicator& comm = c.open("check");
            without_lock(c.state.get(), [&] { comm.check(); });
          },
          "Raises what went wrong in kernels since the last time, or on another rank.")
      .def(
          "abort", [](communicator& c) { c.open("abort").abort(); }, nb::call_guard<nb::gil_scoped_release>(),
          "Ends the waits of this rank's kernels and of all ranks on the host. From any thread.")
      .def("split", &split, "color"_a, "key"_a = 0,
           "A communicator of the ranks with the same color, ordered by key and rank; a negative color takes no part. "
           "*Collective*.")
      .def("close", &communicator::close, "Ends it here. What was made of it stays as long as it is used.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Communicator"))
      .def(
          "__exit__",
          [](communicator& c, nb::handle, nb::handle value, nb::handle) {
            if (!value.is_none()) fail(c, text_of(value));
            c.close();
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "synchronize",
          [](communicator& c, nb::object stream) {
            host::communicator& comm = c.open("synchronize");
            const std::uintptr_t of_stream = stream.is_none() ? 0 : stream_of(stream);
            without_lock(c.state.get(), [&] {
              python::synchronize(comm.device(), stream.is_none() ? nullptr : &of_stream);
              if (stream.is_none()) c.state->idle();
            });
          },
          "stream"_a = nb::none(), "Waits for the device, or for a stream of it.")
      .def("_fail", &fail, "reason"_a)
      .def("_finish", &finish)
      .def(
          "_interrupt",
          [](communicator& c, const std::string& why) {
            if (c.state) c.state->interrupt(why);
          },
          "why"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("_follows_another",
           [](communicator& c) { return c.state && host::detail::ended_rank::follows_another(*c.state->comm); });
}

}  // namespace devcomm::python
