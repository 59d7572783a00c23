# Finds the CUDA toolkit and decides which GPU parts are built.
#
# DEVCOMM_HAVE_CUDA    the toolkit's headers are there: devcomm::host is built
# DEVCOMM_HAVE_NVCC    the CUDA language is enabled: GPU programs are built
# DEVCOMM_CUDA_INCLUDE_DIR, where given, has the toolkit's headers without a toolkit: enough for devcomm::host.
# CUDAToolkit_INCLUDE_DIRS, CUDA::cudart_static, CUDA::nvrtc, ... as of find_package(CUDAToolkit)

set(DEVCOMM_HAVE_CUDA OFF)
set(DEVCOMM_HAVE_NVCC OFF)

if(DEVCOMM_ENABLE_CUDA AND DEVCOMM_CUDA_INCLUDE_DIR)
  if(NOT EXISTS "${DEVCOMM_CUDA_INCLUDE_DIR}/cuda.h")
    message(FATAL_ERROR "DEVCOMM_CUDA_INCLUDE_DIR is ${DEVCOMM_CUDA_INCLUDE_DIR}, which has no cuda.h")
  endif()
  set(CUDAToolkit_INCLUDE_DIRS "${DEVCOMM_CUDA_INCLUDE_DIR}")
  set(DEVCOMM_HAVE_CUDA ON)
elseif(DEVCOMM_ENABLE_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(DEVCOMM_HAVE_CUDA ON)
  elseif(NOT DEVCOMM_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR
      "DEVCOMM_ENABLE_CUDA is ON and no CUDA toolkit was found. Put nvcc on PATH, or pass "
      "-DCUDAToolkit_ROOT=<folder>, or pass -DDEVCOMM_ENABLE_CUDA=OFF for the simulator only")
  endif()
endif()

# Programs are compiled for every generation that the project is tested on, with PTX of the newest.
# CUDA 13 has no default that old versions of CMake know, so this comes before enable_language.
if(CUDAToolkit_FOUND AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  if(PROJECT_IS_TOP_LEVEL)
    if(CUDAToolkit_VERSION VERSION_LESS 12.8)
      set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "CUDA architectures")
    else()
      set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "CUDA architectures")
    endif()
  endif()
endif()

if(CUDAToolkit_FOUND AND (DEVCOMM_BUILD_TESTS OR DEVCOMM_BUILD_EXAMPLES OR DEVCOMM_BUILD_BENCHMARKS))
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}" CACHE FILEPATH "CUDA compiler")
  endif()
  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    enable_language(CUDA)
    set(DEVCOMM_HAVE_NVCC ON)
  elseif(NOT DEVCOMM_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "The CUDA toolkit in ${CUDAToolkit_BIN_DIR}/.. has no nvcc; install it, or pass "
      "-DDEVCOMM_ENABLE_CUDA=OFF for the simulator only")
  endif()
endif()

if(DEVCOMM_HAVE_NVCC)
  message(STATUS "devcomm: CUDA ${CUDAToolkit_VERSION}, GPU programs for ${CMAKE_CUDA_ARCHITECTURES}")
  if(DEVCOMM_TESTS_AS_PTX)
    message(STATUS "devcomm: DEVCOMM_TESTS_AS_PTX is ON: GPU tests and benchmarks become PTX and are left out")
  endif()
elseif(DEVCOMM_HAVE_CUDA)
  message(STATUS "devcomm: CUDA's headers (${CUDAToolkit_INCLUDE_DIRS}): devcomm::host is built, no GPU programs")
elseif(DEVCOMM_ENABLE_CUDA)
  message(STATUS "devcomm: no CUDA toolkit found: simulator only; devcomm::host, GPU programs and "
    "GPU tests are left out")
else()
  message(STATUS "devcomm: DEVCOMM_ENABLE_CUDA is OFF: simulator only; devcomm::host, GPU programs "
    "and GPU tests are left out")
endif()
