// 128-bit integers would be summed in 64 bits.
#include <devcomm/devcomm.cuh>

#if defined(CORRECTED)
using number = long long;
#else
__extension__ using number = __int128;
#endif

__global__ void kernel(number* out, const number* in) {
  devcomm::reduce_copy<number>(
      devcomm::block{}, 1, [&](int) { return in; }, 1, [&](int) { return out; }, 8, devcomm::sum{});
}
