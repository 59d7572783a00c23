/// \file compile.hpp
/// Compiles device code by NVRTC.
#pragma once

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

}  // namespace
