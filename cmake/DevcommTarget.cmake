# devcomm_target_defaults(<target> [SIMULATOR_RUNTIME])
#
# What every target of this project gets: warnings (errors when DEVCOMM_WARNINGS_AS_ERRORS), C++20
# and the chosen sanitizer. All private, so that users see no flags; only the sanitizer's link flag
# travels with a library. SIMULATOR_RUNTIME leaves -fsanitize=thread out of the compilation: the
# runtime tells ThreadSanitizer about fibers itself and must not be seen by it.
function(devcomm_target_defaults target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SIMULATOR_RUNTIME" "" "")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "devcomm_target_defaults(${target}): unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()

  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF CUDA_STANDARD_REQUIRED OFF
    POSITION_INDEPENDENT_CODE ON)
  # CMake 3.25 knows no CUDA_STANDARD 20 (which follows CXX_STANDARD), so CUDA sources get the flag itself.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)

  set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
  if(DEVCOMM_WARNINGS_AS_ERRORS)
    list(APPEND warnings -Werror)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  # GCC 12 reports -Wrestrict inside std::string's operator+ (GCC bug 105651, fixed in 13), and
  # -Wstringop-overflow inside std::vector::insert of bytes.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND warnings -Wno-restrict -Wno-stringop-overflow)
  endif()
  # nvcc's generated host code is not pedantic.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)

  # Reports name lines; these two have them by themselves.
  set(lines $<$<NOT:$<CONFIG:Debug,RelWithDebInfo>>:-g>)
  if(DEVCOMM_SANITIZE STREQUAL "thread")
    if(NOT arg_SIMULATOR_RUNTIME)
      target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;${lines}>")
    endif()
    target_link_options(${target} PUBLIC $<$<LINK_LANGUAGE:CXX>:-fsanitize=thread>)
  elseif(DEVCOMM_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer;${lines}>"
      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-sanitize=null>)  # see DevcommSimulate.cmake
    target_link_options(${target} PUBLIC $<$<LINK_LANGUAGE:CXX>:-fsanitize=address,undefined>)
  endif()
endfunction()
