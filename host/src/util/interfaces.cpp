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
#include <optional>

namespace devcomm::host::detail {
namespace {

/// An address as it is written, in the way of IPv6; none where `text` is a name.
std::optional<in6_addr> address_of(std::string_view text) {
  const std::string whole(text.substr(0, text.find('%')));  // without the interface
  in6_addr found{};
  if (::inet_pton(AF_INET6, whole.c_str(), &found) == 1) return found;
  in_addr four{};
  if (::inet_aton(whole.c_str(), &four) == 0) return {};  // which takes the short forms that are looked up, as 127.1
  found = {};
  found.s6_addr[10] = found.s6_addr[11] = 0xff;
  std::memcpy(&found.s6_addr[12], &four, sizeof four);
  return found;
}

bool is_of_this_host(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

bool is_of_link(const in6_addr& address) {
  return IN6_IS_ADDR_LINKLOCAL(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 169 && address.s6_addr[13] == 254);
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::optional<in6_addr> address = address_of(host);
  return address ? is_of_this_host(*address) : host == "localhost";
}

bool is_local_only(std::string_view host) {
  const std::optional<in6_addr> address = address_of(host);
  return is_loopback(host) || (address && is_of_link(*address));
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
