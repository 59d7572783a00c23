#!/usr/bin/env python3
"""Figures of the source tree: how much there is to read, and how much of it stands behind a barrier and a put.

tree_figures.py [REVISION...]    of this tree as it is, or of commits, side by side

Lines are those of files in git; code lines are not empty and no comment. A function is long above 60 lines. Functions
and classes are found by indentation, as clang-format leaves it.
"""

import pathlib
import re
import subprocess
import sys

ROOMS = ["include", "host", "simulator", "tests", "examples", "benchmarks"]
SOURCES = {".hpp", ".cuh", ".cpp", ".cu", ".h"}
BEHIND = {"a barrier": ["devcomm/lsa/barrier_session.cuh"], "a put": ["devcomm/gin/context.cuh"]}
MAX_FUNCTION = 60


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def texts_of(revision):
    """Text by path, of the files that git has."""
    if revision is None:
        return {p: pathlib.Path(p).read_text(errors="replace") for p in git("ls-files").splitlines() if pathlib.Path(p).is_file()}
    texts = {}
    for line in git("ls-tree", "-r", revision).splitlines():
        kind, path = line.split(maxsplit=3)[1], line.split("\t", 1)[1]
        if kind == "blob" and (pathlib.Path(path).suffix in SOURCES or path.endswith(".md")):
            texts[path] = git("show", f"{revision}:{path}")
    return texts


def code_lines(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def headers_behind(texts, firsts):
    """The headers of include/ that these include, themselves among them."""
    found, left = set(), list(firsts)
    while left:
        header = left.pop()
        path = "include/" + header
        if header in found or path not in texts:
            continue
        found.add(header)
        left += re.findall(r'^\s*#\s*include [<"](devcomm/[^>"]+)[>"]', texts[path], re.MULTILINE)
    return ["include/" + header for header in found]


def bodies(text, opening):
    """First line, and lines up to the brace that closes it in the same column, of each match of `opening`."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not re.match(opening, line):
            continue
        while i < len(lines) and not lines[i].endswith(("{", "}", ";")):
            i += 1
        if i == len(lines) or not lines[i].endswith("{"):
            continue
        indent = len(line) - len(line.lstrip())
        end = next((j for j in range(i + 1, len(lines)) if re.match(rf" {{{indent}}}}}", lines[j])), None)
        if end is not None:
            yield line.strip(), lines[i : end + 1]


def long_functions(text):
    starts = r"(?:  )?(?!(?:class|struct|union|enum|namespace|template|if|for|while|switch|else|do|return|public|private)\b)[A-Za-z_\[~].*\("
    return [(name, len(body)) for name, body in bodies(text, starts) if len(body) > MAX_FUNCTION and " = " not in name]


def members(body):
    """Declarations one level inside a class."""
    indent = len(body[-1]) - len(body[-1].lstrip()) + 2
    return sum(1 for line in body[1:-1] if re.match(rf" {{{indent}}}[A-Za-z_\[~].*", line) and
               not re.match(r"\s*(?:public|private|protected|using|friend|static_assert|template)\b", line))


def figures(texts):
    rows = {}
    sources = {p: t for p, t in texts.items() if pathlib.Path(p).suffix in SOURCES}
    for room in ROOMS:
        of_room = [t for p, t in sources.items() if p.startswith(room + "/")]
        rows[f"{room}: files"] = len(of_room)
        rows[f"{room}: lines"] = sum(len(t.splitlines()) for t in of_room)
        rows[f"{room}: code lines"] = sum(map(code_lines, of_room))
    for what, firsts in BEHIND.items():
        headers = headers_behind(texts, firsts)
        rows[f"headers behind {what}"] = len(headers)
        rows[f"lines behind {what}"] = sum(len(texts[h].splitlines()) for h in headers)
    library = {p: t for p, t in sources.items() if p.split("/")[0] in ("include", "host", "simulator")}
    classes = [(members(body), len(body), name, path) for path, text in library.items()
               for name, body in bodies(text, r" *(?:class|struct) \w+[^;]*$")]
    count, lines, name, path = max(classes)
    rows["largest class"] = f"{count} members, {lines} lines: {re.sub(r' (final|:).*', '', name)}, {path.split('/')[-1]}"
    functions = [(lines, name, path) for path, text in library.items() for name, lines in long_functions(text)]
    rows["functions above 60 lines"] = len(functions)
    rows["longest function"] = "none" if not functions else "{} lines, {}".format(max(functions)[0], max(functions)[2])
    pages = {p: t for p, t in texts.items() if p.startswith("docs/") and p.endswith(".md")}
    rows["docs: pages"] = len(pages)
    rows["docs: words"] = sum(len(t.split()) for t in pages.values())
    return rows


def main():
    revisions = sys.argv[1:]
    if any(r.startswith("-") for r in revisions):
        sys.exit(__doc__)
    columns = [figures(texts_of(r)) for r in revisions or [None]]
    for row in columns[0]:
        print(f"{row:28}" + "".join(f"{str(column[row]):>14}" if len(str(column[row])) < 14 else f"  {column[row]}" for column in columns))


if __name__ == "__main__":
    main()
