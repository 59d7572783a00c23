/// \file control.hpp
/// What tests ask of the stand-in, beside the driver's functions. Found by `dlsym`, as the library is.
#pragma once

extern "C" {

/// What the calling process holds.
struct stand_in_held {
  int memory;         ///< handles of physical memory, created or imported
  int multicast;      ///< handles of multicast objects
  int bindings;       ///< of memory to multicast objects
  int reservations;   ///< of address space
  int mappings;       ///< in reservations
  int device_memory;  ///< `cuMemAlloc`, and opened by CUDA IPC
  int host_memory;    ///< `cuMemHostAlloc`
  int registered;     ///< `cuMemHostRegister`
  int streams;
};

stand_in_held stand_in_count_held();

/// A launch, as the driver was asked for it.
struct stand_in_launch {
  const char* kernel;  ///< its symbol
  int device;
  unsigned grid[3];
  unsigned block[3];
  unsigned cluster[3];
  unsigned shared_bytes;
  void* stream;
  int cooperative;
  int dependent;
  int loaded;        ///< whether the device had the kernel before, so that the launch does not wait for other kernels
  void** arguments;  ///< addresses of the parameters' values
};
using stand_in_launch_seen = void (*)(const stand_in_launch*);

/// From here on each launch calls `function`, in the kernel's place; null: nothing.
void stand_in_see_launches(stand_in_launch_seen function);

/// From here on the `nth` call of `function` fails, once; counted from 1. Null: none.
void stand_in_fail(const char* function, int nth);

/// Calls of `function` since `stand_in_fail` was called last; of all functions where null.
int stand_in_count_calls(const char* function);

/// While not 0, a kernel runs on every device of this process and leaves no room for others: streams are not ready, and
/// what waits for kernels blocks, as the driver does.
void stand_in_keep_busy(int busy);

/// From here on a stream does what it is given late, when it has been asked for it or is to write a value behind it:
/// one thing in so many times 10 us. 0: at once.
void stand_in_delay_copies(int looks);

/// Rules that were broken so far in this process, a line each; empty if none was. Lives until the next call.
const char* stand_in_complaints();

}  // extern "C"
