# Finds libfabric for tests and benchmarks: its headers, from which stand-ins are made, and with them the library. devcomm
# itself needs neither to be built (host/src/transport/libfabric_abi.hpp).
#
# DEVCOMM_HAVE_LIBFABRIC          they are there, and new enough
# DEVCOMM_LIBFABRIC_INCLUDE_DIR   where

set(DEVCOMM_HAVE_LIBFABRIC OFF)
set(oldest 1.17)
find_path(DEVCOMM_LIBFABRIC_INCLUDE_DIR rdma/fabric.h)
mark_as_advanced(DEVCOMM_LIBFABRIC_INCLUDE_DIR)
set(found "not found")
if(EXISTS "${DEVCOMM_LIBFABRIC_INCLUDE_DIR}/rdma/fabric.h")  # the folder may be of an earlier configuration
  file(STRINGS "${DEVCOMM_LIBFABRIC_INCLUDE_DIR}/rdma/fabric.h" lines REGEX "define FI_(MAJOR|MINOR)_VERSION ")
  string(REGEX REPLACE ".*MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+).*" "\\1.\\2" found "${lines}")
  if(found VERSION_GREATER_EQUAL oldest)
    set(DEVCOMM_HAVE_LIBFABRIC ON)
  endif()
endif()
if(DEVCOMM_HAVE_LIBFABRIC)
  message(STATUS "devcomm: libfabric ${found} headers: GIN between processes is tested")
else()
  message(STATUS "devcomm: libfabric's headers, ${oldest} or newer: ${found}: tests of GIN between processes are left "
    "out (Debian and Ubuntu: install libfabric-dev)")
endif()
