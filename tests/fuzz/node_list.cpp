/// Slurm's lists of nodes and of tasks on each.
#include "fuzz.hpp"

#include <bootstrap/slurm.hpp>

using namespace devcomm::host;
using namespace devcomm_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  takes([&] { require(!detail::first_node(text, "LIST").empty(), "a node has a name"); });
  takes([&] { static_cast<void>(detail::single_node(text)); });
  takes([&] {
    const std::vector<int> tasks = detail::tasks_per_node(text, "TASKS");
    require(!tasks.empty(), "there is a node");
    for (const int count : tasks) require(count >= 1, "a node has a task");
  });
  return 0;
}
