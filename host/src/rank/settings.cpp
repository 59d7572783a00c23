#include "rank/settings.hpp"

#include <devcomm/host/error.hpp>

#include "util/cpu_list.hpp"

#include <chrono>

namespace devcomm::host::detail {
namespace {

constexpr int max_ranks = 1 << 20;
constexpr int max_threads = 1024;  // ranks of one process
constexpr double max_seconds = 1e9;

bool is_positive_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos && text.find_first_not_of('0') != std::string::npos;
}

}  // namespace

communicator_options apply_environment(communicator_options options, const environment& variables) {
  if (const auto size = integer_variable(variables, "DEVCOMM_LSA_SIZE", 1, max_ranks, "a number of ranks from 1")) {
    options.lsa_size = *size;
  }
  if (const auto limit = seconds_variable(variables, "DEVCOMM_TIMEOUT", {.most = max_seconds},
                                          "a number of seconds above 0 and up to 1000000000")) {
    options.kernel_timeout = *limit;
  }
  if (const auto check = flag_variable(variables, "DEVCOMM_CHECK_LAUNCH")) options.check_launch = *check;
  // Those of GIN are looked at here, too: they are wrong whether or not this program makes contexts.
  static_cast<void>(wanted_provider(variables));
  static_cast<void>(wanted_card(variables));
  static_cast<void>(wanted_payload(variables));
  static_cast<void>(wanted_proxies(variables));
  static_cast<void>(multicast_forbidden(variables));
  static_cast<void>(ll128_forbidden(variables));
  if (options.lsa_size < 0) {
    throw invalid_argument("lsa_size is " + std::to_string(options.lsa_size) +
                           "; give 0 (as many as can reach each other) or the largest number of ranks");
  }
  if (options.kernel_timeout.count() <= 0 || options.kernel_timeout > std::chrono::duration<double>(max_seconds)) {
    throw invalid_argument("kernel_timeout is " + std::to_string(options.kernel_timeout.count()) +
                           " ms; give a time above 0 and up to 1000000000 s");
  }
  if (options.limit.count() <= 0) {
    throw invalid_argument("limit is " + std::to_string(options.limit.count()) + " ms; give a time above 0");
  }
  return options;
}

handle_kind wanted_handle(const environment& variables) {
  const auto text = variables("DEVCOMM_MEMORY_HANDLE");
  if (!text) return handle_kind::none;
  std::string expected;
  for (const handle_traits& each : handle_kinds) {
    if (*text == each.variable) return each.kind;
    expected += (expected.empty() ? "\"" : " or \"") + std::string(each.variable) + "\"";
  }
  reject_variable("DEVCOMM_MEMORY_HANDLE", *text, expected);
}

int wanted_ranks(const environment& variables, int otherwise) {
  const int count = integer_variable(variables, "DEVCOMM_RANKS", 1, max_threads, "a number of ranks from 1 to 1024")
                        .value_or(otherwise);
  if (count < 0 || count > max_threads) {
    throw invalid_argument("run_ranks: ranks is " + std::to_string(count) +
                           "; give 0 (one a device) or up to 1024, which are threads of this process; for more ranks, "
                           "start processes with mpirun, srun or torchrun");
  }
  return count;
}

std::string multicast_forbidden(const environment& variables) {
  const std::optional<bool> enabled = flag_variable(variables, "DEVCOMM_NVLS_ENABLE");
  if (enabled && !*enabled) return "DEVCOMM_NVLS_ENABLE is 0";
  const auto text = variables("NCCL_NVLS_ENABLE");
  if (!text || is_positive_number(*text)) return {};
  if (*text == "0") return "NCCL_NVLS_ENABLE is 0";
  return "NCCL_NVLS_ENABLE is \"" + *text + "\", which is taken for 0";
}

std::optional<std::string> nvlink_domain(const environment& variables) {
  auto text = variables("DEVCOMM_NVLINK_DOMAIN");
  if (text && text->empty()) {
    reject_variable("DEVCOMM_NVLINK_DOMAIN", *text, "a name, the same on all hosts of the NVLink domain, or unset it");
  }
  return text;
}

std::optional<std::string> wanted_provider(const environment& variables) {
  auto text = variables("DEVCOMM_GIN_PROVIDER");
  if (text && text->empty()) {
    reject_variable("DEVCOMM_GIN_PROVIDER", *text, "the name of a provider of libfabric, such as tcp;ofi_rxm or shm");
  }
  return text;
}

std::string wanted_card(const environment& variables) {
  const auto text = variables("DEVCOMM_GIN_CARD");
  if (text && text->empty()) {
    reject_variable("DEVCOMM_GIN_CARD", *text, "a network card as libfabric names its domain, such as mlx5_0 or eth0");
  }
  return text.value_or("");
}

std::optional<std::string> wanted_payload(const environment& variables) {
  auto text = variables("DEVCOMM_GIN_PAYLOAD");
  if (text && *text != "direct" && *text != "staged") {
    reject_variable("DEVCOMM_GIN_PAYLOAD", *text, "\"direct\" or \"staged\"");
  }
  return text;
}

std::optional<std::uint32_t> wanted_proxies(const environment& variables) {
  constexpr int most = 64;
  const auto wanted = integer_variable(variables, "DEVCOMM_GIN_PROXIES", 1, most, "a number of threads from 1 to 64");
  return wanted ? std::optional(static_cast<std::uint32_t>(*wanted)) : std::nullopt;
}

std::vector<int> wanted_cpus(const environment& variables, std::uint64_t pci) {
  constexpr const char* name = "DEVCOMM_GIN_CPUS";
  const auto text = variables(name);
  if (!text) return {};
  std::vector<int> wanted;
  if (*text == "device") {
    wanted = cpus_near(pci);
    if (wanted.empty())
      reject_variable(name, *text, "a list of processors (0-3,8), as the system lists none near the device");
  } else if (const auto listed = parse_cpu_list(*text)) {
    wanted = *listed;
  } else {
    reject_variable(name, *text, "a list of processors (0-3,8), or \"device\" for those near the rank's device");
  }
  std::vector<int> usable = usable_cpus(wanted);
  if (usable.empty()) reject_variable(name, *text, "processors on which this process may run");
  return usable;
}

std::string ll128_forbidden(const environment& variables) {
  const std::optional<bool> enabled = flag_variable(variables, "DEVCOMM_LL128_ENABLE");
  return enabled && !*enabled ? "DEVCOMM_LL128_ENABLE is 0" : std::string();
}

}  // namespace devcomm::host::detail
