/// Collectives by multimem of every type that PTX reduces, on a simulated switch and in software, against references.
#include "every_form.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <vector>

using namespace multimem_test;

TEST_CASE("multimem collectives are right for every type that PTX reduces") {
  for (const int ranks : {2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      const std::vector<std::uint64_t> every{0, 1, 37, 517};
      const std::vector<std::uint64_t> counts = comm.size() <= 4 ? every : std::vector<std::uint64_t>{0, 1, 261};
      check_type<float, sum>(comm, counts);
      check_type<double, sum>(comm, counts);
      check_type<__half, minimum>(comm, counts);
      check_type<__nv_bfloat16, maximum>(comm, counts);
      check_type<__nv_fp8_e4m3, sum>(comm, counts);
      check_type<__nv_fp8_e5m2, maximum>(comm, counts);
      check_type<std::uint32_t, sum>(comm, counts);
      check_type<std::int32_t, minimum>(comm, counts);
      check_type<std::uint64_t, bitwise_xor>(comm, counts);
      check_type<std::int64_t, maximum>(comm, counts);
    });
  }
}
