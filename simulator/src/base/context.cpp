#include "base/context.hpp"

#include <cstdint>

// Floating-point control words are not switched: every thread of a process that has not changed them
// has the same ones, and kernels cannot change them.
#if defined(__x86_64__)

asm(R"(
.text
.globl devcomm_simulator_switch
.type devcomm_simulator_switch, @function
.p2align 4
devcomm_simulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size devcomm_simulator_switch, .-devcomm_simulator_switch

.globl devcomm_simulator_keep_registers
.type devcomm_simulator_keep_registers, @function
.p2align 4
devcomm_simulator_keep_registers:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  movq $0, (%rsp)
  movq %rdi, %rax
  movq %rsp, %rdi
  call *%rax
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size devcomm_simulator_keep_registers, .-devcomm_simulator_keep_registers
)");

namespace devcomm::simulator::detail {

void* make_context(char* top, void (*entry)()) {
  auto* stack = reinterpret_cast<uint64_t*>(top);
  *--stack = 0;  // where a return address would be: the end of every backtrace
  *--stack = reinterpret_cast<uint64_t>(entry);
  for (int saved = 0; saved < 6; ++saved) *--stack = 0;
  return stack;
}

}  // namespace devcomm::simulator::detail

#elif defined(__aarch64__)

asm(R"(
.text
.globl devcomm_simulator_switch
.type devcomm_simulator_switch, %function
.p2align 4
devcomm_simulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size devcomm_simulator_switch, .-devcomm_simulator_switch

.globl devcomm_simulator_keep_registers
.type devcomm_simulator_keep_registers, %function
.p2align 4
devcomm_simulator_keep_registers:
  sub sp, sp, #96
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  mov x1, x0
  mov x0, sp
  blr x1
  ldp x29, x30, [sp, #80]
  add sp, sp, #96
  ret
.size devcomm_simulator_keep_registers, .-devcomm_simulator_keep_registers
)");

namespace devcomm::simulator::detail {

void* make_context(char* top, void (*entry)()) {
  auto* stack = reinterpret_cast<uint64_t*>(top) - 20;
  for (int i = 0; i < 20; ++i) stack[i] = 0;
  stack[11] = reinterpret_cast<uint64_t>(entry);  // x30; x29 is 0: the end of every backtrace
  return stack;
}

}  // namespace devcomm::simulator::detail

#else
#  error "the simulator switches stacks on x86-64 and aarch64 only"
#endif
