/// Scopes: an atomic operation or a fence orders nothing, and is atomic with nothing, that its scope does not include.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

#if __has_include(<cuda/atomic>)
#  include <cuda/atomic>
#endif

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

constexpr auto relaxed = memory_order::relaxed;
constexpr auto acquire = memory_order::acquire;
constexpr auto release = memory_order::release;

enum class part { writer, reader };

/// How a flag is stored and awaited.
template <scope Store, scope Load>
struct release_acquire {
  static void set(unsigned* flag) { arch::store<release, Store>(flag, 1u); }
  static void wait(unsigned* flag) {
    while (arch::load<acquire, Load>(flag) == 0) {
    }
  }
};

template <scope Scope>
void cuda_fence() {
  if (Scope == scope::block) __threadfence_block();
  if (Scope == scope::device) __threadfence();
  if (Scope == scope::system) __threadfence_system();
}
/// Relaxed at system scope, with CUDA's fences.
template <scope Writer, scope Reader>
struct fences {
  static void set(unsigned* flag) {
    cuda_fence<Writer>();
    arch::store<relaxed, scope::system>(flag, 1u);
  }
  static void wait(unsigned* flag) {
    while (arch::load<relaxed, scope::system>(flag) == 0) {
    }
    cuda_fence<Reader>();
  }
};
/// The seam's fences, and a narrower one after the one that counts.
template <scope Last>
struct fence_then_narrower {
  static void set(unsigned* flag) {
    arch::fence<memory_order::acq_rel, scope::system>();
    arch::fence<memory_order::acq_rel, Last>();
    arch::store<relaxed, scope::system>(flag, 1u);
  }
  static void wait(unsigned* flag) {
    while (arch::load<relaxed, scope::system>(flag) == 0) {
    }
    arch::fence<memory_order::acq_rel, scope::block>();
    arch::fence<memory_order::acq_rel, scope::system>();
  }
};
/// Fences wide enough, and a flag whose stores or loads are not.
template <scope Store, scope Load>
struct narrow_flag {
  static void set(unsigned* flag) {
    __threadfence_system();
    arch::store<relaxed, Store>(flag, 1u);
  }
  static void wait(unsigned* flag) {
    while (arch::load<relaxed, Load>(flag) == 0) {
    }
    __threadfence_system();
  }
};
/// A flag that is volatile, as older code has it.
struct volatile_flag {
  static void set(unsigned* flag) { *static_cast<volatile unsigned*>(flag) = 1; }
  static void wait(unsigned* flag) {
    while (*static_cast<volatile unsigned*>(flag) == 0) {
    }
  }
};
template <scope Writer, scope Reader>
struct fenced_volatile_flag {
  static void set(unsigned* flag) {
    cuda_fence<Writer>();
    volatile_flag::set(flag);
  }
  static void wait(unsigned* flag) {
    volatile_flag::wait(flag);
    cuda_fence<Reader>();
  }
};
template <scope Store>
struct mixed_flag {
  static void set(unsigned* flag) { narrow_flag<Store, scope::system>::set(flag); }
  static void wait(unsigned* flag) { fenced_volatile_flag<scope::system, scope::system>::wait(flag); }
};
enum class suffix { block, none, system };
template <suffix Writer, suffix Reader>
struct cuda_atomics {
  template <suffix S>
  static unsigned add(unsigned* flag, unsigned value) {
    return S == suffix::block  ? atomicAdd_block(flag, value)
           : S == suffix::none ? atomicAdd(flag, value)
                               : atomicAdd_system(flag, value);
  }
  static void set(unsigned* flag) {
    __threadfence_system();
    add<Writer>(flag, 1);
  }
  static void wait(unsigned* flag) {
    while (add<Reader>(flag, 0) == 0) {
    }
    __threadfence_system();
  }
};

#if __has_include(<cuda/atomic>)
template <cuda::thread_scope Writer, cuda::thread_scope Reader>
struct atomic_refs {
  static void set(unsigned* flag) { cuda::atomic_ref<unsigned, Writer>(*flag).store(1, cuda::memory_order_release); }
  static void wait(unsigned* flag) {
    while (cuda::atomic_ref<unsigned, Reader>(*flag).load(cuda::memory_order_acquire) == 0) {
    }
  }
};
template <cuda::thread_scope Writer, cuda::thread_scope Reader>
struct cuda_fences {
  static void set(unsigned* flag) {
    cuda::atomic_thread_fence(cuda::memory_order_release, Writer);
    cuda::atomic_ref<unsigned>(*flag).fetch_add(1, cuda::memory_order_relaxed);
  }
  static void wait(unsigned* flag) {
    while (cuda::atomic_ref<unsigned>(*flag).load(cuda::memory_order_relaxed) == 0) {
    }
    cuda::atomic_thread_fence(cuda::memory_order_acquire, Reader);
  }
};
#endif

/// One thread hands a word to another.
template <class Flag>
__global__ void hand_over(part mine, int* data, unsigned* flag, int* out) {
  const bool writes = gridDim.x > 1 ? blockIdx.x == 0 : blockDim.x > 1 ? threadIdx.x == 0 : mine == part::writer;
  if (writes) {
    *data = 1;
    Flag::set(flag);
  } else {
    Flag::wait(flag);
    *out = *data;
  }
}

/// The release goes over a thread of its own block, at scope block, to one on another GPU.
template <scope First>
__global__ void pass_on(part mine, int* data, unsigned* flag, int* out) {
  if (mine == part::reader) {
    while (arch::load<acquire, scope::system>(flag + 1) == 0) {
    }
    *out = *data;
  } else if (threadIdx.x == 0) {
    *data = 1;
    arch::store<release, First>(flag, 1u);
  } else {
    while (arch::load<acquire, First>(flag) == 0) {
    }
    arch::store<release, scope::system>(flag + 1, 1u);
  }
}

/// A block's threads hand over by a barrier, and one of them releases at scope system.
__global__ void gather_and_release(part mine, int* data, unsigned* flag, int* out) {
  if (mine == part::writer) {
    data[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) arch::store<release, scope::system>(flag, 1u);
  } else {
    if (threadIdx.x == 0) {
      while (arch::load<acquire, scope::system>(flag) == 0) {
      }
    }
    __syncthreads();
    out[threadIdx.x] = data[(threadIdx.x + 1) % blockDim.x];
  }
}

/// Between release and acquire, another block changes the flag, at scope `Between`.
template <scope Between>
__global__ void through(part mine, int* data, unsigned* flag, int* out) {
  if (mine == part::reader) {
    while (arch::load<acquire, scope::system>(flag) < 2) {
    }
    *out = *data;
  } else if (blockIdx.x == 0) {
    *data = 1;
    arch::store<release, scope::system>(flag, 1u);
  } else {
    while (arch::load<relaxed, scope::system>(flag) == 0) {
    }
    arch::fetch_add<relaxed, Between>(flag, 1u);
  }
}

template <suffix S>
__global__ void count(part, int* data, unsigned* flag, int*) {
  static_cast<void>(data);
  cuda_atomics<S, S>::template add<S>(flag, 1);
}

/// All that is shared is volatile, or all but one access.
template <bool Plain>
__global__ void exchange_volatile(part mine, int* data, unsigned* flag, int* out) {
  auto* const words = static_cast<volatile int*>(data);
  const int self = mine == part::writer ? 0 : 1;
  words[self] = 1;
  if (Plain && self == 0) data[0] = 1;
  out[self] = words[1 - self];
  static_cast<void>(flag);
}

/// Two blocks change overlapping bytes by atomics of scope system, of `First` and `Second`.
template <class First, class Second, int Offset, bool Ordered>
__global__ void change_overlapping(part, int* data, unsigned* flag, int*) {
  auto* const bytes = reinterpret_cast<char*>(data);
  if (blockIdx.x == 0) {
    arch::store<relaxed, scope::system>(reinterpret_cast<First*>(bytes), First{1});
    if (Ordered) arch::store<release, scope::system>(flag, 1u);
  } else {
    while (Ordered && arch::load<acquire, scope::system>(flag) == 0) {
    }
    static_cast<void>(arch::load<relaxed, scope::system>(reinterpret_cast<Second*>(bytes + Offset)));
    arch::store<relaxed, scope::system>(reinterpret_cast<Second*>(bytes + Offset), Second{2});
  }
}

using kernel = void (*)(part, int*, unsigned*, int*);

struct words {
  int* data = nullptr;
  int* out = nullptr;
  unsigned* flag = nullptr;
  words() {
    sim::clear_races();
    devcomm::check_cuda(cudaSetDevice(0), "cudaSetDevice");
    devcomm::check_cuda(cudaMalloc(&data, 4096), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&out, 4096), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&flag, 8), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(flag, 0, 8), "cudaMemset");
    devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  words(const words&) = delete;
  words& operator=(const words&) = delete;
  ~words() {
    cudaFree(data);
    cudaFree(out);
    cudaFree(flag);
    sim::clear_races();
  }
};

struct result {
  std::uint64_t reports;
  std::string text;
};

result found() { return {sim::race_reports(), sim::last_race()}; }

/// On one GPU, as a launch of its own.
result on_one_gpu(kernel k, const devcomm::launch_config& config) {
  const words w;
  REQUIRE(simulator_test::run(k, config, part::writer, w.data, w.flag, w.out) == cudaSuccess);
  return found();
}
result between_threads(kernel k) { return on_one_gpu(k, {.block = 2}); }
result between_blocks(kernel k) { return on_one_gpu(k, {.grid = 2}); }

/// Writers on GPU 0, and readers on GPU 1.
result between_gpus(kernel k, const devcomm::launch_config& writers = {}, unsigned threads = 1) {
  const words w;
  devcomm::launch(k, writers, part::writer, w.data, w.flag, w.out);
  devcomm::check_cuda(cudaSetDevice(1), "cudaSetDevice");
  devcomm::launch(k, {.block = threads}, part::reader, w.data, w.flag, w.out);
  const cudaError_t second = cudaDeviceSynchronize();
  devcomm::check_cuda(cudaSetDevice(0), "cudaSetDevice");
  REQUIRE(second == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  return found();
}

/// Whether the scopes of a pair suffice, from the narrowest distance to the widest.
struct enough {
  bool threads, blocks, gpus;
};

void check_pair(const char* name, kernel k, const enough& expected) {
  INFO(name);
  const result threads = between_threads(k);
  const result blocks = between_blocks(k);
  const result gpus = between_gpus(k);
  INFO(threads.text << blocks.text << gpus.text);
  CHECK((threads.reports == 0) == expected.threads);
  CHECK((blocks.reports == 0) == expected.blocks);
  CHECK((gpus.reports == 0) == expected.gpus);
  const auto says = [](const result& r, const char* scope) {
    return r.reports == 0 || simulator_test::contains(r.text, std::string("scope ") + scope + " is needed") ||
           simulator_test::contains(r.text, std::string("need scope ") + scope);
  };
  CHECK(says(blocks, "device"));
  CHECK(says(gpus, "system"));
}

constexpr enough block_only{true, false, false};
constexpr enough one_gpu{true, true, false};
constexpr enough all{true, true, true};

}  // namespace

TEST_CASE("a release and an acquire order what both scopes include") {
  check_pair("system", hand_over<release_acquire<scope::system, scope::system>>, all);
  check_pair("device", hand_over<release_acquire<scope::device, scope::device>>, one_gpu);
  check_pair("block", hand_over<release_acquire<scope::block, scope::block>>, block_only);
  check_pair("narrow release", hand_over<release_acquire<scope::device, scope::system>>, one_gpu);
  check_pair("narrow acquire", hand_over<release_acquire<scope::system, scope::block>>, block_only);
}

TEST_CASE("a fence orders what its scope includes") {
  check_pair("system", hand_over<fences<scope::system, scope::system>>, all);
  check_pair("device", hand_over<fences<scope::device, scope::device>>, one_gpu);
  check_pair("block", hand_over<fences<scope::block, scope::block>>, block_only);
  check_pair("narrow fence of the writer", hand_over<fences<scope::block, scope::system>>, block_only);
  check_pair("narrow fence of the reader", hand_over<fences<scope::system, scope::device>>, one_gpu);
  check_pair("a narrow fence beside a wide one", hand_over<fence_then_narrower<scope::block>>, all);
}

TEST_CASE("volatile accesses are relaxed ones of scope system, which order nothing by themselves") {
  check_pair("system", hand_over<fenced_volatile_flag<scope::system, scope::system>>, all);
  check_pair("device", hand_over<fenced_volatile_flag<scope::device, scope::device>>, one_gpu);
  check_pair("narrow fence of the reader", hand_over<fenced_volatile_flag<scope::system, scope::block>>, block_only);
  check_pair("an atomic store", hand_over<mixed_flag<scope::system>>, all);
  check_pair("a narrow atomic store", hand_over<mixed_flag<scope::device>>, one_gpu);
  const result unfenced = between_blocks(hand_over<volatile_flag>);
  INFO(unfenced.text);
  CHECK(unfenced.reports == 1);  // the data, and not the flag
  CHECK(between_gpus(exchange_volatile<false>).reports == 0);
  CHECK(between_gpus(exchange_volatile<true>).reports == 1);  // of a volatile access and a plain one
}

TEST_CASE("atomics of different sizes on the same bytes are not atomic toward each other") {
  using std::uint32_t;
  using std::uint64_t;
  const auto two = [](kernel k) { return on_one_gpu(k, {.grid = 2}); };
  const result low = two(change_overlapping<uint64_t, uint32_t, 0, false>);
  INFO(low.text);
  CHECK(low.reports >= 1);
  CHECK(simulator_test::contains(low.text, "atomic accesses of different sizes are not atomic toward each other"));
  CHECK(simulator_test::contains(low.text, "of 8 bytes"));
  CHECK(simulator_test::contains(low.text, "of 4 bytes"));
  CHECK(two(change_overlapping<uint64_t, uint32_t, 4, false>).reports >= 1);
  CHECK(two(change_overlapping<uint32_t, uint64_t, 0, false>).reports >= 1);
  CHECK(two(change_overlapping<uint64_t, uint32_t, 4, true>).reports == 0);
  CHECK(two(change_overlapping<uint64_t, uint64_t, 0, false>).reports == 0);
  CHECK(two(change_overlapping<uint32_t, uint32_t, 4, false>).reports == 0);
  CHECK(two(change_overlapping<uint64_t, uint32_t, 8, false>).reports == 0);
}

TEST_CASE("a flag that carries what wide fences order is itself wide enough") {
  check_pair("store", hand_over<narrow_flag<scope::device, scope::system>>, one_gpu);
  check_pair("load", hand_over<narrow_flag<scope::system, scope::block>>, block_only);
  check_pair("both", hand_over<narrow_flag<scope::system, scope::system>>, all);
}

TEST_CASE("CUDA's atomics have the scope of their suffix, and of the device without one") {
  check_pair("system", hand_over<cuda_atomics<suffix::system, suffix::system>>, all);
  check_pair("none", hand_over<cuda_atomics<suffix::none, suffix::none>>, one_gpu);
  check_pair("block", hand_over<cuda_atomics<suffix::block, suffix::block>>, block_only);
  check_pair("mixed", hand_over<cuda_atomics<suffix::system, suffix::none>>, one_gpu);
}

#if __has_include(<cuda/atomic>)
TEST_CASE("libcu++'s atomics and fences have the scope that they are given") {
  constexpr auto block = cuda::thread_scope_block;
  constexpr auto device = cuda::thread_scope_device;
  constexpr auto system = cuda::thread_scope_system;
  check_pair("system", hand_over<atomic_refs<system, system>>, all);
  check_pair("device", hand_over<atomic_refs<device, device>>, one_gpu);
  check_pair("block", hand_over<atomic_refs<block, block>>, block_only);
  check_pair("mixed", hand_over<atomic_refs<device, system>>, one_gpu);
  check_pair("fences", hand_over<cuda_fences<system, system>>, all);
  check_pair("fences of the device", hand_over<cuda_fences<device, device>>, one_gpu);
  check_pair("a fence of the block", hand_over<cuda_fences<system, block>>, block_only);
}
#endif

TEST_CASE("order is cumulative: who was told within a block tells other GPUs") {
  CHECK(between_gpus(pass_on<scope::block>, {.block = 2}).reports == 0);
  CHECK(between_gpus(gather_and_release, {.block = 32}, 32).reports == 0);
}

TEST_CASE("a change goes on with a release sequence only for those that its scope includes") {
  CHECK(between_gpus(through<scope::system>, {.grid = 2}).reports == 0);
  CHECK(between_gpus(through<scope::device>, {.grid = 2}).reports >= 1);
}

TEST_CASE("atomics are atomic for those that both scopes include, and race with others") {
  CHECK(on_one_gpu(count<suffix::block>, {.block = 4}).reports == 0);
  CHECK(on_one_gpu(count<suffix::none>, {.grid = 4}).reports == 0);
  CHECK(between_gpus(count<suffix::system>).reports == 0);
  const result blocks = on_one_gpu(count<suffix::block>, {.grid = 4});
  CHECK(blocks.reports >= 1);
  CHECK(simulator_test::contains(blocks.text, "at scope block"));
  CHECK(simulator_test::contains(blocks.text, "need scope device"));
  const result gpus = between_gpus(count<suffix::none>);
  CHECK(gpus.reports >= 1);
  CHECK(simulator_test::contains(gpus.text, "need scope system"));
}
