#include "device/backend.hpp"

#include <string_view>

namespace devcomm::host {
namespace {

std::string line(std::string_view name, const capability& c) {
  std::string text(name);
  text += c.available ? ": yes" : ": no";
  if (!c.reason.empty()) text += " (" + c.reason + ")";
  return text + "\n";
}

}  // namespace

std::string to_string(const properties& p) {
  std::string handles;
  for (const detail::handle_traits& each : detail::handle_kinds) {
    handles += line(std::string(each.name) + " handles", p.*each.reported);
  }
  return "backend: " + p.backend + "\ndevice: " + p.device_name + ", " + std::to_string(p.multiprocessors) +
         " multiprocessors\n" + line("LSA", p.lsa) + line("rails", p.rail) +
         line("NVLink domain across hosts", p.nvlink_domain) + line("LL128", p.ll128) + handles +
         line("CUDA IPC", p.cuda_ipc) + line("multicast", p.multicast) + line("network", p.network) +
         line("pinned host memory", p.pinned_host) + line("timing", p.timing) + line("GPU of its own", p.own_device);
}

}  // namespace devcomm::host
