# Finds CUTLASS's headers, which devcomm/gemm/cutlass needs.
#
# DEVCOMM_CUTLASS_DIR    in the cache: a folder that has include/cutlass/cutlass.h; by default, where scripts/test.sh
#                        puts one
# DEVCOMM_HAVE_CUTLASS, and with it DEVCOMM_CUTLASS_INCLUDE and the target devcomm::cutlass: devcomm::devcomm and
#                        those headers

set(DEVCOMM_HAVE_CUTLASS OFF)
set(DEVCOMM_CUTLASS_DIR "" CACHE PATH "Folder of CUTLASS 4, with include/cutlass/cutlass.h")
set(cutlass "${DEVCOMM_CUTLASS_DIR}")
if(NOT cutlass)
  set(cutlass "${CMAKE_CURRENT_LIST_DIR}/../build/tools/cutlass/cutlass_library/source")
endif()
if(EXISTS "${cutlass}/include/cutlass/version.h")
  file(STRINGS "${cutlass}/include/cutlass/version.h" version REGEX "#define CUTLASS_MAJOR ")
  if(NOT version MATCHES " 4$")
    message(FATAL_ERROR "DEVCOMM_CUTLASS_DIR is ${cutlass}, which says '${version}': devcomm/gemm/cutlass needs CUTLASS 4")
  endif()
  set(DEVCOMM_HAVE_CUTLASS ON)
  get_filename_component(DEVCOMM_CUTLASS_INCLUDE "${cutlass}/include" ABSOLUTE)
  add_library(devcomm_cutlass INTERFACE)
  add_library(devcomm::cutlass ALIAS devcomm_cutlass)
  target_include_directories(devcomm_cutlass SYSTEM INTERFACE "${DEVCOMM_CUTLASS_INCLUDE}")
  target_compile_options(devcomm_cutlass INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  target_link_libraries(devcomm_cutlass INTERFACE devcomm::devcomm)
elseif(DEVCOMM_CUTLASS_DIR)
  message(FATAL_ERROR "DEVCOMM_CUTLASS_DIR is ${DEVCOMM_CUTLASS_DIR}, which has no include/cutlass/cutlass.h")
else()
  message(STATUS "devcomm: no CUTLASS: tests of devcomm/gemm/cutlass are left out; pass -DDEVCOMM_CUTLASS_DIR=<folder>, "
    "as of: pip download --no-deps nvidia-cutlass==4.2.0.0")
endif()
