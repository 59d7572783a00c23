/// \file arch.cuh
/// The seam: everything that differs between a GPU and the simulator, as functions.
///
/// `arch/` implements them for CUDA with PTX and intrinsics, the simulator with fibers and
/// compiler built-ins. No other header may use either. Both give these guarantees, in namespace
/// `arch`:
///
/// Place. `thread_rank()`, `block_threads()`, `block_rank()`, `grid_blocks()`: linear indices, x
/// fastest. `lane()`: index in the warp of 32 threads.
///
/// Execution. `sync_block()`, `sync_warp(mask)`, `sync_named(barrier, threads)`: every participant
/// arrives before any leaves, and what each wrote before is visible to all after. `sync_block_or`,
/// `sync_block_or_apart`, `sync_named_or` also return whether any participant passed true. `any(mask, p)`,
/// `ballot(mask, p)`, `shuffle(mask, v, lane)`, `shuffle_wide` of 8 bytes, `active_mask()`: as CUDA's; they order no
/// memory.
///
/// Memory. `load<order, scope>(p)`, `store<order, scope>(p, v)`, `fetch_add`, `fetch_or`, `exchange`, `fence<order,
/// scope>()`: the PTX memory model's strong operations on 4- and 8-byte integers in global memory;
/// `compare_exchange<scope>(p, expected, v)`: a relaxed one, which returns what was there. `load16(p)`,
/// `store16(p, v)`, `load16_streaming`, `store16_streaming`: weak 16-byte accesses, aligned to 16;
/// streaming ones expect no re-use. `load_bytes<Bytes>(p)`, `store_bytes_streaming<Bytes>(p, v)`: the same of 4, 8 or
/// 16 bytes, aligned to as many. `load_halves(p)`, `store_halves(p, v)`: strong relaxed accesses at system scope to 16
/// bytes, aligned to 16, as two halves: each is whole, and one may be seen before the other. `load_words`,
/// `store_words`: the same as four words of 4 bytes.
///
/// `tell_launch(flag, value)`: a relaxed exchange at system scope that says that the calling thread's launch has begun;
/// `see_launch(flag)` follows the load that found its value. What came before that launch in its stream is ordered
/// before what the reader stores from now on: it is complete when the launch begins, and no store is made before the
/// load that it depends on. The simulator orders what the reader loads, too.
///
/// Bulk copies. `store_bulk(to, shared, bytes)` stores shared memory of the block to global memory asynchronously,
/// addresses and size multiples of 16; `finish_bulk_stores()` waits until the calling thread's are complete, which
/// comes before what the thread does next. `fence_async()`: what the thread wrote, or has seen by an acquire, comes
/// before what bulk and tensor copies that it issues, or that are issued by a thread that it synchronizes with, access.
/// GPUs before compute capability 9.0 have none of them: the fence is empty there, and the store ends the kernel.
///
/// Lines. `load_lines(p)`, `store_lines(p, v)`: strong relaxed accesses at system scope by all 32 lanes of a warp, to
/// 16 bytes each; eight lanes together to a line of 128 bytes, aligned to 128. Where links keep lines whole, see
/// ll128_session.cuh, no `load_lines` sees a part of what `store_lines` stored to a line; other lines may be seen
/// before or after it. A wait that repeats `load_lines` may sleep until the last 8 bytes of one of its lines change.
/// `join_warp()` comes before: lanes that have gone separate ways go on together. None of them orders anything else.
///
/// Multicast, in multimem.cuh. `multimem_load_reduce<operation, T, Bytes, plain, order, scope>(p)`,
/// `multimem_store<Bytes, plain, order, scope>(p, words)` and `multimem_reduce<operation, T, Bytes, order,
/// scope>(p, words)`, of the forms in multimem_forms.hpp: to multicast addresses, and nothing else goes to these.
/// Each member's memory is accessed for itself, in any order; each element is whole. `plain` accesses are ordered
/// by barriers only, as plain ones to other memory. `fence_alias()`: orders this thread's accesses to memory by its
/// multicast address and by others. `multimem_type_of<T>`; `has_multimem`, `has_small_multimem`: whether the target
/// has these, and for 8-bit types.
///
/// Numbers. `smaller(a, b)`, `larger(a, b)` of floating-point numbers: a number rather than NaN, and -0 is below +0.
/// `multiply(a, b)`: rounded by itself, never fused with a sum. `exp(x)`, `tanh(x)`, `rsqrt(x)`: of `float`.
/// `is_small_float<T>`: whether `T` is one of CUDA's floating-point types of 1 or 2 bytes.
///
/// Launches. `wait_for_prior_launch()`, `allow_dependent_launch()`: see dependent_launch.cuh.
///
/// `store_check(p, v)`, `load_check(p)`, `check_fence<order>()`: relaxed 8-byte accesses and fences at system scope,
/// for what checks a launch and is no part of it: in the simulator neither race detectors nor delays of stores know
/// of them, so that the check hides no mistake. `poll_check(p)` is a `load_check` that a wait repeats.
///
/// Storage. `shared_array<Tag, T, N>()`: `N` uninitialized `T`, one array a block for each `Tag`.
///
/// Failure. `fail_assertion(condition, message, file, line)`: prints where and what, ends the kernel.
/// `unwinding()`: whether the thread is leaving a kernel that something has ended.
///
/// Time. `global_time()`: nanoseconds, one clock for all blocks of a GPU. `time_stamp()`: the same, not
/// reordered with the accesses to memory around it. `sleep(ns)`: a hint.
///
/// Waiting. A `wait_scope(label, abort_word, log)` names, for as long as it lives, what the calling thread waits
/// for, the word that ends the wait, and the failure log in which the host says that it is to end, by functions that
/// return them; `wait_scope::pause()` is called after each poll that found nothing. Both are empty on GPUs.
/// `wait_scope::describe(label)` is `label()`, whose loads are no polls. `polls_per_round`, `rounds_per_check`: how
/// often a wait polls between two reads of the abort word and the clock. `host_turn(turn, now, waited)`: whether a
/// thread that has waited for so long may read host memory now. `turn` is a word of the rank's: once in `host_interval`
/// nanoseconds one of the threads that ask gets true, and none in the first `first_host_turn` nanoseconds of its wait;
/// in the simulator also whenever the log says so. `noted_after`: how long a wait lasts before it is written into the
/// watchdog's table. `proxy_turn(last, now)`: not 0 where a thread that waits for a word of the network's proxy may
/// load it from host memory now: the lanes of one warp that ask together, once in `proxy_interval` nanoseconds for a
/// context; `last` is a word of the context's. In the simulator every time, as a wait there sleeps until a word that it
/// has loaded changes. `latest_proxy_turn(last)`: what the latest lanes got; 0 in the simulator.
/// `short_puts_are_values`: whether the thread that posts a put of at most 8 bytes reads its source; in the simulator
/// the proxy does, so that a missing flush is found whatever the size, unless the whole program is compiled with
/// `DEVCOMM_SHORT_PUTS_ARE_VALUES`.
///
/// Sessions. `begin_session(id)`, `call_session(id, call)`, `leave_session(id)`: what a thread does with a session,
/// `id` being a function that returns its `session_id`; the last one after the group's final sync. Empty on GPUs; the
/// simulator names misuse. `observes_sessions`: whether they are more than empty. `note_post(word)`: the next store to
/// `word` hands an operation to the network's proxy; empty on GPUs.
#pragma once

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/arch.cuh>
#elif defined(__CUDACC__)
#  include <devcomm/arch/cuda.cuh>
#else
#  error "devcomm's .cuh headers need nvcc, clang -x cuda or NVRTC; for plain C++ link devcomm::simulator"
#endif
