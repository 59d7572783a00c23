# devcomm_simulate(<target> [SANITIZE none|race|address|thread] [CCCL <folder>])
#
# Compiles the .cu sources that <target> has when this is called as C++ for the simulator, and links
# devcomm::simulator. Each is compiled through a generated .cpp file that includes it, so the same
# source may belong to a CUDA target as well. The last link step defines the symbols behind
# `extern __shared__`; an executable that links a library of simulated kernels must call this too.
#
# SANITIZE, or else DEVCOMM_SANITIZE, says what watches the program: race puts devcomm's race detector behind
# the kernels; address (with undefined behavior) and thread compile and link the whole target with the
# compiler's sanitizer. The simulator is the same for all: targets of one project may differ.
#
# Headers of CCCL (<cuda/atomic>, <cub/block/block_reduce.cuh> and their like), which kernels may use, are taken from CCCL
# when given, from DEVCOMM_CCCL_INCLUDE_DIR, or from a CUDA toolkit; without them kernels do without.
#
# Python 3 rewrites what is CUDA and not C++ (devcomm_translate.py): launches by <<<>>> and inline PTX in the .cu sources,
# and the inline PTX of CUB's headers. Without Python, both stay as they are, and do not compile.

find_path(DEVCOMM_CCCL_INCLUDE_DIR cuda/std/version
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_PATH
  PATHS /usr/local/cuda/include /usr/include
  PATH_SUFFIXES cccl include/cccl
  DOC "Folder of CCCL's headers, for kernels that use <cuda/atomic>")
mark_as_advanced(DEVCOMM_CCCL_INCLUDE_DIR)

find_package(Python3 COMPONENTS Interpreter QUIET)

# Sets <result> to the folder of those of CUB's headers that need to be rewritten; empty if there is none.
function(devcomm_translated_cub cccl result)
  set(${result} "" PARENT_SCOPE)
  if(NOT Python3_Interpreter_FOUND OR NOT EXISTS "${cccl}/cub/version.cuh")
    return()
  endif()
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/devcomm_translate.py")
  set(script_hash "")
  foreach(part IN ITEMS translate ptx tokens)
    file(SHA1 "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/devcomm_${part}.py" hash)
    string(APPEND script_hash "${hash}")
  endforeach()
  file(SHA1 "${cccl}/cub/version.cuh" version_hash)
  string(SHA1 tag "${cccl}${script_hash}${version_hash}")
  string(SUBSTRING "${tag}" 0 8 tag)
  set(folder "${CMAKE_BINARY_DIR}/devcomm_cub/${tag}")
  if(NOT EXISTS "${folder}/complete")
    execute_process(COMMAND "${Python3_EXECUTABLE}" "${script}" ptx "${cccl}" "${folder}"
      RESULT_VARIABLE status ERROR_VARIABLE why)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "devcomm: ${cccl}/cub cannot be prepared for the simulator: ${why}")
    endif()
    file(TOUCH "${folder}/complete")
  endif()
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# DEVCOMM_HAVE_CUB: whether programs that use CUB can be simulated.
set(DEVCOMM_HAVE_CUB OFF)
if(Python3_Interpreter_FOUND AND EXISTS "${DEVCOMM_CCCL_INCLUDE_DIR}/cub/version.cuh")
  file(STRINGS "${DEVCOMM_CCCL_INCLUDE_DIR}/cub/version.cuh" devcomm_cub_version REGEX "^#define CUB_VERSION [0-9]+")
  if(devcomm_cub_version MATCHES "CUB_VERSION ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 300000)
    set(DEVCOMM_HAVE_CUB ON)
  endif()
endif()

# Sets <result> to the command that starts Python for devcomm_translate.py: the interpreter itself, since a script that
# chooses among several, as pyenv's does, takes longer to start than the rewriting takes; and without site packages.
function(devcomm_translator result)
  get_property(python GLOBAL PROPERTY devcomm_python)
  if(NOT python)
    execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import sys; print(sys.executable)"
      RESULT_VARIABLE status OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT status EQUAL 0 OR NOT EXISTS "${python}")
      set(python "${Python3_EXECUTABLE}")
    endif()
    set_property(GLOBAL PROPERTY devcomm_python "${python}")
  endif()
  set(${result} "${python}" -I -S PARENT_SCOPE)
endfunction()

# Makes <wrapper>, the .cpp file that is compiled in place of <path>, now and whenever <path> changes.
function(devcomm_wrap_kernels target path wrapper)
  set(launches "")
  if(EXISTS "${path}")  # it may be generated
    file(STRINGS "${path}" launches REGEX "<<<" LIMIT_COUNT 1)
  endif()
  if(NOT Python3_Interpreter_FOUND)
    if(launches)
      message(WARNING "devcomm: ${path} launches kernels by <<<>>>; to simulate it, install Python 3")
    endif()
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${path}\"\n" @ONLY)
    return()
  endif()
  set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  set(script "${folder}/devcomm_translate.py")
  if(NOT EXISTS "${wrapper}" AND NOT launches)  # for tools that read it before it is built
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${path}\"\n" @ONLY)
  endif()
  if(NOT EXISTS "${wrapper}.options")
    file(CONFIGURE OUTPUT "${wrapper}.options" CONTENT "\n" @ONLY)
  endif()
  devcomm_translator(translator)
  add_custom_command(OUTPUT "${wrapper}" BYPRODUCTS "${wrapper}.options"
    COMMAND ${translator} "${script}" launches "${path}" "${wrapper}"
      "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>"
    DEPENDS "${path}" "${script}" "${folder}/devcomm_ptx.py" "${folder}/devcomm_tokens.py" DEPFILE "${wrapper}.d" COMMENT "Preparing ${path} for the simulator" VERBATIM)
  # Whether loops over volatile memory are interrupted.
  set_property(SOURCE "${wrapper}" APPEND PROPERTY COMPILE_OPTIONS "@${wrapper}.options")
endfunction()

function(devcomm_simulate target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CCCL;SANITIZE" "")
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "devcomm_simulate(${target}): unknown or without a value: "
      "${arg_UNPARSED_ARGUMENTS}${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  set(sanitize "${DEVCOMM_SANITIZE}")
  if(arg_SANITIZE)
    set(sanitize "${arg_SANITIZE}")
  endif()
  if(NOT sanitize MATCHES "^(none|race|address|thread)?$")
    message(FATAL_ERROR "devcomm_simulate(${target}): sanitizers are none, race, address and thread; "
      "this is '${sanitize}'")
  endif()
  if(NOT TARGET devcomm::simulator)
    message(FATAL_ERROR "devcomm_simulate(${target}): devcomm was built without its simulator "
      "(DEVCOMM_BUILD_SIMULATOR)")
  endif()

  # Of this file, and Python, also when a project calls this from outside the directory that added devcomm. Each search
  # starts Python a few times.
  if(NOT Python3_Interpreter_FOUND)
    find_package(Python3 COMPONENTS Interpreter QUIET)
  endif()
  set(simulate_dir "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  set(how ON)
  if(sanitize STREQUAL "race")
    set(how race)  # `devcomm::nccl` has kernels of its own for it
  endif()
  set_property(TARGET ${target} PROPERTY DEVCOMM_SIMULATED ${how})
  get_target_property(sources ${target} SOURCES)
  get_target_property(source_dir ${target} SOURCE_DIR)
  set(new_sources "")
  set(wrappers "")
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cu$")
      get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${source_dir}")
      get_filename_component(name "${source}" NAME)
      string(SHA1 tag "${path}")
      string(SUBSTRING "${tag}" 0 8 tag)
      set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/simulated/${target}/${name}.${tag}.cpp")
      devcomm_wrap_kernels(${target} "${path}" "${wrapper}")
      # It is compiled elsewhere, and includes what lies beside it.
      get_filename_component(beside "${path}" DIRECTORY)
      set_property(SOURCE "${wrapper}" APPEND PROPERTY COMPILE_OPTIONS "-iquote${beside}")
      list(APPEND new_sources "${wrapper}")
      list(APPEND wrappers "${wrapper}")
    else()
      list(APPEND new_sources "${source}")
    endif()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${new_sources})
  foreach(wrapper IN LISTS wrappers)
    # The prelude comes first, and without warnings about what CUDA's language allows.
    set_property(SOURCE "${wrapper}" APPEND PROPERTY COMPILE_OPTIONS
      -include devcomm/simulator/prelude.hpp -Wno-unknown-pragmas
      # nvcc does not guess at these, and GCC guesses wrongly in loops that a kernel unrolls.
      -Wno-uninitialized $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    # What is told of a misuse or a fault names lines. Sanitizers have flags of their own.
    if(NOT sanitize MATCHES "race|address|thread")
      set_property(SOURCE "${wrapper}" APPEND PROPERTY COMPILE_OPTIONS
        -gdwarf-4 $<$<NOT:$<CONFIG:Debug,RelWithDebInfo>>:-g1>)
    endif()
    # Only the compiler's calls of hooks; the detector is behind them, and not the compiler's runtime.
    if(sanitize STREQUAL "race")
      set_property(SOURCE "${wrapper}" APPEND PROPERTY COMPILE_OPTIONS
        # Volatile accesses have hooks of their own: PTX takes them for relaxed ones.
        "$<$<CXX_COMPILER_ID:GNU>:--param=tsan-distinguish-volatile=1>"
        "$<$<CXX_COMPILER_ID:Clang>:-mllvm;-tsan-distinguish-volatile=1>"
        -fsanitize=thread -gdwarf-4 $<$<NOT:$<CONFIG:Debug,RelWithDebInfo>>:-g1>  # reports name lines
        # GCC expands these inline after it has placed its hooks; as calls, they are seen.
        "$<$<CXX_COMPILER_ID:GNU>:-Wno-tsan;-fno-builtin-memcpy;-fno-builtin-memmove;-fno-builtin-memset>")
    endif()
  endforeach()

  get_target_property(shim devcomm::simulator DEVCOMM_SHIM_DIR)
  if(NOT shim)
    # Installed beside the headers.
    get_filename_component(prefix "${simulate_dir}" ABSOLUTE)
    find_path(DEVCOMM_SHIM_INCLUDE_DIR cuda_runtime_api.h
      HINTS "${prefix}/../../../include/devcomm/simulator/shim" "${prefix}/../../../../include/devcomm/simulator/shim"
      NO_DEFAULT_PATH REQUIRED)
    mark_as_advanced(DEVCOMM_SHIM_INCLUDE_DIR)
    set(shim "${DEVCOMM_SHIM_INCLUDE_DIR}")
  endif()
  target_compile_definitions(${target} PRIVATE DEVCOMM_SIMULATOR)
  target_include_directories(${target} SYSTEM BEFORE PRIVATE "${shim}")
  set(cccl "${DEVCOMM_CCCL_INCLUDE_DIR}")
  if(arg_CCCL)
    set(cccl "${arg_CCCL}")
  endif()
  if(cccl)
    devcomm_translated_cub("${cccl}" cub)
    if(cub)
      target_include_directories(${target} SYSTEM PRIVATE "${cub}")
    endif()
    target_include_directories(${target} SYSTEM PRIVATE "${cccl}")
  endif()
  # Reports name lines; these two have them by themselves.
  set(lines $<$<NOT:$<CONFIG:Debug,RelWithDebInfo>>:-g>)
  if(sanitize STREQUAL "race")
    target_link_libraries(${target} PRIVATE devcomm::simulator_race)
  elseif(sanitize STREQUAL "address")
    target_compile_options(${target} PRIVATE
      -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer ${lines}
      # GCC (seen with 12.2) tests the address of an extern thread-local variable, as shared memory is, by the flags of
      # the addition that computes it, and the linker (binutils 2.40) makes that a lea, which sets none: "member access
      # within null pointer" at random. AddressSanitizer reports accesses through null itself. Until one of them is mended.
      $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null>)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  elseif(sanitize STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread ${lines})
    target_link_options(${target} PRIVATE -fsanitize=thread)
  endif()
  target_link_libraries(${target} PRIVATE devcomm::simulator)

  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "STATIC_LIBRARY|OBJECT_LIBRARY|INTERFACE_LIBRARY")
    set_target_properties(${target} PROPERTIES
      CXX_LINKER_LAUNCHER "${simulate_dir}/devcomm_link_shared.sh"
      LINK_DEPENDS "${simulate_dir}/devcomm_link_shared.sh")
  endif()
endfunction()
