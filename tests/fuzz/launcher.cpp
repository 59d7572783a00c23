/// What launchers and users set in the environment.
#include "fuzz.hpp"

#include <bootstrap/launcher.hpp>
#include <bootstrap/launcher_secret.hpp>
#include <bootstrap/ports.hpp>
#include <bootstrap/tcp/socket.hpp>
#include <diagnostics/watchdog_settings.hpp>
#include <rank/settings.hpp>

#include <algorithm>

using namespace devcomm::host;
using namespace devcomm_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto all = read_variables(text_of(data, size));
  const detail::environment variables = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
  takes([&] {
    const auto process = detail::read_launcher(variables);
    if (!process) return;
    require(process->size >= 1 && process->rank >= 0 && process->rank < process->size, "a rank lies within its job");
    require(process->local_rank >= 0 && process->local_rank < process->local_size, "a local rank lies within its host");
    const detail::endpoint root = detail::parse_endpoint(process->root, "root");
    require(root.port != 0 && detail::host_problem(root.host).empty(), "the root is an address");
    const auto no_store = [](const detail::endpoint& store) {
      require(store.port != 0 && detail::host_problem(store.host).empty(), "the store is at an address");
      return detail::user_key{};
    };
    takes([&] { static_cast<void>(detail::choose_secret(variables, *process, no_store)); });
  });
  takes([&] {
    const communicator_options options = detail::apply_environment({}, variables);
    require(options.lsa_size >= 0 && options.kernel_timeout.count() > 0 && options.limit.count() > 0,
            "options make sense");
  });
  takes([&] {
    const auto ports = detail::given_ports(variables);
    require(!ports || (ports->first > 0 && ports->first <= ports->last), "a range of ports has one");
  });
  takes([&] { static_cast<void>(detail::wanted_handle(variables)); });
  takes([&] { require(detail::wanted_ranks(variables, 1) >= 1, "there is a rank"); });
  takes([&] { static_cast<void>(detail::watchdog_options_from(variables)); });
  takes([&] { static_cast<void>(detail::multicast_forbidden(variables)); });
  takes([&] { static_cast<void>(detail::ll128_forbidden(variables)); });
  if (const auto limit = variables("DEVCOMM_BOOTSTRAP_TIMEOUT")) {
    ::setenv("DEVCOMM_BOOTSTRAP_TIMEOUT", limit->c_str(), 1);
    takes([&] { require(default_bootstrap_limit().count() > 0, "a limit is above 0"); });
    ::unsetenv("DEVCOMM_BOOTSTRAP_TIMEOUT");
  }
  return 0;
}
