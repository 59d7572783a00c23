"""The Python of docs/python.md runs as it stands there, in its order, and what it prints is right."""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


def blocks():
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_snippets(tmp_path):
    (tmp_path / "test_page.py").write_text("\n".join(blocks()))
    done = subprocess.run(
        [sys.executable, "test_page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks()))
    assert done.stdout.splitlines() == said
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
