// In place of libfabric.cpp, libfabric_calls.cpp and libfabric_choice.cpp where libfabric's headers were not found.
#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "transport/libfabric.hpp"

namespace devcomm::host::detail {

std::unique_ptr<fabric> open_libfabric(const endpoint_wish&) { throw not_supported(libfabric_support().reason); }

std::vector<std::string> usable_card_providers(endpoint_wish, std::string&) {
  throw not_supported(libfabric_support().reason);
}

}  // namespace devcomm::host::detail
