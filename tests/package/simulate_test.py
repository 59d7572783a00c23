#!/usr/bin/env python3
"""devcomm-simulate on files as users have them: what it says, its exit statuses, and what it builds anew."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

WORK = pathlib.Path(os.environ["WORK"])
PROGRAM = WORK / "installed/bin/devcomm-simulate"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DEVCOMM_")} | {"XDG_CACHE_HOME": str(WORK / "cache")}

# Each GPU gives its number to the next; signals are inline PTX in a header, and the launch is in another.
MAIN = """
#include "launch.cuh"
#include <cstdio>
#include <cstdlib>
#include <cstring>
int main(int argc, char** argv) {
  int devices = 0;
  cudaGetDeviceCount(&devices);
  unsigned *memory[16], *out[16];
  for (int d = 0; d < devices; ++d) {
    cudaSetDevice(d);
    cudaMalloc(&memory[d], 1024);
    cudaMemset(memory[d], 0, 1024);
    cudaMalloc(&out[d], 256);
    cudaDeviceSynchronize();
    for (int p = 0; p < devices; ++p) if (p != d) cudaDeviceEnablePeerAccess(p, 0);
  }
  for (int d = 0; d < devices; ++d) {
    cudaSetDevice(d);
    launch(memory[d], memory[(d + 1) % devices], out[d], d);
  }
  for (int d = 0; d < devices; ++d) {
    cudaSetDevice(d);
    if (cudaDeviceSynchronize() != cudaSuccess) return 3;
    unsigned got[64];
    cudaMemcpy(got, out[d], 256, cudaMemcpyDeviceToHost);
    for (unsigned i = 0; i < 64; ++i)
      if (got[i] != 100u * ((d + devices - 1) % devices) + i) return 1;
  }
  std::printf("%d devices, %s\\n", devices, argc > 1 ? argv[1] : "no argument");
  if (argc > 1 && std::strcmp(argv[1], "fails") == 0) return 5;
  if (argc > 1 && std::strcmp(argv[1], "says") == 0) std::printf("FAILED\\n");
  if (argc > 1 && std::strcmp(argv[1], "hangs") == 0) for (;;) {}
  if (argc > 1 && std::strcmp(argv[1], "crashes") == 0) std::abort();
  const char* lsa = std::getenv("DEVCOMM_LSA_SIZE");
  if (lsa != nullptr) std::printf("LSA teams of %s\\n", lsa);
}
"""
LAUNCH = """
#pragma once
#include <signals.cuh>
__global__ void exchange(unsigned* mine, unsigned* peer, unsigned* out, int rank) {
  const unsigned i = threadIdx.x;
  peer[i] = 100 * rank + i;
  __syncthreads();
  if (i == 0) signal(peer + 64);
  if (i == 0) wait(mine + 64);
  __syncthreads();
  out[i] = mine[i];
}
inline void launch(unsigned* mine, unsigned* peer, unsigned* out, int rank) { exchange<<<1, 64>>>(mine, peer, out, rank); }
"""
SIGNALS = """
#pragma once
__device__ inline void signal(unsigned* flag) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
#endif
#if __CUDA_ARCH__ >= 1000
  asm volatile("tcgen05.wait::ld.sync.aligned;");
#endif
}
__device__ inline void wait(const unsigned* flag) {
  unsigned seen = 0;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  } while (seen == 0);
}
"""
MACROS = r"""
#pragma once
#define DEFINE_STORE(order, scope)                                                                    \
  __device__ inline void store_##order(unsigned* flag, unsigned value) {                              \
    asm volatile("st." #order "." #scope ".global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory"); \
  }
DEFINE_STORE(ORDER, sys)
#define LOAD_OF "ld.acquire."
__device__ inline void signal(unsigned* flag) { store_ORDER(flag, 1); }
__device__ inline void wait(const unsigned* flag) {
  unsigned seen = 0;
  do {
    asm volatile(LOAD_OF "sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  } while (seen == 0);
}
"""
PACKETS = r"""
#include <cuda_runtime.h>
__device__ void put(uint4* to, unsigned value, unsigned flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %1, %2};" ::"l"(to), "r"(value), "r"(flag) : "memory");
}
__device__ unsigned take(const uint4* from, unsigned flag) {
  unsigned a, b, c, d;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from) : "memory");
#ifdef ONE_FLAG
  } while (b != flag);
#else
  } while (b != flag || d != flag);
#endif
  return a == c ? a : 0;
}
__global__ void exchange(uint4* mine, uint4* peer, unsigned* out, unsigned rank) {
  unsigned sum = 0;
  for (unsigned round = 1; round <= 2; ++round) {
    put(peer + round % 2, 10 * round + rank, round);
    sum += take(mine + round % 2, round);
  }
  *out = sum;
}
int main() {
  uint4* packets[2];
  unsigned* out[2];
  for (int d = 0; d < 2; ++d) {
    cudaSetDevice(d);
    cudaMalloc(&packets[d], 32);
    cudaMemset(packets[d], 0, 32);
    cudaMalloc(&out[d], 4);
    cudaDeviceSynchronize();
  }
  for (unsigned d = 0; d < 2; ++d) {
    cudaSetDevice(d);
    exchange<<<1, 1>>>(packets[d], packets[1 - d], out[d], d);
  }
  for (unsigned d = 0; d < 2; ++d) {
    unsigned sum = 0;
    cudaSetDevice(d);
    if (cudaMemcpy(&sum, out[d], 4, cudaMemcpyDeviceToHost) != cudaSuccess || sum != 30 + 2 * (1 - d)) return 1;
  }
  return 0;
}
"""
failed = 0


def complain(text, ran=None):
    global failed
    failed = 1
    print(text)
    if ran is not None:
        print(f"it ended with {ran.returncode} and said\n{ran.stdout}{ran.stderr}")


def simulate(*words, source="ring.cu", **variables):
    return subprocess.run([PROGRAM, *([source] if source else []), *words], cwd=WORK, env=ENVIRONMENT | variables,
                          capture_output=True, text=True, timeout=200)  # fmt: skip


def expect(what, status, texts, ran):
    said = ran.stdout + ran.stderr
    missing = [text for text in texts if not re.search(text, said)]
    if ran.returncode != status or missing:
        complain(f"{what}: expected {status} and {missing or 'nothing more'}", ran)
    return said


def write(name, text):
    path = WORK / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


shutil.rmtree(WORK, ignore_errors=True)
subprocess.run([os.environ["CMAKE"], "--install", os.environ["BUILD_DIR"], "--prefix", WORK / "installed"], check=True,
               stdout=subprocess.DEVNULL)  # fmt: skip
write("ring.cu", MAIN)
write("include/launch.cuh", LAUNCH)
write("include/signals.cuh", SIGNALS)

# A right program, and what is reused.
said = expect("a right program", 0, ["built for plain, race", r"plain +ranks 2 +seed 1 +passed", r"race +ranks 4 +seed 2 +passed",
                                     "8 runs: 8 passed"], simulate("-I", "include", "--seeds", "2"))  # fmt: skip
expect("the same again", 0, ["built for plain, race in 0"], simulate("-I", "include", "--seeds", "2"))
expect("arguments", 0, ["2 devices, a b", "LSA teams of 1"],
       simulate("-I", "include", "--plain", "--verbose", "--ranks", "2", "--hosts", "2", "--seed", "7", "--", "a b"))

# Each way in which a run may end.
expect("a failure", 1, ["exit status 5", "-- to repeat: devcomm-simulate ring.cu -I .*include --plain --ranks 2 --seed 1 -- fails"],
       simulate("-Iinclude", "--plain", "--ranks=2", "--seeds", "1", "--", "fails"))  # fmt: skip
expect("a crash", 1, ["SIGABRT"], simulate("-Iinclude", "--plain", "--ranks", "2", "--seeds", "1", "--", "crashes"))
expect("a failure that is said", 1, ["ranks 2 .* failed .*exit status 0"],
       simulate("-Iinclude", "--plain", "--ranks", "2", "--seeds", "1", "--fails-with", "^FAILED|FAILED$", "--", "says"))
expect("a hang", 5, [r"timeout +1\.", "did not end in time"],
       simulate("-Iinclude", "--plain", "--ranks", "2", "--seeds", "1", "--timeout", "1", "--", "hangs"))

# A header changes: a release becomes relaxed, a race. Its report names the user's own lines.
write("include/signals.cuh", SIGNALS.replace("st.release", "st.relaxed"))
ran = simulate("-I", "include", "--race", "--ranks", "2", "--seeds", "2", "--json", "result.json")
said = expect("a race", 4, ["data race", r"include/launch\.cuh:6 in exchange", r"include/launch\.cuh:11 in exchange", "2 race"], ran)
result = json.loads((WORK / "result.json").read_text())
if result["status"] != 4 or [run["result"] for run in result["runs"]] != ["race", "race"] or "data race" not in result["runs"][0]["output"]:
    complain(f"the JSON file has {result}")
command = re.search(r"-- to repeat: (.*)", said)
again = subprocess.run(command[1].replace("devcomm-simulate", str(PROGRAM), 1), shell=True, cwd=WORK, env=ENVIRONMENT,
                       capture_output=True, text=True)  # fmt: skip
expect("the command that repeats it", 4, ["1 runs: 1 race"], again)
write("include/signals.cuh", SIGNALS)

# Inline PTX that the preprocessor puts together, in definitions and in statements.
for order, status in (("release", 0), ("relaxed", 4)):
    write("include/signals.cuh", MACROS.replace("ORDER", order))
    expect(f"macros, {order}", status, ["1 runs"], simulate("-I", "include", "--race", "--ranks", "2", "--seeds", "1"))
write("include/signals.cuh", SIGNALS)

# Every interleaving: packets whose halves may come apart. One flag for both is wrong in few orders.
write("packets.cu", PACKETS)
expect("all interleavings", 0, [r"explore +ranks 2 .*passed .* executions, which are all"],
       simulate("--explore", "--ranks", "2", source="packets.cu"))
said = expect("an interleaving that fails", 1, ["execution [0-9]+ fails: the program ended with status 1"],
              simulate("-DONE_FLAG", "--explore", "--ranks", "2", source="packets.cu"))
command = re.search(r"-- to repeat: (.*--replay devcomm-schedule-ranks2.txt)", said)
again = subprocess.run(command[1].replace("devcomm-simulate", str(PROGRAM), 1), shell=True, cwd=WORK, env=ENVIRONMENT,
                       capture_output=True, text=True)  # fmt: skip
expect("the schedule that repeats it", 1, ["1 executions", "the program ended with status 1"], again)

# What does not compile names file and line, and no word that the user has not written.
said = expect("another GPU", 3, [r"signals\.cuh:8:.*the simulator has no such PTX: tcgen05\.wait::ld\.sync\.aligned"],
              simulate("-Iinclude", "--plain", "--arch", "sm_100"))  # fmt: skip
write("broken.cu", "__global__ void k();\nint main() {\n  k<<<1, 1;\n}\n")
expect("a launch that is not closed", 3, [r"broken\.cu:3: error: '<<<' is not closed"], simulate(source="broken.cu"))
write("broken.cu", "int main() {\n  return nothing;\n}\n")
expect("a mistake in C++", 3, [r"broken\.cu:2:.*nothing"], simulate(source="broken.cu"))

# Lanes of a warp at two instructions of one barrier, each named by the user's line.
write("lanes.cu", """__global__ void k() {
  if (threadIdx.x % 2 == 0) {
    asm volatile("bar.sync 0;");
  } else {
    asm volatile("bar.sync 0;");
  }
}
int main() { k<<<1, 32>>>(); return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1; }
""")
expect("two barriers of one warp", 1, ["one warp are at two calls of __syncthreads", r"lanes\.cu:3", r"lanes\.cu:5"],
       simulate("--plain", "--ranks", "1", "--seeds", "1", source="lanes.cu"))

# What the simulator does not have is refused in a sentence.
MAIN_OF = "\n__global__ void k(float* p) {{ {device} }}\nint main() {{ {host} k<<<1, 1>>>(nullptr); return 0; }}\n"
for device, host, text in (
        ("", "float* p; cudaMallocManaged(&p, 4);", r"refused\.cu:3:.*no managed memory; take cudaMallocHost"),
        ('asm volatile("wgmma.fence.sync.aligned;");', "", r"refused\.cu:2:.*wgmma\.fence.* it has no products of this kind; take mma"),
        ("p[0] = tex1Dfetch<float>(0, 1);", "", r"refused\.cu:2:.*no textures; load from global memory"),
        ("", "cudaGraph_t g; cudaGraphCreate(&g, 0);", r"refused\.cu:3:.*capture a stream")):  # fmt: skip
    write("refused.cu", MAIN_OF.format(device=device, host=host))
    expect(f"refused: {device}{host}", 3, [text], simulate("--plain", source="refused.cu"))

# AddressSanitizer, a second source, libraries, volatile as plain memory.
write("past.cu", "__global__ void k(int* p) { p[threadIdx.x] = helper(); }\n".replace("helper()", "7") + """
#include <cstdlib>
int helper();
int main() {
  int* p = nullptr;
  cudaMalloc(&p, 100);
  k<<<1, 32>>>(p);
  return cudaDeviceSynchronize() == cudaSuccess ? helper() : 1;
}
""")
write("helper.cpp", "#include <cmath>\nint helper() { return static_cast<int>(std::floor(VALUE)); }\n")
expect("an access past the end", 1, ["AddressSanitizer", r"past\.cu:1"],
       simulate("helper.cpp", "-DVALUE=0.5", "-lm", "--address", "--ranks", "1", "--seeds", "1", source="past.cu"))
write("poll.cu", """
__global__ void k(volatile int* flag, int* data) {
  if (threadIdx.x == 32) { data[0] = 5; __threadfence(); flag[0] = 1; }
  if (threadIdx.x == 0) { while (flag[0] == 0) {} __threadfence(); data[1] = data[0]; }
}
int main() {
  int* p = nullptr;
  cudaMalloc(&p, 100);
  cudaMemset(p, 0, 100);
  k<<<1, 64>>>(p, p + 8);
  int found[2];
  cudaMemcpy(found, p + 8, 8, cudaMemcpyDeviceToHost);
  return found[1] == 5 ? 0 : 1;
}
""")
expect("volatile as relaxed", 0, ["2 passed"], simulate("--race", "--ranks", "1", "--seeds", "2", source="poll.cu"))
expect("volatile as plain", 4, ["data race"],
       simulate("--race", "--ranks", "1", "--seeds", "2", "--volatile", "plain", source="poll.cu"))

# Programs for NCCL, outside of the project; and one whose last barrier does not release.
shutil.copytree(pathlib.Path(os.environ["SOURCE_DIR"]) / "tests/nccl/programs", WORK / "nccl", dirs_exist_ok=True)
for program in sorted((WORK / "nccl").glob("*.cu")):
    expect(program.name, 0, ["8 passed"], simulate("--nccl", "--seeds", "2", source=f"nccl/{program.name}"))
write("nccl/host.cpp", "#include <nccl_device.h>\nint ranks_of(const ncclDevComm& comm) { return ncclTeamWorld(comm).nRanks; }\n")
expect("with a file for the host", 0, ["2 passed"],
       simulate("--nccl", "--ranks", "2", "--seeds", "1", "nccl/host.cpp", source="nccl/lsa_all_reduce.cu"))
text = (WORK / "nccl/lsa_all_reduce.cu").read_text()
write("nccl/weak.cu", text.replace("cuda::memory_order_release", "cuda::memory_order_relaxed"))
expect("a relaxed barrier", 4, ["data race"], simulate("--nccl", "--race", "--ranks", "2", "--seeds", "4", source="nccl/weak.cu"))

# Under MPI: threads, processes where a variable is for one rank alone, and a rank that leaves early.
program = "nccl/mpi/all_reduce_under_mpi.cu"
text = (WORK / program).read_text()
expect("MPI", 0, ["8 passed"], simulate("--nccl", "--mpi", "2,8", "--seeds", "2", source=program))
expect("MPI on two hosts", 0, ["2 passed"], simulate("--nccl", "--mpi", "4", "--hosts", "2", "--race", "--seeds", "2", source=program))
write("nccl/mpi/weak.cu", text.replace("cuda::memory_order_release", "cuda::memory_order_relaxed"))
expect("a race under MPI", 4, ["data race"], simulate("--nccl", "--mpi", "2", "--race", "--seeds", "4", source="nccl/mpi/weak.cu"))
write("nccl/mpi/global.cu", text.replace("int main(", "int calls = 0;\nint main(").replace("int wrong = 0;", "int wrong = calls++;"))
expect("MPI by processes", 0, ["threads would share calls", "4 passed"],
       simulate("--nccl", "--mpi", "2,4", "--plain", "--seeds", "2", source="nccl/mpi/global.cu"))
write("nccl/mpi/on_gpu.cu", text.replace("int main(", "__device__ int calls = 0;\nint main("))
said = expect("a variable of GPUs", 0, ["4 passed"], simulate("--nccl", "--mpi", "2", "--seeds", "2", source="nccl/mpi/on_gpu.cu"))
if "threads would share" in said:
    complain("a variable of GPUs makes processes of ranks")
write("nccl/mpi/early.cu", text.replace("  CHECK(MPI_Finalize());", "  if (rank == 1) return 0;\n  CHECK(MPI_Finalize());"))
expect("a rank that returns early", 1, ["MPI_Finalize: rank 1 has returned from main, and does not come"],
       simulate("--nccl", "--mpi", "2", "--plain", "--seeds", "1", source="nccl/mpi/early.cu"))

# Wrong command lines say what to do.
for words, text in ((["--ranks", "two"], "--ranks takes a whole number from 1"), (["--sedes", "3"], "unknown option '--sedes'"),
                    (["-I", "nowhere"], "no such folder"), (["--schedule", "best"], "--schedule takes one of random, pct"),
                    (["--fails-with", "("], "takes a regular expression"), (["--hosts", "3"], "choose others by --ranks"),
                    (["--arch", "90x"], "takes a GPU as sm_90"), (["--seeds"], "nothing follows --seeds"),
                    (["extra"], "'extra' is no source"), (["other.cu"], "no file other.cu"),
                    (["--mpi", "2", "--explore"], "do not go together"),
                    (["--replay", "none"], "there is no file none")):  # fmt: skip
    expect(" ".join(words), 2, [text], simulate(*words))
expect("no source", 2, ["give a .cu file"], simulate(source=None))
expect("no compiler", 2, ["there is no C\\+\\+ compiler 'no-such-compiler'"], simulate("-Iinclude", CXX="no-such-compiler"))
expect("help", 0, ["--volatile KIND", "Exit status: 0 all runs passed"], simulate("--help", source=None))

# Ctrl-C ends it, and what it runs, at once.
process = subprocess.Popen([PROGRAM, "ring.cu", "-Iinclude", "--plain", "--ranks", "2", "--", "hangs"], cwd=WORK, env=ENVIRONMENT,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip
process.stdout.readline()  # built
time.sleep(1)
os.killpg(process.pid, signal.SIGINT)
try:
    process.wait(5)
except subprocess.TimeoutExpired:
    complain("Ctrl-C does not end it")
    os.killpg(process.pid, signal.SIGKILL)
left = []
for commands in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        left += [c for c in [commands.read_bytes().decode(errors="replace")] if c.startswith(str(WORK / "cache"))]
    except OSError:  # it has just ended
        pass
if process.returncode != 130 or left:
    complain(f"after Ctrl-C it ended with {process.returncode}, and left {left or 'nothing'}")
sys.exit(failed)
