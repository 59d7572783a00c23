/// \file many_addresses.hpp
/// A host name that stands for several addresses.
#pragma once

#include <string>
#include <vector>

namespace devcomm_test {

/// In programs that use it the resolver knows one name more, of an object that lives: it stands for `addresses`, in
/// this order. One object at a time.
class host_with_addresses {
 public:
  explicit host_with_addresses(std::vector<std::string> addresses);
  ~host_with_addresses();
  host_with_addresses(const host_with_addresses&) = delete;
  host_with_addresses& operator=(const host_with_addresses&) = delete;

  [[nodiscard]] static std::string name() { return "several-addresses.invalid"; }
};

}  // namespace devcomm_test
