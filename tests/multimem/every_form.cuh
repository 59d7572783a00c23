/// \file every_form.cuh
/// Every collective by multimem, of any type, against references.
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace multimem_test {

using namespace devcomm;  // NOLINT(google-build-using-namespace,google-global-names-in-headers)

constexpr unsigned threads = 64;
constexpr unsigned blocks = 2;
constexpr std::size_t capacity = 1 << 18;  // bytes

#if defined(DEVCOMM_SIMULATOR)
// A simulated switch is nobody else's.
inline const int on_a_switch = unsetenv("NCCL_NVLS_ENABLE") + unsetenv("DEVCOMM_NVLS_ENABLE");
#else
// GPUs whose NVLink switch others use as well are left without multicast.
inline const int in_software_on_gpus = setenv("DEVCOMM_NVLS_ENABLE", "0", 1);
#endif

constexpr auto asked = multimem::policy::or_software;

enum class form { one_shot, two_shot, reduce_scatter, all_gather, broadcast };
constexpr form forms[] = {form::one_shot, form::two_shot, form::reduce_scatter, form::all_gather, form::broadcast};

template <class T>
struct vectors {
  sym_ptr<T> input;
  sym_ptr<T> output;
  std::uint64_t count;
  int root;
};

template <form Which, class T, class Operator, class Barrier>
__device__ void call(Barrier& barrier, const vectors<T>& v) {
  if constexpr (Which == form::one_shot) {
    collective::all_reduce_one_shot_multimem<T>(barrier, v.input, v.count,
                                                collective::to_memory<T>{v.output.local(), v.count}, Operator{});
  } else if constexpr (Which == form::two_shot) {
    collective::all_reduce_two_shot_multimem<T>(barrier, v.input, v.output, v.count, Operator{});
  } else if constexpr (Which == form::reduce_scatter) {
    collective::reduce_scatter_multimem<T>(barrier, v.input, v.output.local(), v.count, Operator{});
  } else if constexpr (Which == form::all_gather) {
    collective::all_gather_multimem<T>(barrier, v.input.local(), v.output, v.count);
  } else {
    collective::broadcast_multimem<T>(barrier, v.root, v.input.local(), v.output, v.count);
  }
}

/// Whether collectives of `T` are tried by a barrier of LSA, too. What such a barrier adds is the same for all types,
/// and nvcc takes ten seconds for each.
#if defined(DEVCOMM_SIMULATOR)
template <class T>
constexpr bool also_by_lsa = true;
#else
template <class T>
constexpr bool also_by_lsa = std::is_same_v<T, float>;
#endif

/// By a barrier of multimem, or one of LSA. A kernel for each form: ptxas takes more than twice as long for one that is
/// twice as long.
template <form Which, class T, class Operator>
__global__ void run(device_comm comm, multimem::barrier_handle barriers, bool by_lsa, vectors<T> v) {
  if constexpr (also_by_lsa<T>) {
    if (by_lsa) {
      lsa::barrier_session barrier{block{}, comm, blockIdx.x};
      call<Which, T, Operator>(barrier, v);
      return;
    }
  }
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  call<Which, T, Operator>(barrier, v);
}

template <class T>
using kernel_of = void (*)(device_comm, multimem::barrier_handle, bool, vectors<T>);

template <class T, class Operator>
kernel_of<T> kernel_for(form which) {
  switch (which) {
    case form::one_shot: return run<form::one_shot, T, Operator>;
    case form::two_shot: return run<form::two_shot, T, Operator>;
    case form::reduce_scatter: return run<form::reduce_scatter, T, Operator>;
    case form::all_gather: return run<form::all_gather, T, Operator>;
    case form::broadcast: break;
  }
  return run<form::broadcast, T, Operator>;
}

/// Small whole numbers: sums have one result in any order.
template <class T>
__host__ __device__ T element(int rank, std::uint64_t i, int round) {
  return static_cast<T>(
      static_cast<float>((static_cast<std::uint64_t>(rank) * 3 + i * 5 + static_cast<std::uint64_t>(round)) % 4));
}

/// The operators as the host has them: those of the library are for kernels.
template <class Operator, class A>
A combine(A a, A b) {
  if constexpr (std::is_same_v<Operator, sum>) {
    return a + b;
  } else if constexpr (std::is_same_v<Operator, minimum>) {
    return b < a ? b : a;
  } else if constexpr (std::is_same_v<Operator, maximum>) {
    return a < b ? b : a;
  } else {
    static_assert(std::is_same_v<Operator, bitwise_xor>);
    return a ^ b;
  }
}
template <class T, class Operator>
T reduced(int ranks, std::uint64_t i, int round) {
  auto total = static_cast<accumulator_t<T>>(element<T>(0, i, round));
  for (int r = 1; r < ranks; ++r)
    total = combine<Operator>(total, static_cast<accumulator_t<T>>(element<T>(r, i, round)));
  return static_cast<T>(total);
}

inline void copy(void* to, const void* from, std::size_t bytes = capacity) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), "cudaMemcpyAsync");
  test::finish("cudaMemcpyAsync");
}

/// Every form of `counts` elements between two windows, and of the last count in place, with elements around them that
/// must stay as they are.
template <class T, class Operator>
void check_forms(host::communicator& comm, const window& input, const window& output,
                 const std::vector<std::uint64_t>& counts) {
  requirements needs = comm.requirements().lsa_barriers(blocks);
  const auto barriers = needs.add(multimem::barriers{blocks, asked});
  const auto device = comm.create_device_comm(needs);
  int round = 0;
  const auto check = [&](form which, std::uint64_t count, bool in_place) {
    ++round;
    // Elements off 16 bytes: none, both by as many, one.
    const std::uint64_t skew_in = which == form::one_shot ? 0 : static_cast<std::uint64_t>(round) % 3;
    const std::uint64_t skew_out = !in_place && round % 4 == 3 ? 1 : skew_in;
    const int root = round % comm.size();
    const auto shard = collective::shard_of(count, comm.size(), comm.rank());
    const std::size_t bytes = 16 + (count + 2) * sizeof(T) + 64;
    test::require(bytes <= capacity, "the vectors are longer than the windows");
    // Where a rank's shard is, of a vector in place that holds it.
    const std::uint64_t own_in = in_place && which == form::all_gather ? shard.begin : 0;
    const std::uint64_t own_out = in_place && which == form::reduce_scatter ? shard.begin : 0;
    std::vector<unsigned char> in(bytes, 0x3c);
    std::vector<unsigned char> out(bytes, 0x5a);
    const std::uint64_t given = which == form::all_gather ? shard.size() : count;
    for (std::uint64_t i = 0; i < given; ++i) {
      const T value = element<T>(comm.rank(), i, round);
      std::memcpy(&in[16 + (skew_in + own_in + i) * sizeof(T)], static_cast<const void*>(&value), sizeof value);
    }
    if (in_place) out = in;
    if (!in_place) copy(input.local, in.data(), bytes);
    copy(output.local, out.data(), bytes);
    comm.barrier();
    const vectors<T> v{{in_place ? output : input, 16 + (skew_in + own_in) * sizeof(T)},
                       {output, 16 + (skew_out + own_out) * sizeof(T)},
                       count,
                       root};
    launch(kernel_for<T, Operator>(which), {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
           device.get(), barriers, round % 2 == 0, v);
    test::finish("a multimem collective");
    device.check();
    comm.barrier();
    std::vector<unsigned char> got(bytes);
    copy(got.data(), output.local, bytes);
    const auto put = [&](std::uint64_t i, T value) {
      std::memcpy(&out[16 + (skew_out + own_out + i) * sizeof(T)], static_cast<const void*>(&value), sizeof value);
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      switch (which) {
        case form::one_shot:
        case form::two_shot: put(i, reduced<T, Operator>(comm.size(), i, round)); break;
        case form::reduce_scatter:
          if (i >= shard.begin && i < shard.end) put(i - shard.begin, reduced<T, Operator>(comm.size(), i, round));
          break;
        case form::all_gather: {
          const std::uint64_t length = collective::shard_length(count, comm.size());
          put(i, element<T>(static_cast<int>(i / length), i % length, round));
          break;
        }
        case form::broadcast: put(i, element<T>(root, i, round)); break;
      }
    }
    test::require(got == out, [&] {
      const auto at = std::mismatch(got.begin(), got.end(), out.begin()).first - got.begin();
      return "form " + std::to_string(static_cast<int>(which)) + (in_place ? " in place, " : ", ") +
             std::to_string(count) + " elements of " + std::to_string(sizeof(T)) + " bytes, rank " +
             std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) +
             (input.base != nullptr && comm.properties().multicast.available ? ", by the switch" : ", in software") +
             ": byte " + std::to_string(at) + " of the output is wrong";
    });
    comm.barrier();
  };
  for (const form which : forms) {
    for (const std::uint64_t count : counts) check(which, count, false);
    if (which != form::one_shot) check(which, counts.back(), true);
  }
}

/// Between windows of which multimem is asked.
template <class T, class Operator>
void check_type(host::communicator& comm, const std::vector<std::uint64_t>& counts) {
  const host::symmetric_memory input = comm.allocate(capacity, "input", asked);
  const host::symmetric_memory output = comm.allocate(capacity, "output", asked);
  check_forms<T, Operator>(comm, input.window(), output.window(), counts);
}

}  // namespace multimem_test
