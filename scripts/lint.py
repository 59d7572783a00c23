#!/usr/bin/env python3
"""Runs clang-tidy over the sources of some targets, as a build folder would compile them; compiles nothing.

    lint.py BUILD_FOLDER CLANG_TIDY TARGET...

A source is looked at again only when it, any header, its command or the list of checks has changed.
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

root = pathlib.Path(__file__).resolve().parent.parent


def configurations() -> list[pathlib.Path]:
    return [root / ".clang-tidy", *(root / "host").rglob(".clang-tidy"), *(root / "simulator").rglob(".clang-tidy")]


def newest_input(build: pathlib.Path) -> float:
    """When the checks or a header last changed."""
    inputs = [*configurations(), *(build / "host" / "generated").glob("*.hpp")]
    for folder in ("include", "host", "simulator", "examples"):
        inputs += [path for path in (root / folder).rglob("*") if path.suffix in (".h", ".hpp", ".cuh", ".cu")]
    return max(path.stat().st_mtime for path in inputs)


def unified(entry: dict, folder: pathlib.Path) -> tuple[dict, list[pathlib.Path]]:
    """What to look at for a file of a unity build, and the sources in it. Clang's analyzer follows paths through included
    sources only where the file that includes them has this name; and the checks are those of the place where it lies."""
    file = pathlib.Path(entry["file"])
    if file.parent.name != "Unity":
        return entry, [file]
    text = file.read_text()
    sources = [pathlib.Path(name) for name in re.findall(r'#include "(.*)"', text)]
    place = sources[0].relative_to(root).parent if sources[0].is_relative_to(root) else "."
    copy = folder / place / f"UnifiedSource-{hashlib.sha1(str(file).encode()).hexdigest()}.cpp"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    return {**entry, "file": str(copy), "command": entry["command"].replace(str(file), str(copy))}, sources


def main() -> int:
    build, tidy, targets = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    entries = []
    for target in targets:
        found = [entry for entry in json.loads((build / "compile_commands.json").read_text())
                 if f"/{target}.dir/" in entry["command"]]
        if not found:
            sys.exit(f"error: {build}/compile_commands.json has no sources of target '{target}'")
        entries += found
    changed = newest_input(build)
    stamps = build / "lint"
    for old in stamps.rglob(".clang-tidy"):
        old.unlink()
    for configuration in configurations():
        copy = stamps / configuration.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(configuration.read_text())

    def lint(entry: dict) -> bool:
        entry, sources = unified(entry, stamps)
        stamp = stamps / hashlib.sha1(" ".join([tidy, entry["command"], *map(str, sources)]).encode()).hexdigest()
        if stamp.exists() and stamp.stat().st_mtime > max(changed, *(source.stat().st_mtime for source in sources)):
            return True
        # What is generated from a source may lie anywhere.
        config = [] if sources[0].is_relative_to(root) else [f"--config-file={root}/.clang-tidy"]
        command = [tidy, "--quiet", *config, entry["file"], "--", *shlex.split(entry["command"])]
        result = subprocess.run(command, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if result.returncode != 0:
            print(f"{', '.join(map(str, sources))}:\n{result.stdout}{result.stderr}", flush=True)
            return False
        stamp.touch()
        return True

    entries.sort(key=lambda entry: "/Unity/" not in entry["file"])  # what takes longest first
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = list(pool.map(lint, entries)).count(False)
    if wrong:
        print(f"error: clang-tidy has something to say about {wrong} of {len(entries)} sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
