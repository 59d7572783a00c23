#!/usr/bin/env python3
"""Runs clang-tidy over the sources of some targets, as a build folder would compile them; compiles nothing.

    lint.py BUILD_FOLDER CLANG_TIDY TARGET...

A source is looked at again only when it, any header, its command or the list of checks has changed.
"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

root = pathlib.Path(__file__).resolve().parent.parent


def newest_input(build: pathlib.Path) -> float:
    """When the checks or a header last changed."""
    inputs = [root / ".clang-tidy", *(build / "host" / "generated").glob("*.hpp")]
    for folder in ("include", "host", "examples"):
        inputs += [path for path in (root / folder).rglob("*") if path.suffix in (".h", ".hpp", ".cuh", ".cu")]
    return max(path.stat().st_mtime for path in inputs)


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
    stamps.mkdir(exist_ok=True)

    def lint(entry: dict) -> bool:
        stamp = stamps / hashlib.sha1((tidy + entry["command"]).encode()).hexdigest()
        source = pathlib.Path(entry["file"])
        if stamp.exists() and stamp.stat().st_mtime > max(changed, source.stat().st_mtime):
            return True
        result = subprocess.run([tidy, "--quiet", str(source), "--", *shlex.split(entry["command"])],
                                cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if result.returncode != 0:
            print(f"{source}:\n{result.stdout}{result.stderr}", flush=True)
            return False
        stamp.touch()
        return True

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = list(pool.map(lint, entries)).count(False)
    if wrong:
        print(f"error: clang-tidy has something to say about {wrong} of {len(entries)} sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
