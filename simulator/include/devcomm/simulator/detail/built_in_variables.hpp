/// \file built_in_variables.hpp
/// `threadIdx` and its like: real variables of the OS thread that runs a block, as types of the CUDA
/// runtime have members of the same names.
#pragma once

#include <vector_types.h>

extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread uint3 blockDim;
extern __thread uint3 gridDim;
