# Finds libfabric's headers, which GIN between processes needs. The library itself is loaded at run time.
#
# DEVCOMM_HAVE_LIBFABRIC          they are there, and new enough
# DEVCOMM_LIBFABRIC_INCLUDE_DIR   where

set(DEVCOMM_HAVE_LIBFABRIC OFF)
set(oldest 1.17)

if(DEVCOMM_ENABLE_LIBFABRIC)
  find_path(DEVCOMM_LIBFABRIC_INCLUDE_DIR rdma/fabric.h)
  mark_as_advanced(DEVCOMM_LIBFABRIC_INCLUDE_DIR)
  set(found "not found")
  if(DEVCOMM_LIBFABRIC_INCLUDE_DIR AND NOT EXISTS "${DEVCOMM_LIBFABRIC_INCLUDE_DIR}/rdma/fabric.h")
    # Of an earlier configuration, or given by hand.
    set(found "not found in DEVCOMM_LIBFABRIC_INCLUDE_DIR, which is ${DEVCOMM_LIBFABRIC_INCLUDE_DIR} (forget it with "
      "-UDEVCOMM_LIBFABRIC_INCLUDE_DIR)")
    string(CONCAT found ${found})
  elseif(DEVCOMM_LIBFABRIC_INCLUDE_DIR)
    file(STRINGS "${DEVCOMM_LIBFABRIC_INCLUDE_DIR}/rdma/fabric.h" lines REGEX "define FI_(MAJOR|MINOR)_VERSION ")
    string(REGEX REPLACE ".*MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+).*" "\\1.\\2" found "${lines}")
    if(found VERSION_GREATER_EQUAL oldest)
      set(DEVCOMM_HAVE_LIBFABRIC ON)
    endif()
  endif()
  if(DEVCOMM_HAVE_LIBFABRIC)
    message(STATUS "devcomm: libfabric ${found} headers: GIN reaches ranks of other processes")
  elseif(DEVCOMM_ENABLE_LIBFABRIC STREQUAL "AUTO")
    message(STATUS "devcomm: libfabric ${oldest} or newer: ${found}: GIN stays within a process (Debian and Ubuntu: "
      "install libfabric-dev)")
  else()
    message(FATAL_ERROR "DEVCOMM_ENABLE_LIBFABRIC is ON, and the headers of libfabric ${oldest} or newer were ${found}. "
      "Install them (Debian and Ubuntu: libfabric-dev), pass -DDEVCOMM_LIBFABRIC_INCLUDE_DIR=<folder>, or pass "
      "-DDEVCOMM_ENABLE_LIBFABRIC=OFF")
  endif()
else()
  message(STATUS "devcomm: DEVCOMM_ENABLE_LIBFABRIC is OFF: GIN stays within a process")
endif()
