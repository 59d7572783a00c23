/// Inline PTX in a program, as GPUs run it: the simulator has C++ in its place, instruction by instruction.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using u32 = std::uint32_t;
using u64 = unsigned long long;

constexpr int results = 64;

/// What one thread of `kernel(out, arguments...)` stores.
template <class... Parameters, class... Arguments>
std::vector<u64> run(void (*kernel)(u64*, Parameters...), unsigned threads, Arguments... arguments) {
  u64* out = nullptr;
  devcomm::check_cuda(cudaMallocHost(&out, results * sizeof(u64)), "cudaMallocHost");
  std::memset(out, 0, results * sizeof(u64));
  devcomm::launch(kernel, {.block = threads}, out, arguments...);
  devcomm::check_cuda(cudaDeviceSynchronize(), "kernel");
  std::vector<u64> found(out, out + results);
  devcomm::check_cuda(cudaFreeHost(out), "cudaFreeHost");
  return found;
}

__global__ void halves(u64* all, float a, float b) {
  auto* const out = reinterpret_cast<u32*>(all);
  std::uint16_t half = 0;
  float wide = 0;
  asm volatile("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(a));
  out[0] = half;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out[1]) : "f"(a), "f"(b));
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
  out[2] = static_cast<u32>(wide * 2);
  asm volatile("add.rn.f16x2 %0, %1, %2;" : "=r"(out[3]) : "r"(0x3c004000u), "r"(0x3c003c00u));
  asm volatile("fma.rn.bf16 %0, %1, %2, %3;"
               : "=h"(half)
               : "h"(std::uint16_t{0x4000}), "h"(std::uint16_t{0x4040}), "h"(std::uint16_t{0x3f80}));
  out[4] = half;
  asm volatile("max.f16x2 %0, %1, %2;" : "=r"(out[5]) : "r"(0x3c004000u), "r"(0x40003c00u));
  asm volatile("neg.f16 %0, %1;" : "=h"(half) : "h"(std::uint16_t{0x3c00}));
  out[6] = half;
}

int a_of(int row, int k) { return (row * 3 + k) % 7 - 3; }
int b_of(int k, int column) { return (k * 5 + column) % 5 - 2; }

/// The product of two matrices in shared memory, as kernels load them: A by rows, B by columns of a matrix in rows.
__global__ void product(u64* all, int a_step, int b_step) {
  __shared__ alignas(16) __half a[16][16];
  __shared__ alignas(16) __half b[16][8];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32)
    a[i / 16][i % 16] = __float2half(static_cast<float>((i / 16 * a_step + i % 16) % 7 - 3));
  for (int i = lane; i < 128; i += 32)
    b[i / 8][i % 8] = __float2half(static_cast<float>((i / 8 * b_step + i % 8) % 5 - 2));
  __syncthreads();
  u32 of_a[4];
  u32 of_b[2];
  float c[4] = {};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(of_a[0]), "=r"(of_a[1]), "=r"(of_a[2]), "=r"(of_a[3])
               : "r"(static_cast<u32>(__cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]))));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(of_b[0]), "=r"(of_b[1])
               : "r"(static_cast<u32>(__cvta_generic_to_shared(&b[lane % 16][0]))));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(of_a[0]), "r"(of_a[1]), "r"(of_a[2]), "r"(of_a[3]), "r"(of_b[0]), "r"(of_b[1]));
  // The registers themselves, too: lane 4g + t has of A row g, elements 2t and 2t + 1 first, and of B column g.
  const int g = lane / 4;
  const int t = lane % 4;
  const auto in_a = [&](u32 bits, int row, int k) { return bits == *reinterpret_cast<const u32*>(&a[row][k]); };
  const bool right =
      in_a(of_a[0], g, 2 * t) && in_a(of_a[1], g + 8, 2 * t) && in_a(of_a[2], g, 2 * t + 8) &&
      in_a(of_a[3], g + 8, 2 * t + 8) &&
      static_cast<std::uint16_t>(of_b[1] >> 16) == *reinterpret_cast<const std::uint16_t*>(&b[2 * t + 9][g]);
  auto* const out = reinterpret_cast<float*>(all);
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = right ? c[i] : -1000;
}

u32 bits(float value) {
  u32 result = 0;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

__global__ void integers(u64* all, u32 a, u32 b, u32 c) {
  auto* const out = reinterpret_cast<u32*>(all);
  int i = 0;
  asm volatile("add.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("sub.s32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("mul.lo.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("mul.hi.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("mul.hi.s32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("div.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(c));
  asm volatile("rem.s32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(c));
  asm volatile("min.s32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("max.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("and.b32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("or.b32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(b));
  asm volatile("shl.b32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(c));
  asm volatile("shr.s32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(c));
  asm volatile("shr.u32 %0, %1, %2;" : "=r"(out[i++]) : "r"(a), "r"(40u));
  asm volatile("not.b32 %0, %1;" : "=r"(out[i++]) : "r"(a));
  asm volatile("neg.s32 %0, %1;" : "=r"(out[i++]) : "r"(a));
  asm volatile("abs.s32 %0, %1;" : "=r"(out[i++]) : "r"(a));
  asm volatile("popc.b32 %0, %1;" : "=r"(out[i++]) : "r"(a));
  asm volatile("clz.b32 %0, %1;" : "=r"(out[i++]) : "r"(c));
  asm volatile("brev.b32 %0, %1;" : "=r"(out[i++]) : "r"(a));
  asm volatile("mad.lo.u32 %0, %1, %2, %3;" : "=r"(out[i++]) : "r"(a), "r"(b), "r"(c));
  asm volatile("bfe.u32 %0, %1, %2, %3;" : "=r"(out[i++]) : "r"(a), "r"(8u), "r"(12u));
  asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(out[i++]) : "r"(a), "r"(b), "r"(0x7302u));
  asm volatile("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(out[i++]) : "r"(a), "r"(b), "r"(c));
  asm volatile("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(out[i++]) : "r"(a), "r"(b), "r"(33u));
  asm volatile("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(out[i++]) : "r"(a), "r"(b), "r"(c));
  asm volatile("bfi.b32 %0, %1, %2, 4, 8;" : "=r"(out[i++]) : "r"(a), "r"(b));
}

TEST_CASE("warps multiply matrices") {
  const std::vector<u64> all = run(product, 32, 3, 5);
  const auto* const out = reinterpret_cast<const float*>(all.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += a_of(row, k) * b_of(k, column);
      CAPTURE(row, column);
      CHECK(out[row * 8 + column] == static_cast<float>(sum));
    }
  }
}

TEST_CASE("PTX computes with halves") {
  const std::vector<u64> all = run(halves, 1, 1.5f, -1.0f);
  const auto* const out = reinterpret_cast<const u32*>(all.data());
  CHECK(out[0] == 0x3e00);
  CHECK(out[1] == 0x3fc0bf80);
  CHECK(out[2] == 3);
  CHECK(out[3] == 0x40004200);
  CHECK(out[4] == 0x40e0);
  CHECK(out[5] == 0x40004000);
  CHECK(out[6] == 0xbc00);
}

TEST_CASE("integer instructions compute what GPUs compute") {
  constexpr u32 a = 0xf0e1d2c3;
  constexpr u32 b = 0x01234567;
  constexpr u32 c = 5;
  const auto sa = static_cast<std::int32_t>(a);
  const auto sb = static_cast<std::int32_t>(b);
  u32 reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (a >> i & 1) << (31 - i);
  const std::vector<u32> expected = {a + b,
                                     a - b,
                                     a * b,
                                     static_cast<u32>(u64{a} * b >> 32),
                                     static_cast<u32>(static_cast<u64>(std::int64_t{sa} * sb) >> 32),
                                     a / c,
                                     static_cast<u32>(sa % 5),
                                     a,
                                     a,
                                     a & b,
                                     a | b,
                                     a ^ b,
                                     a << c,
                                     static_cast<u32>(sa >> c),
                                     0,
                                     ~a,
                                     0u - a,
                                     0u - a,
                                     static_cast<u32>(__builtin_popcount(a)),
                                     29,
                                     reversed,
                                     a * b + c,
                                     a >> 8 & 0xfffu,
                                     0x01f0c3e1u,
                                     b << c | a >> (32 - c),
                                     b,
                                     (a & b) | (~a & c),
                                     (b & ~0xff0u) | (a & 0xffu) << 4};
  const std::vector<u64> found = run(integers, 1, a, b, c);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(static_cast<u32>(found[i / 2] >> (32 * (i % 2))) == expected[i]);
  }
}

__global__ void others(u64* out, float x, u64 wide) {
  float f;
  asm("fma.rn.f32 %0, %1, 0f40000000, %2;" : "=f"(f) : "f"(x), "f"(0.5f));
  out[0] = __float_as_uint(f);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(3.0f));
  out[1] = __float_as_uint(f);
  int n;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(n) : "f"(2.5f));
  out[2] = static_cast<u64>(n);
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(n) : "f"(3e10f));
  out[3] = static_cast<u64>(n);
  u32 low, high;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(wide));
  out[4] = low;
  out[5] = high;
  asm("mov.b64 %0, {%1, %2};" : "=l"(out[6]) : "r"(high), "r"(low));
  asm("{\n\t.reg .pred p, q;\n\tsetp.lt.f32 p|q, %1, 0f00000000;\n\tselp.u32 %0, 3, 4, q;\n}" : "=r"(low) : "f"(x));
  out[7] = low;
  asm("{ .reg .pred p; setp.ne.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(low) : "f"(x), "f"(__uint_as_float(~0u)));
  out[8] = low;
  asm("{ .reg .pred p; setp.neu.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(low)
      : "f"(x), "f"(__uint_as_float(~0u)));
  out[9] = low;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(out[10]) : "r"(0xffffffffu), "r"(3u), "l"(wide));
  int sum = 0;
  asm("{\n .reg .pred more;\n .reg .s32 left<2>;\n mov.s32 left0, %1;\nNEXT:\n add.s32 %0, %0, left0;  // a sum\n"
      " sub.s32 left0, left0, 1; setp.gt.s32 more, left0, 0;\n @more bra NEXT;\n}"
      : "+r"(sum)
      : "n"(10));
  out[11] = static_cast<u64>(sum);
  asm("max.f32 %0, %1, %2;" : "=f"(f) : "f"(__uint_as_float(0x7fc00000u)), "f"(x));
  out[12] = __float_as_uint(f);
}

TEST_CASE("numbers, pairs, predicates and loops of inline PTX") {
  const std::vector<u64> found = run(others, 1, 1.25f, u64{0x1122334455667788});
  CHECK(found[0] == bits(3.0f));
  CHECK(found[1] == bits(8.0f));
  CHECK(found[2] == 2);
  CHECK(found[3] == 0x7fffffff);
  CHECK(found[4] == 0x55667788);
  CHECK(found[5] == 0x11223344);
  CHECK(found[6] == 0x5566778811223344);
  CHECK(found[7] == 3);
  CHECK(found[8] == 0);
  CHECK(found[9] == 1);
  CHECK(found[10] == 0x1122334455667788 + 3 * u64{0xffffffff});
  CHECK(found[11] == 55);
  CHECK(found[12] == bits(1.25f));
}

__global__ void atomics(u64* out, u32* words, u64* wide) {
  const auto next = [&](u64 value) { *out++ = value; };
  u32 old;
  asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(words), "r"(5u) : "memory");
  next(old);
  asm volatile("atom.acq_rel.sys.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(words), "r"(9u) : "memory");
  next(old);
  asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(words), "r"(9u), "r"(12u) : "memory");
  next(old);
  asm volatile("red.release.gpu.global.max.s32 [%0], %1;" ::"l"(words), "r"(-3) : "memory");
  u64 old_wide;
  asm volatile("atom.add.u64 %0, [%1+8], %2;" : "=l"(old_wide) : "l"(wide), "l"(u64{7}) : "memory");
  next(old_wide);
  asm volatile("red.sys.global.or.b64 [%0+8], %1;" ::"l"(wide), "l"(u64{1} << 40) : "memory");
  asm volatile("atom.global.inc.u32 %0, [%1+4], 2;" : "=r"(old) : "l"(words) : "memory");
  asm volatile("atom.global.inc.u32 %0, [%1+4], 2;" : "=r"(old) : "l"(words) : "memory");
  asm volatile("atom.global.inc.u32 %0, [%1+4], 2;" : "=r"(old) : "l"(words) : "memory");
  next(old);
  float before;
  asm volatile("atom.global.add.f32 %0, [%1+8], %2;" : "=f"(before) : "l"(words), "f"(1.5f) : "memory");
  next(__float_as_uint(before));
  next(words[0]);
  next(words[1]);
  next(words[2]);
  next(wide[1]);
}

__global__ void accesses(u64* out, u32* words) {
  u32 a, b, c, d;
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(words), "r"(1u), "r"(2u), "r"(3u), "r"(4u) : "memory");
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(words + 4));
  out[0] = a + b + c + d;
  asm volatile("st.relaxed.sys.global.u32 [%0+16], %1;" ::"l"(words), "r"(50u) : "memory");
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2+8];" : "=r"(a), "=r"(b) : "l"(words) : "memory");
  out[1] = a * 10 + b;
  u64 pair;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(pair) : "l"(words) : "memory");
  out[2] = pair;
  unsigned short half;
  asm volatile("ld.relaxed.cta.u16 %0, [%1+16];" : "=h"(half) : "l"(words) : "memory");
  out[3] = half;
  asm volatile("st.release.sys.b16 [%0+16], %1;" ::"l"(words), "h"(static_cast<unsigned short>(77)) : "memory");
  out[4] = words[4];

  __shared__ u32 staged[4];
  u32 address;
  asm("{ .reg .u64 all; cvta.to.shared.u64 all, %1; cvt.u32.u64 %0, all; }" : "=r"(address) : "l"(staged));
  asm volatile("st.shared.u32 [%0+4], %1;" ::"r"(address), "r"(6u) : "memory");
  asm volatile("atom.shared.add.u32 %0, [%1+4], 3;" : "=r"(a) : "r"(address) : "memory");
  out[5] = staged[1];
  asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(a) : "r"(address + 4));
  out[6] = a;
  asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(a) : "l"(staged));
  asm("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(b) : "l"(staged));
  out[7] = a * 10 + b;
  asm volatile("fence.acq_rel.sys; membar.gl;" ::: "memory");
  asm volatile("fence.sc.gpu;" ::: "memory");
  asm volatile("prefetch.global.L2 [%0];" ::"l"(words));
}

TEST_CASE("memory instructions access what they name") {
  u32* words = nullptr;
  devcomm::check_cuda(cudaMallocHost(&words, 64), "cudaMallocHost");
  auto* const wide = reinterpret_cast<u64*>(words + 8);
  std::memset(words, 0, 64);
  words[0] = 20;
  wide[1] = 100;
  const std::vector<u64> found = run(atomics, 1, words, wide);
  CHECK(std::vector<u64>(found.begin(), found.begin() + 10) ==
        std::vector<u64>{20, 25, 9, 100, 2, 0, 12, 0, bits(1.5f), 107 | u64{1} << 40});

  for (u32 i = 0; i < 8; ++i) words[i] = 10 + i;
  const std::vector<u64> read = run(accesses, 1, words);
  CHECK(read[0] == 14 + 15 + 16 + 17);
  CHECK(read[1] == 34);
  CHECK(read[2] == (u64{2} << 32 | 1));
  CHECK(read[3] == 50);
  CHECK(read[4] == 77);
  CHECK(read[5] == 9);
  CHECK(read[6] == 9);
  CHECK(read[7] == 10);
  devcomm::check_cuda(cudaFreeHost(words), "cudaFreeHost");
}

__global__ void warps(u64* out) {
  u32 tid, lane, mask, ballot, shuffled, same, count, elected;
  asm("mov.u32 %0, %%tid.x;" : "=r"(tid));
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  asm volatile("{ .reg .pred p; setp.ge.u32 p, %1, 30; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(ballot)
               : "r"(lane));
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(shuffled) : "r"(tid));
  asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(lane / 16));
  asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 40; bar.red.popc.u32 %0, 1, 64, p; }" : "=r"(count) : "r"(tid));
  asm volatile("bar.warp.sync 0xffffffff; barrier.sync 0; bar.sync 2, 64;");
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
  if (tid == 37) {
    out[0] = lane;
    out[1] = mask;
    out[2] = ballot;
    out[3] = shuffled;
    out[4] = same;
    out[5] = count;
    u32 size;
    asm("mov.u32 %0, %%ntid.x;" : "=r"(size));
    out[6] = size;
    asm volatile("nanosleep.u32 100;");
  }
  if (elected != 0) out[7 + tid / 32] = 1;
}

TEST_CASE("warps, barriers and special registers of inline PTX") {
  const std::vector<u64> found = run(warps, 64);
  CHECK(std::vector<u64>(found.begin(), found.begin() + 9) ==
        std::vector<u64>{5, 31, 0xc0000000, 36, 0xffff, 40, 64, 1, 1});
}

__global__ void generation(u64* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  out[0] = __CUDA_ARCH__;
#endif
#if defined(__CUDACC__)
  out[1] = 1;
#endif
}

TEST_CASE("the macros of nvcc are those of the simulated GPU") {
  const std::vector<u64> found = run(generation, 1);
  CHECK(found[0] >= 900);
  CHECK(found[1] == 1);
}

}  // namespace
