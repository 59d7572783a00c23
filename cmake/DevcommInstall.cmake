# Install and export: find_package(devcomm) gives devcomm::devcomm, and, as far as they were built,
# devcomm::host_core, devcomm::host, devcomm::simulator with devcomm_simulate() and
# devcomm_add_kernel_test(), and devcomm::mpi.

include(CMakePackageConfigHelpers)

set(DEVCOMM_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/devcomm")

set_target_properties(devcomm PROPERTIES EXPORT_NAME devcomm)
set(installed_targets devcomm)
foreach(part IN ITEMS host_core host simulator simulator_race nccl nccl_cuda nccl_simulator
    nccl_kernels nccl_kernels_race)
  if(TARGET devcomm_${part})
    set_target_properties(devcomm_${part} PROPERTIES EXPORT_NAME ${part})
    list(APPEND installed_targets devcomm_${part})
  endif()
endforeach()

install(TARGETS ${installed_targets} EXPORT devcomm_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT devcomm_targets
  NAMESPACE devcomm:: FILE devcomm_targets.cmake DESTINATION "${DEVCOMM_PACKAGE_DIR}")

# Apart, so that only who asks for the component mpi needs an MPI library.
if(TARGET devcomm_mpi)
  set_target_properties(devcomm_mpi PROPERTIES EXPORT_NAME mpi)
  install(TARGETS devcomm_mpi EXPORT devcomm_mpi_targets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT devcomm_mpi_targets
    NAMESPACE devcomm:: FILE devcomm_mpi_targets.cmake DESTINATION "${DEVCOMM_PACKAGE_DIR}")
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
if(TARGET devcomm_host_core)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/host/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp")
endif()
# Apart, as they take the place of NCCL's own.
if(TARGET devcomm_nccl)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/compat/nccl/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/devcomm/nccl")
endif()
if(TARGET devcomm_shrink)
  install(TARGETS devcomm_shrink RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(TARGET devcomm_simulator)
  # The shim shadows the CUDA toolkit's headers, so it lives apart and devcomm_simulate() adds it.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simulator/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh" PATTERN "*.h")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simulator/shim/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/devcomm/simulator/shim")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simulator/mpi/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/devcomm/simulator/mpi")
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/devcomm-config.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/devcomm-config.cmake"
  INSTALL_DESTINATION "${DEVCOMM_PACKAGE_DIR}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/devcomm-config-version.cmake"
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/devcomm-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/devcomm-config-version.cmake"
  DESTINATION "${DEVCOMM_PACKAGE_DIR}")
if(TARGET devcomm_simulator)
  install(FILES
    "${PROJECT_SOURCE_DIR}/cmake/DevcommKernelTest.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/DevcommSimulate.cmake"
    DESTINATION "${DEVCOMM_PACKAGE_DIR}")
  install(PROGRAMS
    "${PROJECT_SOURCE_DIR}/cmake/devcomm_link_shared.sh"
    "${PROJECT_SOURCE_DIR}/cmake/devcomm_run_seeds.sh"
    "${PROJECT_SOURCE_DIR}/cmake/devcomm_translate.py"
    DESTINATION "${DEVCOMM_PACKAGE_DIR}")
  install(FILES
    "${PROJECT_SOURCE_DIR}/cmake/devcomm_ptx.py"
    "${PROJECT_SOURCE_DIR}/cmake/devcomm_tokens.py"
    "${PROJECT_SOURCE_DIR}/simulator/tools/devcomm_builder.py"
    "${PROJECT_SOURCE_DIR}/simulator/tools/devcomm_litmus.hpp"
    "${PROJECT_SOURCE_DIR}/simulator/tools/devcomm_ptx_model.py"
    "${PROJECT_SOURCE_DIR}/simulator/tools/explore_main.cpp"
    "${PROJECT_SOURCE_DIR}/simulator/tools/mpi_main.cpp"
    "${PROJECT_SOURCE_DIR}/simulator/tools/litmus_main.cu"
    DESTINATION "${DEVCOMM_PACKAGE_DIR}")
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/simulator/tools/devcomm_simulate.py" DESTINATION "${CMAKE_INSTALL_BINDIR}"
    RENAME devcomm-simulate)
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/simulator/tools/devcomm_litmus.py" DESTINATION "${CMAKE_INSTALL_BINDIR}"
    RENAME devcomm-litmus)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
