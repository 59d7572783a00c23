#include "util/interfaces.hpp"

#include <devcomm/host/error.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace devcomm::host::detail {

bool is_local_only(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.") || address.starts_with("169.254.") ||
         address.starts_with("fe80:");
}

std::vector<interface_address> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error(std::string("getifaddrs failed: ") + std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<interface_address> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = each->ifa_addr->sa_family;
    const char* written = nullptr;
    if (family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      written = ::inet_ntop(family, &address.sin_addr, text.data(), text.size());
    } else if (family == AF_INET6) {
      sockaddr_in6 address{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      written = ::inet_ntop(family, &address.sin6_addr, text.data(), text.size());
    }
    if (written != nullptr) found.push_back({each->ifa_name, written, family == AF_INET6});
  }
  return found;
}

}  // namespace devcomm::host::detail
