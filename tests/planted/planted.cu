/// Runs one kernel with its mistake, or without:
///
///     planted NAME [right]
#include "planted/gin_bugs.cuh"
#include "planted/memory_bugs.cuh"
#include "planted/multimem_bugs.cuh"
#include "planted/order_bugs.cuh"
#include "planted/wait_bugs.cuh"

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  std::vector<planted::bug> bugs = planted::order_bugs();
  for (const auto& more : {planted::wait_bugs(), planted::memory_bugs(), planted::multimem_bugs(), planted::gin_bugs()})
    bugs.insert(bugs.end(), more.begin(), more.end());
  const bool right = argc == 3 && std::strcmp(argv[2], "right") == 0;
  for (const planted::bug& bug : bugs) {
    if (argc < 2 || argc > (right ? 3 : 2) || std::strcmp(argv[1], bug.name) != 0) continue;
    try {
      test::on_ranks(3, [&](devcomm::host::communicator& comm) {
        const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(planted::blocks));
        const auto memory = comm.allocate(2 * planted::words * sizeof(std::uint32_t), "board");
        bug.run({comm, device, memory.pointer<std::uint32_t>(), !right});
        comm.barrier();
      });
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "error: %s\n", error.what());
      return 1;
    }
  }
  std::fprintf(stderr, "usage: %s NAME [right], NAME one of:\n", argv[0]);
  for (const planted::bug& bug : bugs) std::fprintf(stderr, "  %s\n", bug.name);
  return 2;
}
