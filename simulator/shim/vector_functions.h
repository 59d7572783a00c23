/// \file vector_functions.h
/// `make_float4` and the like.
#pragma once
#define __VECTOR_FUNCTIONS_H__  // the toolkit's own file is not read beside it

#include <vector_types.h>

#define DEVCOMM_SIMULATOR_MAKE(T, name)                                      \
  inline name##1 make_##name##1(T x) { return name##1 {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return name##2 {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return name##3 {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4 {x, y, z, w}; }

DEVCOMM_SIMULATOR_MAKE(signed char, char)
DEVCOMM_SIMULATOR_MAKE(unsigned char, uchar)
DEVCOMM_SIMULATOR_MAKE(short, short)
DEVCOMM_SIMULATOR_MAKE(unsigned short, ushort)
DEVCOMM_SIMULATOR_MAKE(int, int)
DEVCOMM_SIMULATOR_MAKE(unsigned int, uint)
DEVCOMM_SIMULATOR_MAKE(long, long)
DEVCOMM_SIMULATOR_MAKE(unsigned long, ulong)
DEVCOMM_SIMULATOR_MAKE(long long, longlong)
DEVCOMM_SIMULATOR_MAKE(unsigned long long, ulonglong)
DEVCOMM_SIMULATOR_MAKE(float, float)
DEVCOMM_SIMULATOR_MAKE(double, double)

#undef DEVCOMM_SIMULATOR_MAKE
