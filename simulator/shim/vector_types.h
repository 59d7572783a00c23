/// \file vector_types.h
/// CUDA's small vectors, for the simulator.
#pragma once
#define __VECTOR_TYPES_H__  // the toolkit's own file is not read beside it

#define DEVCOMM_SIMULATOR_VECTORS(T, name, align2, align4) \
  struct name##1 {                                         \
    T x;                                                   \
  };                                                       \
  struct alignas(align2) name##2 {                         \
    T x, y;                                                \
  };                                                       \
  struct name##3 {                                         \
    T x, y, z;                                             \
  };                                                       \
  struct alignas(align4) name##4 {                         \
    T x, y, z, w;                                          \
  };

DEVCOMM_SIMULATOR_VECTORS(signed char, char, 2, 4)
DEVCOMM_SIMULATOR_VECTORS(unsigned char, uchar, 2, 4)
DEVCOMM_SIMULATOR_VECTORS(short, short, 4, 8)
DEVCOMM_SIMULATOR_VECTORS(unsigned short, ushort, 4, 8)
DEVCOMM_SIMULATOR_VECTORS(int, int, 8, 16)
DEVCOMM_SIMULATOR_VECTORS(unsigned int, uint, 8, 16)
DEVCOMM_SIMULATOR_VECTORS(long, long, 16, 16)
DEVCOMM_SIMULATOR_VECTORS(unsigned long, ulong, 16, 16)
DEVCOMM_SIMULATOR_VECTORS(long long, longlong, 16, 16)
DEVCOMM_SIMULATOR_VECTORS(unsigned long long, ulonglong, 16, 16)
DEVCOMM_SIMULATOR_VECTORS(float, float, 8, 16)
DEVCOMM_SIMULATOR_VECTORS(double, double, 16, 16)

#undef DEVCOMM_SIMULATOR_VECTORS

// Of CUDA 13: vectors of four 8-byte numbers by alignment.
#define DEVCOMM_SIMULATOR_ALIGNED(T, name) \
  struct alignas(16) name##4_16a {         \
    T x, y, z, w;                          \
  };                                       \
  struct alignas(32) name##4_32a {         \
    T x, y, z, w;                          \
  };

DEVCOMM_SIMULATOR_ALIGNED(long, long)
DEVCOMM_SIMULATOR_ALIGNED(unsigned long, ulong)
DEVCOMM_SIMULATOR_ALIGNED(long long, longlong)
DEVCOMM_SIMULATOR_ALIGNED(unsigned long long, ulonglong)
DEVCOMM_SIMULATOR_ALIGNED(double, double)

#undef DEVCOMM_SIMULATOR_ALIGNED

/// Extents of a grid or a block.
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
