"""What devcomm_translate.py says of what it cannot rewrite, and what it leaves alone."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = sys.argv[1]
CASES = {
    "void f() {\n  k<<<1, 1;\n}\n": ":2: error: '<<<' is not closed by '>>>'",
    "void f() {\n\n  k<<<1, 1>>>;\n}\n": ":3: error: after '>>>' the kernel's arguments in parentheses are missing",
    "void f() {\n  <<<1, 1>>>(a);\n}\n": ":2: error: there is no kernel before '<<<'",
    "void f() {\n  k<<<>>>(a);\n}\n": ":2: error: '<<<' needs the grid and the block",
    "void f() {\n  k<<<1, 1>>>(a, (b);\n": ":2: error: '(' is not closed",
}
LEFT_ALONE = [
    "int main() { return 0; }\n",
    "// k<<<1, 1>>>()\n/* k<<<1, 1>>>() */\n",
    'const char* s = "k<<<1, 1>>>()";\nconst char* r = R"x(k<<<1>>>("))x";\nint n = 1\'000;\n',
    "std::map<int, std::vector<std::vector<int>>> m;\n",
    "template <> bool operator<<<int>(int);\n",
    'void f() { asm volatile("pause" ::: "memory"); asm volatile("" ::: "memory"); }\n',
    'asm(".globl name");\nint asm_of(int asm_);\n',
]

failed = 0
with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder) / "case.cu"
    result = pathlib.Path(folder) / "case.cpp"

    def run(text):
        source.write_text(text)
        return subprocess.run([sys.executable, SCRIPT, "launches", source, result], capture_output=True, text=True)

    for text, expected in CASES.items():
        ran = run(text)
        if ran.returncode == 0 or f"{source}{expected}" not in ran.stderr:
            print(f"of\n{text}it says {ran.returncode}: {ran.stderr}\nexpected {expected}")
            failed = 1
    for text in LEFT_ALONE:
        ran = run(text)
        if ran.returncode != 0 or result.read_text() != f'#include "{source}"\n':
            print(f"it rewrites\n{text}to\n{result.read_text() if result.exists() else ran.stderr}")
            failed = 1
    ran = run("__global__ void k();\n__global__ __launch_bounds__(64) void k() {\n  if (a) return;\n}\nvoid f() { return; }\n")
    marked = [line for line in result.read_text().split("\n") if "return_at(__LINE__)" in line]
    if ran.returncode != 0 or len(marked) != 1 or not marked[0].startswith("  if (a) return "):
        print(f"early returns of kernels are not marked: {ran.stderr}{result.read_text()}")
        failed = 1
    ran = run("void f() {\n  cudaLaunchKernel((const void*)k<int>, g, b, a);\n"
              "  cudaLaunchKernelExC(&c, reinterpret_cast<void*>(k), a);\n  use((void*)k);\n}\n")
    made = result.read_text()
    if ran.returncode != 0 or not all(text in made for text in ("Kernel(k<int>, g", "ExC(&c, (k), a", "use((void*)k)")):
        print(f"casts of kernels in launches are not dropped: {ran.stderr}{made}")
        failed = 1
    nested = ("auto l = [&] { return; };", "auto l = [&](int i) mutable { if (i) { return; } };",
              "auto l = []<class T>(T) -> void { return; };", "struct s { void f() { return; } };")
    for text in nested:
        ran = run("__global__ void k() {\n  " + text + "\n  if (a[0]) { return; } else { return; }\n}\n")
        marked = [line.count("return_at(__LINE__)") for line in result.read_text().split("\n") if "return_at(" in line]
        if ran.returncode != 0 or marked != [2]:
            print(f"returns of a kernel's lambdas are taken for its own: {ran.stderr}{result.read_text()}")
            failed = 1
    variables = ("__device__ int n;", "static __device__ unsigned counters[4] = {};", "__constant__ float weights[16];",
                 "__device__ __align__(16) struct { int a; } both;", "__device__ volatile int flag{0};",
                 "namespace n { __device__ std::pair<int, int> p = {1, 2}; }")
    others = ("__device__ int f(int n);", "__device__ __forceinline__ T& operator[](int i) { return a[i]; }",
              "auto l = [=] __device__ { return 1; };", "auto l = [] __device__(int i) { return i; };",
              "__device__ constexpr int n = 5;", "template <int N> __device__ int each;", "#define HERE __device__\nint a;",
              "struct s { __host__ __device__ explicit s(int a) : b{a} {} int b; };", "extern __device__ int n;",
              "__device__ bool operator=(int);", "__device__ auto g() -> int { return 1; }",
              "struct t { __device__ ~t() = default; };")
    for text, wanted in [*((v, 1) for v in variables), *((o, 0) for o in others)]:
        ran = run(text + "\n__global__ void k() { return; }\n")
        if ran.returncode != 0 or result.read_text().count("DEVCOMM_SIMULATOR_OF_EACH_GPU") != wanted:
            print(f"'{text}' is taken for {'no ' if wanted else ''}variable of a GPU: {ran.stderr}{result.read_text()}")
            failed = 1
    ran = run("void f() {\n  k<T, (1 > 2)>\n    <<<g, b>>>(\n      a);\n}\n")
    if ran.returncode != 0 or result.read_text().count("\n") != 6:
        print(f"lines change: {ran.stderr}{result.read_text()}")
        failed = 1
    pieces = ('asm volatile("{\\n"\n  " .reg .u32 a;\\n"  // one\n  " mov.u32 a, %0;\\n}"\n  :: "r"(x) /* two\n three */);\nint last;\n')
    ran = run(f"void f(int x) {{\n{pieces}}}\n")
    if ran.returncode != 0 or "asm" in result.read_text() or result.read_text().split("\n")[7] != "int last;":
        print(f"lines of inline PTX change: {ran.stderr}{result.read_text()}")
        failed = 1
    unknown = run('void f() {\n  asm("wgmma.fence.sync.aligned;");\n  asm("ld.acquire.u32 %0, [%1], 5;" : "=z"(a) : "l"(p));\n}\n')
    said = result.read_text().split("\n")
    errors = [line for line in said if line.startswith("void devcomm_no_ptx_") and "the simulator has no such PTX: " in line]
    if unknown.returncode != 0 or len(errors) != 2 or "#line 1" not in said or "::devcomm_no_ptx_" not in said[said.index("#line 1") + 2]:
        print(f"what is not known does not stop the build: {unknown.stderr}{result.read_text()}")
        failed = 1
sys.exit(failed)
