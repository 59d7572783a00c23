# Tests and examples.
#
# devcomm_add_kernel_program(<name> SOURCES <x.cu>... [LIBRARIES <target>...] [CATCH]
#                            [INCLUDES <folder>...] [DEFINITIONS <macro>[=<value>]...]
#                            [ARGS <argument>...] [LABELS <label>...] [TIMEOUT <seconds>]
#                            [SIM_ONLY | GPU_ONLY] [NO_TEST])
#   One kernel source, two programs, two tests:
#     <name>_sim  through devcomm_simulate(), label sim
#     <name>_gpu  with nvcc and devcomm::host, label gpu; reported as skipped without a GPU
#   A half whose toolchain is missing is left out. CATCH links Catch2's main. NO_TEST builds only.
#
# devcomm_add_host_test(<name> SOURCES <x.cpp>... [LIBRARIES <target>...] [LABELS <label>...]
#                       [ARGS <argument>...] [TIMEOUT <seconds>] [NO_CATCH] [IN_RACE_BUILD])
#   Plain C++ test, label host, linked with Catch2's main unless NO_CATCH. Builds for the race detector
#   leave it out unless IN_RACE_BUILD.
#
# devcomm_register_test(<test> COMMAND <target or program> [<argument>...] [LABELS <label>...]
#                       [TIMEOUT <seconds>] [GPU] [LONG])
#   A test of a program that exists already: a second set of arguments, or a script. LONG starts it before others.
#
# TIMEOUT is what the test takes at most on a slow but idle machine, 60 unless given; ctest stops it after that time
# multiplied by DEVCOMM_TEST_TIMEOUT_FACTOR.

set(DEVCOMM_GPU_TEST_LAUNCHER "${CMAKE_CURRENT_LIST_DIR}/run_gpu_test.sh")

if(DEVCOMM_BUILD_TESTS)
  find_package(Catch2 3.4 QUIET)
  if(NOT TARGET Catch2::Catch2WithMain)
    message(FATAL_ERROR "The tests need Catch2 3.4 or newer (Debian and Ubuntu: libcatch2-dev; Debian 12: "
      "from bookworm-backports; scripts/test.sh installs it), or pass -DDEVCOMM_BUILD_TESTS=OFF")
  endif()
endif()

# A limit means a hang and not a busy machine, so it is far above TIMEOUT; sanitizers slow programs down.
set(DEVCOMM_TEST_TIMEOUT_FACTOR 5)
if(DEVCOMM_SANITIZE STREQUAL "thread")
  set(DEVCOMM_TEST_TIMEOUT_FACTOR 15)
elseif(DEVCOMM_SANITIZE MATCHES "address|race")
  set(DEVCOMM_TEST_TIMEOUT_FACTOR 10)
endif()

set(DEVCOMM_SIMULATE_TESTS ON)  # tests/CMakeLists.txt has rooms of which another build does

# More takes longer to compile than it saves in running.
set(DEVCOMM_TEST_OPTIMIZE -O1)
if(DEVCOMM_SANITIZE MATCHES "address|thread")
  set(DEVCOMM_TEST_OPTIMIZE -O0)
endif()

function(devcomm_register_test test)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GPU;LONG" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_COMMAND)
    message(FATAL_ERROR "devcomm_register_test(${test}): COMMAND is missing")
  endif()
  if(arg_GPU AND DEVCOMM_GPU_AS_PTX)
    return()  # there is no program
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${DEVCOMM_TEST_TIMEOUT_FACTOR}")
  list(POP_FRONT arg_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  if(arg_GPU)
    set(program "${DEVCOMM_GPU_TEST_LAUNCHER}" ${program})
  endif()
  add_test(NAME ${test} COMMAND ${program} ${arg_COMMAND})
  set(environment
    "TSAN_OPTIONS=halt_on_error=0:exitcode=66:second_deadlock_stack=1:atexit_sleep_ms=0"
    "ASAN_OPTIONS=detect_stack_use_after_return=0:detect_leaks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    # No test uses NVLink multicast, neither does NCCL beside it: a failure there can take down GPUs for others.
    "NCCL_NVLS_ENABLE=0" "NVSHMEM_DISABLE_NVLS=1" "TORCH_SYMM_MEM_DISABLE_MULTICAST=1")
  set_tests_properties(${test} PROPERTIES
    TIMEOUT ${timeout} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
  if(arg_LONG)
    set_tests_properties(${test} PROPERTIES COST 1000)
  endif()
endfunction()

# Hands a limit on; the default holds where none was given.
macro(devcomm_pass_timeout)
  set(timeout)
  if(arg_TIMEOUT)
    set(timeout TIMEOUT ${arg_TIMEOUT})
  endif()
endmacro()

function(devcomm_add_kernel_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg
    "CATCH;SIM_ONLY;GPU_ONLY;NO_TEST" "TIMEOUT" "SOURCES;LIBRARIES;INCLUDES;DEFINITIONS;ARGS;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "devcomm_add_kernel_program(${name}): give SOURCES; unknown: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  devcomm_pass_timeout()
  set(libraries devcomm::devcomm ${arg_LIBRARIES})
  # Last: what Catch2 and this project both have (std::shared_ptr's counts) must be ours, which sanitizers see.
  set(catch)
  if(arg_CATCH)
    set(catch Catch2::Catch2WithMain)
  endif()

  if(NOT arg_GPU_ONLY AND TARGET devcomm::simulator AND DEVCOMM_SIMULATE_TESTS)
    add_executable(${name}_sim ${arg_SOURCES})
    devcomm_target_defaults(${name}_sim)
    target_include_directories(${name}_sim PRIVATE ${arg_INCLUDES})
    target_compile_definitions(${name}_sim PRIVATE ${arg_DEFINITIONS})
    set_target_properties(${name}_sim PROPERTIES UNITY_BUILD OFF)  # files of programs share names
    target_link_libraries(${name}_sim PRIVATE ${libraries})
    devcomm_simulate(${name}_sim)
    target_link_libraries(${name}_sim PRIVATE ${catch})
    if(arg_CATCH)
      target_compile_options(${name}_sim PRIVATE ${DEVCOMM_TEST_OPTIMIZE})
    endif()
    if(NOT arg_NO_TEST)
      devcomm_register_test(${name}_sim COMMAND ${name}_sim ${arg_ARGS}
        LABELS sim ${arg_LABELS} ${timeout})
    endif()
  endif()

  # Sanitizers are for host code and simulated kernels; GPU programs add nothing there.
  if(NOT arg_SIM_ONLY AND DEVCOMM_HAVE_NVCC AND TARGET devcomm::host AND NOT DEVCOMM_SANITIZE)
    if(DEVCOMM_GPU_AS_PTX)
      add_library(${name}_gpu OBJECT ${arg_SOURCES})
      set_target_properties(${name}_gpu PROPERTIES CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES 90-virtual)
    else()
      add_executable(${name}_gpu ${arg_SOURCES})
    endif()
    devcomm_target_defaults(${name}_gpu)
    target_include_directories(${name}_gpu PRIVATE ${arg_INCLUDES})
    set_target_properties(${name}_gpu PROPERTIES UNITY_BUILD OFF)  # from version 3.31 on CMake would join .cu files
    target_compile_definitions(${name}_gpu PRIVATE ${arg_DEFINITIONS})
    target_link_libraries(${name}_gpu PRIVATE ${libraries} devcomm::host CUDA::cudart_static ${catch})
    # Ranks are threads, and two may share a GPU: each needs a default stream of its own.
    target_compile_options(${name}_gpu PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--default-stream=per-thread>)
    if(NOT arg_NO_TEST)
      devcomm_register_test(${name}_gpu GPU COMMAND ${name}_gpu ${arg_ARGS}
        LABELS gpu ${arg_LABELS} ${timeout})
    endif()
  endif()
endfunction()

function(devcomm_add_host_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_CATCH;IN_RACE_BUILD" "TIMEOUT" "SOURCES;LIBRARIES;ARGS;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "devcomm_add_host_test(${name}): give SOURCES; unknown: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  devcomm_pass_timeout()
  add_executable(${name} ${arg_SOURCES})
  devcomm_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  if(NOT arg_NO_CATCH)
    target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain)
    target_compile_options(${name} PRIVATE ${DEVCOMM_TEST_OPTIMIZE})
  endif()
  if(DEVCOMM_SANITIZE STREQUAL "race" AND NOT arg_IN_RACE_BUILD)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)  # no simulated kernels, nothing to detect
    return()
  endif()
  devcomm_register_test(${name} COMMAND ${name} ${arg_ARGS} LABELS host ${arg_LABELS} ${timeout})
endfunction()
