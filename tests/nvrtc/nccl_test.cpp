// Kernels by NCCL's names under NVRTC; and what stops compilation with a sentence.
#include "nvrtc/compile.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace {

compilation compile_nccl(const std::string& kernel) {
  return compile("#include <nccl_device.h>\n" + kernel, {"-I" NCCL_INCLUDE_DIR});
}

void refuses(const std::string& body, const std::string& said) {
  const compilation result = compile_nccl("__global__ void f(ncclWindow_t w, ncclDevComm comm) { " + body + " }");
  INFO(result.log);
  REQUIRE_FALSE(result.succeeded);
  CHECK(result.log.find(said) != std::string::npos);
}

}  // namespace

TEST_CASE("NVRTC compiles a kernel of each room") {
  const compilation result = compile_nccl(R"(
extern "C" __global__ void all(ncclWindow_t w, ncclDevComm comm, float* out, ncclLLA2AHandle slots) {
  ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> lsa(cta, comm, ncclTeamTagLsa(), blockIdx.x);
  lsa.sync(cta, cuda::memory_order_acq_rel);
  ncclLsaReduceSum<float>(cta, w, 0, out, 100, comm);
  ncclMultimemReduceSum<float>(cta, w, 0, out, 100, comm.lsaMultimem);
  ncclLLA2ASession<ncclCoopCta> small(cta, comm, ncclTeamLsa(comm), slots, blockIdx.x, 32);
  small.bcast(0, out[0]);
  ncclGin gin(comm, 0);
  gin.put(ncclTeamWorld(comm), 0, w, 0, w, 0, 16, ncclGin_StrongSignalInc{0});
  ncclBarrierSession<ncclCoopCta> world(cta, ncclTeamTagWorld(), gin, blockIdx.x);
  world.sync(cta, cuda::memory_order_release);
}
)");
  INFO(result.log);
  REQUIRE(result.succeeded);
  CHECK(result.ptx.find("multimem.ld_reduce") != std::string::npos);
}

TEST_CASE("what devcomm does not have stops compilation with a sentence") {
  refuses("ncclGin(comm, 0).signal(ncclTeamWorld(comm), 0, ncclGin_StrongVASignalInc{w, 0});",
          "devcomm has no signals at an address of a window");
  refuses("ncclGin(comm, 0).signal(ncclTeamWorld(comm), 0, ncclGin_WeakVASignalAdd{{w, 0, 1}});",
          "devcomm has no signals at an address of a window");
  refuses("ncclGin(comm, 0).signal(ncclTeamWorld(comm), 0, ncclGin_VASignalInc{{w, 0}});",
          "devcomm has no signals at an address of a window");
  refuses("ncclCft cft(comm);", "devcomm has no CFT");
  refuses("ncclMultimemReduceSum<char>(ncclCoopCta(), w, 0, static_cast<char*>(nullptr), 4, comm.lsaMultimem);",
          "multimem reduces float, double, half");
}
