#!/usr/bin/env python3
"""Rooms include only what lies below them, and no rooms include each other in a circle.

    scripts/checks/directions.py [ROOT]

A room is a folder, or some files at the top of include/devcomm. docs/internals/architecture.md says what each is for. Rooms under
include/devcomm must be in the table below; folders under host/src and simulator that are not are only looked at for
circles.
"""
import pathlib
import re
import sys

# Each room with the rooms that it may include, beside itself. Those of one line stand side by side.
DEVICE = {
    "base": [],
    "arch": ["base"],
    "core": ["arch", "base"],
    "group": ["core", "arch", "base"],
    "data": ["group", "core", "arch", "base"],
    "diagnostics": ["group", "core", "arch", "base"],
    "detail": ["data", "diagnostics", "group", "core", "arch", "base"],
    "lsa": ["detail", "data", "diagnostics", "group", "core", "arch", "base"],
    "multimem": ["detail", "data", "diagnostics", "group", "core", "arch", "base"],
    "gin": ["detail", "data", "diagnostics", "group", "core", "arch", "base"],
    "channel": ["lsa", "multimem", "gin", "detail", "data", "diagnostics", "group", "core", "arch", "base"],
    "collective": ["channel", "lsa", "multimem", "gin", "detail", "data", "diagnostics", "group", "core", "arch",
                   "base"],
    "gemm": ["collective", "channel", "lsa", "multimem", "gin", "detail", "data", "diagnostics", "group", "core", "arch",
             "base"],
    "moe": ["gemm", "collective", "channel", "lsa", "multimem", "gin", "detail", "data", "diagnostics", "group", "core",
            "arch", "base"],
}
DEVICE["umbrella"] = list(DEVICE)
BASE = {"config.hpp", "memory_order.hpp", "operation.hpp"}
GROUP = {"group.cuh", "any_group.cuh"}

HOST = {
    "util": [],
    "bootstrap": ["util"],
    "device": ["util"],
    "diagnostics": ["device", "util"],
    "rank": ["diagnostics", "device", "bootstrap", "util"],
    "memory": ["rank", "diagnostics", "device", "bootstrap", "util"],
    "transport": ["rank", "diagnostics", "device", "bootstrap", "util"],
    "tuning": ["util"],
    "communicator": ["memory", "transport", "tuning", "rank", "diagnostics", "device", "bootstrap", "util"],
}

# Of the host library: the device port with what it is made of, what reports share with the watchdog, and what is looked
# at when the program ends.
SIMULATOR_MAY_INCLUDE = ("device/", "util/", "diagnostics/waits_for_graph.hpp", "diagnostics/wait_text.hpp",
                         "diagnostics/abort_state.hpp", "diagnostics/live_objects.hpp")

# The seam chooses the simulator's half by name.
SEAM = {("include/devcomm/arch/arch.cuh", "devcomm/simulator/arch.cuh"),
        ("include/devcomm/arch/multimem.cuh", "devcomm/simulator/arch_multimem.cuh")}
SUFFIXES = {".hpp", ".cuh", ".cpp", ".cu", ".h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def device_room(path: str) -> str:
    """The room of a header; `path` is relative to include/devcomm."""
    parts = path.split("/")
    if parts[:2] == ["detail", "arch"]:
        return "arch"
    if len(parts) > 1:
        return parts[0]
    if path == "devcomm.cuh":
        return "umbrella"
    return "base" if path in BASE else "group" if path in GROUP else "core"


def circle(edges: dict) -> list:
    """Rooms that include one another in a circle, or nothing."""
    done = set()

    def visit(room: str, way: list) -> list:
        if room in way:
            return [*way[way.index(room):], room]
        if room in done:
            return []
        for other in sorted(edges.get(room, {})):
            if found := visit(other, [*way, room]):
                return found
        done.add(room)
        return []

    for start in sorted(edges):
        if found := visit(start, []):
            return found
    return []


class Check:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.failed = False

    def complain(self, text: str) -> None:
        print(f"directions: {text}", file=sys.stderr)
        self.failed = True

    def includes(self, folder: str):
        """File relative to the root, line number, whether in quotes, and name of each include under `folder`."""
        for path in sorted((self.root / folder).rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            text = path.read_text()
            for found in INCLUDE.finditer(text):
                yield name, text.count("\n", 0, found.start(2)) + 1, found.group(1) == '"', found.group(2)

    def rooms(self, what: str, found: list, table: dict) -> None:
        """`found`: file, line, room, room that it includes."""
        edges = {}
        for file, line, room, other in found:
            if room == other:
                continue
            edges.setdefault(room, {}).setdefault(other, f"{file}:{line}")
            if room in table and other in table and other not in table[room]:
                self.complain(f"{file}:{line}: {what} '{room}' may not include '{other}'")
        if way := circle(edges):
            places = [edges[a][b] for a, b in zip(way, way[1:])]
            self.complain(f"{what}s include each other: {' -> '.join(way)} ({', '.join(places)})")

    def device(self) -> None:
        if not (self.root / "include/devcomm").is_dir():
            self.complain(f"no include/devcomm under {self.root}")
            return
        found = []
        unknown = set()
        for file, line, _, name in self.includes("include"):
            room = device_room(file.removeprefix("include/devcomm/"))
            if room not in DEVICE and room not in unknown:
                unknown.add(room)
                self.complain(f"{file}: '{room}' is no room of the table in scripts/checks/directions.py")
            outside = re.match(r"devcomm/(host|simulator)/|(.*/)?(host|simulator)/", name)
            if outside and (file, name) not in SEAM:
                self.complain(f"{file}:{line}: include/ knows neither the host library nor the simulator: {name}")
            elif name.startswith("devcomm/") and not outside:
                found.append((file, line, room, device_room(name.removeprefix("devcomm/"))))
        self.rooms("room", found, DEVICE)

    def host(self) -> None:
        found = []
        for file, line, quoted, name in self.includes("host"):
            if re.search(r"(^|/)simulator/", name):
                self.complain(f"{file}:{line}: the host library does not know the simulator: {name}")
            inside = file.removeprefix("host/src/").split("/")
            if not file.startswith("host/src/") or len(inside) == 1 or not quoted:
                continue
            other = name.split("/")[0]
            if "/" in name and (self.root / "host/src" / name).exists():
                found.append((file, line, inside[0], other))
        self.rooms("host room", found, HOST)

    def simulator(self) -> None:
        found = []
        for file, line, quoted, name in self.includes("simulator"):
            target = self.root / "host/src" / name
            inside = file.removeprefix("simulator/src/").split("/")
            if quoted and (self.root / "simulator/src" / name).exists():
                if file.startswith("simulator/src/") and len(inside) > 1 and "/" in name:
                    found.append((file, line, inside[0], name.split("/")[0]))
            elif target.exists() and "/" in name and not name.startswith(SIMULATOR_MAY_INCLUDE):
                self.complain(f"{file}:{line}: of the host library the simulator knows the device port only: {name}")
        self.rooms("room of the simulator", found, {})


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    check = Check(root)
    check.device()
    check.host()
    check.simulator()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
