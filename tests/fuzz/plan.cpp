/// Tables of measured times, and what is chosen from them.
#include "fuzz.hpp"

#include <devcomm/host/all_reduce_plan.hpp>

using namespace devcomm::host;
using namespace devcomm_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  takes([&] {
    const all_reduce_times times = all_reduce_times::parse(std::string(text_of(data, size)), "table");
    require(!times.pruned().rows().empty(), "a table keeps its fastest row");
    for (const std::uint64_t bytes : {std::uint64_t{16}, std::uint64_t{1} << 20, std::uint64_t{1} << 40}) {
      takes([&] {
        all_reduce_request request;
        request.bytes = bytes;
        const all_reduce_plan plan = times.choose(request);
        require(plan.blocks >= 1 && plan.threads >= 1, "a plan has threads");
      });
    }
  });
  return 0;
}
