#include <nvrtc.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace {

struct compilation {
  bool succeeded;
  std::string log;
  std::string ptx;
};

compilation compile(const std::string& source, std::vector<std::string> extra = {}) {
  extra.insert(extra.end(),
               {"--gpu-architecture=compute_90", "-std=c++17", "-I" DEVCOMM_INCLUDE_DIR, "-I" CCCL_INCLUDE_DIR});
  std::vector<const char*> options;
  for (const std::string& option : extra) options.push_back(option.c_str());

  nvrtcProgram program{};
  REQUIRE(nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS);
  compilation result{};
  result.succeeded = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) == NVRTC_SUCCESS;
  std::size_t size = 0;
  REQUIRE(nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS);
  result.log.resize(size);
  REQUIRE(nvrtcGetProgramLog(program, result.log.data()) == NVRTC_SUCCESS);
  if (result.succeeded) {
    REQUIRE(nvrtcGetPTXSize(program, &size) == NVRTC_SUCCESS);
    result.ptx.resize(size);
    REQUIRE(nvrtcGetPTX(program, result.ptx.data()) == NVRTC_SUCCESS);
  }
  REQUIRE(nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
  return result;
}

const std::string barrier_kernel = R"(
#include <devcomm/devcomm.cuh>
extern "C" __global__ void meet(devcomm::device_comm comm, devcomm::sym_ptr<float> data) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync(devcomm::memory_order::acq_rel);
  *data.local() += *data.lsa(0);
}
)";

}  // namespace

TEST_CASE("NVRTC compiles a kernel that meets at a barrier") {
  const compilation result = compile(barrier_kernel);
  INFO(result.log);
  REQUIRE(result.succeeded);
  // The barrier's two ends, at the scope that spans GPUs.
  CHECK(result.ptx.find("st.release.sys") != std::string::npos);
  CHECK(result.ptx.find("ld.acquire.sys") != std::string::npos);
}

TEST_CASE("NVRTC compiles checked mode") {
  const compilation result = compile(barrier_kernel, {"-DDEVCOMM_CHECKED=1"});
  INFO(result.log);
  REQUIRE(result.succeeded);
  CHECK(result.ptx.find("barrier index is past") == std::string::npos);  // messages are stored as bytes
  CHECK(result.ptx.find("fail_assertion") != std::string::npos);
}

TEST_CASE("NVRTC refuses a mistake in the user's kernel") {
  const compilation result =
      compile("#include <devcomm/devcomm.cuh>\n__global__ void f() { devcomm::tile<3>::sync(); }");
  REQUIRE_FALSE(result.succeeded);
  CHECK(result.log.find("a tile is 1, 2, 4, 8, 16 or 32 lanes") != std::string::npos);
}
