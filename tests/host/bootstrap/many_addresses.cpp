#include "many_addresses.hpp"

#include <dlfcn.h>
#include <netdb.h>

#include <mutex>
#include <utility>

namespace {

std::mutex mutex;
std::vector<std::string> known;

using resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

resolver real_resolver() {
  static const auto real = reinterpret_cast<resolver>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real;
}

}  // namespace

// Takes the place of the C library's, whose lists of one address each it joins: they are freed one by one.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  const bool asked = host != nullptr && devcomm_test::host_with_addresses::name() == host &&
                     (hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0);
  if (!asked) return real_resolver()(host, service, hints, found);
  const std::lock_guard lock(mutex);
  *found = nullptr;
  addrinfo** end = found;
  for (const std::string& address : known) {
    if (const int problem = real_resolver()(address.c_str(), service, hints, end); problem != 0) return problem;
    while (*end != nullptr) end = &(*end)->ai_next;
  }
  return *found == nullptr ? EAI_NONAME : 0;
}

namespace devcomm_test {

host_with_addresses::host_with_addresses(std::vector<std::string> addresses) {
  const std::lock_guard lock(mutex);
  known = std::move(addresses);
}

host_with_addresses::~host_with_addresses() {
  const std::lock_guard lock(mutex);
  known.clear();
}

}  // namespace devcomm_test
