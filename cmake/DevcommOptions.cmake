# Every option of the build. Defaults that cost time hold for a top-level build only, so that
# add_subdirectory and FetchContent users get the libraries and nothing else.

option(DEVCOMM_BUILD_SIMULATOR "Build the simulator (devcomm::simulator)" ON)
option(DEVCOMM_BUILD_TESTS "Build the tests; needs Catch2 3.4 or newer" ${PROJECT_IS_TOP_LEVEL})
option(DEVCOMM_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(DEVCOMM_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(DEVCOMM_BUILD_PYTHON "Build the Python package's modules; python/pyproject.toml sets it" OFF)
set(DEVCOMM_PYTHON_DIR "${CMAKE_CURRENT_SOURCE_DIR}/python" CACHE PATH "Folder of the Python package")
mark_as_advanced(DEVCOMM_PYTHON_DIR)
option(DEVCOMM_BUILD_MPI "Build devcomm::mpi; needs an MPI library" OFF)
option(DEVCOMM_INSTALL "Define install rules" ${PROJECT_IS_TOP_LEVEL})
# Off except in the presets of CI: a compiler that the project never saw must not stop a user's build.
option(DEVCOMM_WARNINGS_AS_ERRORS "Treat warnings in devcomm's own sources as errors" OFF)

set(DEVCOMM_ENABLE_CUDA AUTO CACHE STRING
  "Build GPU parts: AUTO (when a CUDA toolkit is found), ON (fail without one) or OFF")
set_property(CACHE DEVCOMM_ENABLE_CUDA PROPERTY STRINGS AUTO ON OFF)

# Many kernels in many shapes take long to compile: CI, which cannot run them, makes no programs of them.
option(DEVCOMM_TESTS_AS_PTX "Make PTX for sm_90 of GPU tests and benchmarks, and no programs")
mark_as_advanced(DEVCOMM_TESTS_AS_PTX)

# What depends on the generation is in the seam, which a few examples cover for all: CI compiles the others for one.
set(DEVCOMM_EXAMPLES_FOR "" CACHE STRING
  "CUDA architectures of examples, but of those that stand for all; empty: those of CMAKE_CUDA_ARCHITECTURES")
mark_as_advanced(DEVCOMM_EXAMPLES_FOR)

set(DEVCOMM_SANITIZE "" CACHE STRING
  "Sanitizer for host code and simulated kernels: empty, thread, address (with undefined), or race (kernels only)")
set_property(CACHE DEVCOMM_SANITIZE PROPERTY STRINGS "" thread address race)
if(NOT DEVCOMM_SANITIZE MATCHES "^(thread|address|race)?$")
  message(FATAL_ERROR
    "DEVCOMM_SANITIZE is '${DEVCOMM_SANITIZE}'; it must be empty, 'thread', 'address' or 'race'")
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
endif()

include(GNUInstallDirs)

# Adds a directory that has a CMakeLists.txt.
macro(devcomm_add_room directory)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt")
    add_subdirectory(${directory})
  endif()
endmacro()
