"""Builds programs and libraries of CUDA sources for devcomm's simulated GPUs: what devcomm-simulate, devcomm-litmus and
the Python package share.
"""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import devcomm_translate as translator
from devcomm_ptx import translate_preprocessed

EXPLORING_MAIN = "explore_main.cpp"
MPI_MAIN = "mpi_main.cpp"


class WrongUse(Exception):
    """What was asked for cannot be built here; the text says what to do."""


class NotCompiled(Exception):
    """With the compiler's output."""


class Installation:
    """Where this file is installed, or was copied to."""

    def __init__(self):
        self.package = pathlib.Path(__file__).resolve().parent
        self.libraries = self.package.parent.parent
        prefix = self.libraries.parent if (self.libraries.parent / "include").is_dir() else self.libraries.parent.parent
        self.include = prefix / "include"
        self.shim = self.include / "devcomm/simulator/shim"
        if not self.shim.is_dir():
            raise WrongUse(f"{prefix} has no installation of devcomm with its simulator; build devcomm and run cmake --install")

    def stamp(self):
        """Changes with the installation."""
        files = [*self.libraries.glob("libdevcomm*.a"), *self.package.glob("*.py")]
        return [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in sorted(files)]


class BuildOptions:
    def __init__(self):
        self.sources = []
        self.folders = []  # of -I
        self.compiler = []  # further options, as given
        self.linker = []
        self.standard = "c++20"
        self.modes = []  # plain, race, address, explore
        self.arch = 90
        self.volatile = "relaxed"
        self.nccl = False
        self.mpi = False
        self.notes = []  # what whoever asked should know
        self.cccl = None
        self.verbose = False


def find_cccl(options):
    if options.cccl:
        return options.cccl
    roots = [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)] + ["/usr/local/cuda"]
    for folder in [f"{root}/{part}" for root in roots for part in ("include/cccl", "include")] + ["/usr/include"]:
        if pathlib.Path(folder, "cuda/std/version").exists():
            return pathlib.Path(folder)
    return None


def is_of_toolkit(folder):
    return any((folder / name).exists() for name in ("cuda_runtime_api.h", "cuda/std/version", "devcomm/devcomm.cuh"))


def write_if_changed(path, text):
    data = text.encode("utf-8", errors="surrogateescape")
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Builder:
    """What is made of one set of sources and options, in a folder of its own."""

    def __init__(self, options, installation):
        self.options = options
        self.installation = installation
        self.compiler = shlex.split(os.environ.get("CXX") or "c++")
        if not shutil.which(self.compiler[0]):
            raise WrongUse(f"there is no C++ compiler '{self.compiler[0]}'; install one (Debian and Ubuntu: apt install g++), "
                           "or set CXX")
        version = subprocess.run([*self.compiler, "--version"], capture_output=True, text=True, check=False).stdout
        self.is_clang = "clang" in version
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "devcomm-simulate"
        self.cccl = find_cccl(options)
        self.polls = False
        self.has_macros = False
        key = [version, self.compiler, [str(pathlib.Path(s).resolve()) for s in options.sources], options.compiler,
               [str(f) for f in options.folders], options.linker, options.standard, options.arch, options.volatile, options.nccl, options.mpi,
               str(self.cccl), installation.stamp(), os.getcwd()]  # fmt: skip
        self.folder = cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        self.cub = cache / hashlib.sha256(json.dumps([str(self.cccl), installation.stamp()]).encode()).hexdigest()[:16]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = open(self.folder / "lock", "w", encoding="utf-8")  # of others, until this is closed
        except OSError as error:
            raise WrongUse(f"{self.folder} cannot be written ({error.strerror}); set XDG_CACHE_HOME") from error
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lock.close()

    # what is included

    def included(self, path, text):
        """The user's files that this one includes."""
        for opening, name in re.findall(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*(["<])([^">\n]+)[">]', text, re.MULTILINE):
            own = [path.parent] if opening == '"' else []
            for folder in [*own, *(f for f in self.options.folders if not is_of_toolkit(f))]:
                if (folder / name).is_file():
                    yield pathlib.Path(os.path.normpath(folder / name))
                    break

    def translate(self):
        """Writes the user's files for the simulator below overlay/, each at its own path. Sets whether one loads volatile
        memory, and whether one has inline PTX in macros, so that their files are preprocessed first."""
        overlay = self.folder / "overlay"
        waiting = [pathlib.Path(s).resolve() for s in self.options.sources if pathlib.Path(s).suffix == ".cu"]
        seen = set()
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            waiting += self.included(path, text)
            try:
                translated = translator.translate(text, leaves_macros=True)
            except translator.Problem as problem:
                raise NotCompiled(f"{path}:{problem.line}: error: {problem}") from problem
            write_if_changed(overlay / str(path).lstrip("/"), f'#line 1 "{translator.quoted(path)}"\n{translated}')
            self.polls = self.polls or translator.polls_unseen(text)
            self.has_macros = self.has_macros or translator.has_asm(translated)
        if self.cccl and (self.cccl / "cub/version.cuh").exists() and not (self.cub / "complete").exists():
            translator.ptx(self.cccl, self.cub)
            (self.cub / "complete").touch()

    # compiling

    def run(self, command):
        if self.options.verbose:
            print(shlex.join(command), flush=True)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise NotCompiled(done.stderr or done.stdout)

    def is_current(self, target, dependencies):
        """Whether the target is newer than all that it was made of."""
        if not target.exists() or not dependencies.exists():
            return False
        made = target.stat().st_mtime_ns
        names = re.sub(r"\\\n", " ", dependencies.read_text()).split(":", 1)[1]
        for name in shlex.split(names):
            try:
                if os.stat(name).st_mtime_ns > made:
                    return False
            except FileNotFoundError:
                return False
        return True

    def compile_options(self, mode, is_kernel):
        o, i = self.options, self.installation
        words = [*self.compiler, f"-std={o.standard}", "-O1", *o.compiler, "-DDEVCOMM_SIMULATOR",
                 f"-DDEVCOMM_SIMULATOR_CUDA_ARCH={o.arch}0", "-gdwarf-4", "-g1"]  # fmt: skip
        for folder in o.folders:
            if not is_of_toolkit(folder):
                words += ["-I", f"{self.folder}/overlay{folder}"] if is_kernel else []
                words += ["-I", str(folder)]
        words += ["-isystem", str(i.include / "devcomm/nccl")] if o.nccl else []
        words += ["-isystem", str(i.include / "devcomm/simulator/mpi")] if o.mpi else []
        words += ["-isystem", str(i.shim), "-isystem", str(i.include)]
        if self.cccl:
            words += ["-isystem", str(self.cub), "-isystem", str(self.cccl)]
        words += [word for folder in o.folders if is_of_toolkit(folder) for word in ("-isystem", str(folder))]
        if is_kernel:
            words += ["-include", "devcomm/simulator/prelude.hpp", "-Wno-unknown-pragmas", "-Wno-uninitialized"]
            words += [] if self.is_clang else ["-Wno-maybe-uninitialized"]
            words += ["-fsanitize-coverage=trace-pc"] if self.polls else []
        if mode in ("race", "explore") and is_kernel:
            words += ["-fsanitize=thread"]
            if o.volatile == "relaxed":
                words += ["-mllvm", "-tsan-distinguish-volatile=1"] if self.is_clang else ["--param=tsan-distinguish-volatile=1"]
            words += [] if self.is_clang else ["-Wno-tsan", "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset"]
        elif mode == "address":
            words += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
            words += [] if self.is_clang else ["-fno-sanitize=null"]
        return words

    def compile(self, mode, source):
        path = pathlib.Path(source).resolve()
        is_kernel = path.suffix == ".cu"
        text = pathlib.Path(f"{self.folder}/overlay{path}") if is_kernel else path
        tag = hashlib.sha256(str(path).encode()).hexdigest()[:8]
        target = self.folder / mode / f"{path.name}.{tag}.o"
        dependencies = target.with_suffix(".d")
        if self.is_current(target, dependencies):
            return target
        target.parent.mkdir(exist_ok=True)
        options = [*self.compile_options(mode, is_kernel), f"-iquote{path.parent}"]
        command = [*options, "-MD", "-MF", str(dependencies), "-MT", str(target)]
        if is_kernel and self.has_macros:
            whole = target.with_suffix(".ii")
            self.run([*command, "-x", "c++", "-E", str(text), "-o", str(whole)])
            write_if_changed(whole, translate_preprocessed(whole.read_text(encoding="utf-8", errors="surrogateescape")))
            is_included = [word == "-include" or before == "-include" for before, word in zip(["", *options], options)]
            options = [word for word, done in zip(options, is_included) if not done]
            self.run([*options, "-x", "c++-cpp-output", "-c", str(whole), "-o", str(target)])
        else:
            self.run([*command, "-x", "c++", "-c", str(text), "-o", str(target)])
        if (mode == "explore" or self.options.mpi) and path.name not in (EXPLORING_MAIN, MPI_MAIN):
            self.run(["objcopy", "--redefine-sym", "main=devcomm_user_main", str(target)])
        return target

    def link(self, mode, program, objects):
        i = self.installation
        watched = "_race" if mode in ("race", "explore") else ""
        parts = [*(["nccl_simulator", f"nccl_kernels{watched}"] if self.options.nccl else []), "simulator", "host_core"]
        wanted = ["_ZN7devcomm4host6detail15current_backendEv"]
        if mode in ("race", "explore"):
            parts.insert(0, "simulator_race")
            wanted += ["devcomm_simulator_race_port", "__tsan_init", "memcpy", "pthread_create"]
        command = [str(i.package / "devcomm_link_shared.sh"), *self.compiler, *map(str, objects), "-o", str(program)]
        command += ["-fsanitize=address,undefined"] if mode == "address" else []
        command += [f"-Wl,-u,{name}" for name in wanted]
        # By their files, in which the script looks for shared memory.
        libraries = [str(i.libraries / f"libdevcomm_{part}.a") for part in parts]
        command += [*self.options.linker, "-Wl,--start-group", *libraries, "-Wl,--end-group", "-lpthread", "-ldl"]
        self.run(command)

    def choose_kind_of_rank(self, objects):
        """The object that says whether ranks are threads or, where the program has variables that threads would share,
        processes."""
        on_gpus = set()
        for source in self.options.sources:
            if pathlib.Path(source).suffix == ".cu":
                text = pathlib.Path(source).read_text(encoding="utf-8", errors="surrogateescape")
                on_gpus |= set(re.findall(r"__(?:device|constant|managed)__[^;={}()]*?\b(\w+)\s*(?:\[[^;]*\]|=[^;]*|\{[^;]*)?;", text))
        shared = set()
        for target in objects:
            table = subprocess.run(["objdump", "-t", str(target)], capture_output=True, text=True, check=True).stdout
            for kind, section, name in re.findall(r"^\w+ (.{7}) (\.(?:bss|data)\S*)\s+\w+\s+(?:\.hidden )?(\S+)$", table, re.MULTILINE):
                if kind.endswith("O") and ".rel." not in section and "__ioinit" not in name and not name.startswith(("_ZGV", "_ZN7devcomm")):
                    shared.add(name)
        readable = subprocess.run(["c++filt", *sorted(shared)], capture_output=True, text=True, check=True).stdout.split("\n") if shared else []
        shared = sorted({name for name in readable if name and name not in on_gpus})
        if shared:
            self.options.notes.append(
                f"the ranks are processes, as threads would share {', '.join(shared[:3])}{' and others' if len(shared) > 3 else ''}: "
                "races and deadlocks between ranks are not looked for. Where these are thread_local, or of functions, the ranks are threads")
        source = self.folder / "mpi_kind.cpp"
        write_if_changed(source, f"extern const bool devcomm_mpi_by_processes;\nconst bool devcomm_mpi_by_processes = {'true' if shared else 'false'};\n")
        target = source.with_suffix(".o")
        if not target.exists() or target.stat().st_mtime_ns < source.stat().st_mtime_ns:
            self.run([*self.compiler, "-c", str(source), "-o", str(target)])
        return target

    def build(self):
        """The program of each mode."""
        self.translate()
        given = [pathlib.Path(s).resolve() for s in self.options.sources if pathlib.Path(s).suffix in (".o", ".a")]
        sources = [s for s in self.options.sources if pathlib.Path(s).resolve() not in given]
        jobs = [(mode, source) for mode in self.options.modes for source in sources]
        if "explore" in self.options.modes:
            jobs.append(("explore", str(self.installation.package / EXPLORING_MAIN)))
        if self.options.mpi:
            jobs += [(mode, str(self.installation.package / MPI_MAIN)) for mode in self.options.modes]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = list(pool.map(lambda job: self.compile(*job), jobs))
            if self.options.mpi:
                given.append(self.choose_kind_of_rank([target for (_, source), target in zip(jobs, made) if source in sources]))
            programs = {}
            for mode in self.options.modes:
                objects = [target for (of, _), target in zip(jobs, made) if of == mode] + given
                program = self.folder / mode / pathlib.Path(self.options.sources[0]).stem
                program.parent.mkdir(exist_ok=True)
                links = not program.exists() or any(o.stat().st_mtime_ns > program.stat().st_mtime_ns for o in objects)
                programs[mode] = program, pool.submit(self.link, mode, program, objects) if links else None
            for _, linking in programs.values():
                if linking:
                    linking.result()
            return {mode: program for mode, (program, _) in programs.items()}

    def build_library(self, mode, against):
        """A library of the kernels, for a process that has loaded `against`, which has the simulator. Options include
        -fPIC."""
        self.translate()
        objects = [self.compile(mode, source) for source in self.options.sources]
        library = self.folder / mode / f"{pathlib.Path(self.options.sources[0]).stem}.so"
        if library.exists() and all(o.stat().st_mtime_ns <= library.stat().st_mtime_ns for o in objects):
            return library
        if mode == "race":  # the C library's are found first, and the detector does not see them
            for each in objects:
                names = [f"--redefine-sym={name}=__tsan_{name}" for name in ("memcpy", "memmove", "memset")]
                self.run(["objcopy", *names, str(each)])
        script = str(self.installation.package / "devcomm_link_shared.sh")
        command = [script, *self.compiler, "-shared", *map(str, objects), str(against), "-o", f"{library}.new"]
        self.run([*command, "-Wl,-z,defs", *self.options.linker])
        os.replace(f"{library}.new", library)
        return library
