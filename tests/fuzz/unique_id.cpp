/// A job's id as text, and addresses.
#include "fuzz.hpp"

#include <bootstrap/tcp/socket.hpp>
#include <devcomm/host/unique_id.hpp>

using namespace devcomm::host;
using namespace devcomm_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  takes([&] {
    const unique_id id = unique_id::parse(text);
    const std::string again = id.to_string();
    require(unique_id::parse(again).to_string() == again, "an id survives the trip through text");
  });
  takes([&] {
    const detail::endpoint where = detail::parse_endpoint(text, "the address");
    const detail::endpoint again = detail::parse_endpoint(detail::endpoint_text(where.host, where.port), "again");
    require(again.host == where.host && again.port == where.port, "an address survives the trip through text");
  });
  return 0;
}
