#!/usr/bin/env python3
"""Which features of CUDA the simulator has: snippets of features.txt, as new users write them.

    features.py check SIMULATE [NVCC]   what works gives the right results under the race detector too, and what is
                                        refused stops with its sentence; with NVCC, all that works compiles there;
                                        docs/cuda_features.md is the table of features.txt
    features.py table                   prints that table as Markdown

SIMULATE is the program devcomm-simulate, or "install" to install it from BUILD_DIR into WORK first.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wild"))
PAGE = HERE.parents[1] / "docs" / "cuda_features.md"
TOOLKITS = [pathlib.Path("/usr/local/cuda/include")]
HEAD = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
namespace cg = cooperative_groups;
bool check_kernel(void (*kernel)(int*), int (*expected)(int)) {
  int* out;
  cudaMalloc(&out, 32 * sizeof(int));
  kernel<<<1, 32, 32 * sizeof(int)>>>(out);
  int found[32] = {};
  cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost);
  cudaFree(out);
  for (int t = 0; t < 32; ++t)
    if (found[t] != expected(t)) return false;
  return true;
}
"""


class Feature:
    def __init__(self, area, name):
        self.area = area
        self.name = name
        self.parts = {}


def features():
    found = []
    area = ""
    for line in (HERE / "features.txt").read_text(encoding="utf-8").split("\n"):
        if match := re.fullmatch(r"\[(.*)\]", line):
            area = match[1]
        elif match := re.fullmatch(r"  (\w+): (.*)", line):
            found[-1].parts[match[1]] = match[2]
        elif line and not line.startswith("#"):
            found.append(Feature(area, line))
    return found


def program(chosen):
    first, kernels, calls = [], [], []
    for i, feature in enumerate(chosen):
        parts = feature.parts
        if parts.get("first") not in first:
            first.append(parts.get("first"))
        if "device" in parts:
            kernels.append(f"__global__ void kernel_{i}(int* out) {{ const int t = threadIdx.x; {parts['device']} }}")
            call = f"check_kernel(kernel_{i}, [](int t) {{ static_cast<void>(t); return int({parts.get('expect', 0)}); }})"
        else:
            kernels.append(f"bool host_{i}() {{ {parts.get('host', 'return true;')} }}")
            call = f"host_{i}()"
        calls.append(f'  if (!{call}) {{ std::printf("wrong: %s\\n", R"({feature.name})"); wrong = 1; }}')
    first.sort(key=lambda text: not (text or "").startswith("#include"))
    return HEAD + "\n".join([*filter(None, first), *kernels, "int main() {", "  int wrong = 0;", *calls, "  return wrong;", "}"]) + "\n"


def toolkit_options(feature):
    header = feature.parts.get("toolkit")
    folder = next((t for t in TOOLKITS if header and (t / header).exists()), None)
    return (not header or folder is not None), ["-I", str(folder)] if folder else []


def run(simulate, folder, chosen, options):
    source = pathlib.Path(folder) / "features.cu"
    source.write_text(program(chosen))
    done = subprocess.run([simulate, source, "--ranks", "1", "--seeds", "4", *options], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def check(simulate, nvcc):
    failures = []
    every = features()
    with tempfile.TemporaryDirectory() as folder:
        works = [f for f in every if "refused" not in f.parts]
        groups = [([f for f in works if "toolkit" not in f.parts], [])]
        for feature in works:
            there, options = toolkit_options(feature)
            if "toolkit" in feature.parts and there:
                groups.append(([feature], options))
        for chosen, options in groups:
            status, said = run(simulate, folder, chosen, options)
            if status != 0:
                failures.append(said)
            if nvcc:
                done = subprocess.run([nvcc, "-std=c++20", "-arch=sm_90a", "-c", pathlib.Path(folder) / "features.cu", "-o", "/dev/null"],
                                      capture_output=True, text=True, check=False)  # fmt: skip
                if done.returncode != 0:
                    failures.append(done.stderr)
        for feature in every:
            if "refused" not in feature.parts:
                continue
            status, said = run(simulate, folder, [feature], ["--plain"])
            if status == 0 or feature.parts["refused"] not in re.sub(r'"\s+"', "", said):
                failures.append(f"{feature.name}: expected to be refused: {feature.parts['refused']}\n{said}")
    page = PAGE.read_text(encoding="utf-8")
    if table() not in page:
        failures.append(f"{PAGE}: its table is not what `features.py table` prints")
    for text in failures:
        print(text)
    print(f"{len(every)} features")
    return bool(failures)


def table():
    rows = ["| | works | refused |", "|---|---|---|"]
    for area in dict.fromkeys(f.area for f in features()):
        here = [f for f in features() if f.area == area]
        works = "; ".join(f.name for f in here if "refused" not in f.parts)
        refused = "; ".join(f"{f.name}: \"{f.parts['refused']}\"" for f in here if "refused" in f.parts)
        rows.append(f"| {area} | {works} | {refused} |")
    return "\n".join(rows) + "\n"


def main():
    if sys.argv[1:] == ["table"]:
        print(table(), end="")
    elif sys.argv[1:2] == ["check"] and len(sys.argv) in (3, 4):
        simulate = sys.argv[2]
        if simulate == "install":
            from wild import installed

            simulate = installed()
        sys.exit(check(simulate, sys.argv[3] if len(sys.argv) == 4 else None))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
