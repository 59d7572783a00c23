"""Hooks of mkdocs: the pages in the project's root, copies of the files outside of docs that guides link to, and what
doxygen has made."""

import pathlib
import posixpath
import re
import subprocess

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)]*)?\)")
AS_THEY_ARE = (".svg", ".png", ".md")
API = ROOT / "build/doxygen"


def place(path):
    """Where in the site a file or folder of the project is."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(AS_THEY_ARE) else f"source/{path}.txt"


def in_site(markdown, page, linked):
    """The text of a page of the project with its links as the site has them; adds what they lead to to `linked`."""

    def link(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))
        if not (ROOT / target).exists():
            return match[0]  # mkdocs reports it
        linked.add(target)
        return f"]({posixpath.relpath(place(target), posixpath.dirname(place(page)) or '.')}{match[2] or ''})"

    return LINK.sub(link, markdown)


def listing(folder, linked):
    """A page with the files of a folder."""
    ran = subprocess.run(["git", "ls-files", folder], cwd=ROOT, check=True, text=True, capture_output=True)
    lines = [f"# {folder}\n"]
    for path in ran.stdout.split():
        linked.add(path)
        lines.append(f"- [{posixpath.relpath(path, folder)}]({posixpath.relpath(place(path), f'source/{folder}')})")
    return "\n".join(lines) + "\n"


def on_files(files, config):
    texts = {page: (ROOT / page).read_text() for page in PAGES}
    texts |= {f"docs/{f.src_uri}": pathlib.Path(f.abs_src_path).read_text() for f in files.documentation_pages()}
    wanted = set()
    for page, text in texts.items():
        text = in_site(text, page, wanted)
        if page in PAGES:
            files.append(File.generated(config, PAGES[page], content=text))
    made = set(PAGES)
    while todo := {path for path in wanted - made if not path.startswith("docs/")}:
        for path in sorted(todo):
            made.add(path)
            source = ROOT / path
            if source.is_dir():
                content = listing(path, wanted)
            elif path.endswith(".md"):
                content = in_site(source.read_text(), path, wanted)
            else:
                content = source.read_bytes()
            files.append(File.generated(config, place(path), content=content))
    for path in API.rglob("*"):
        if path.is_file():
            files.append(File(str(path.relative_to(API)), str(API), config.site_dir, use_directory_urls=False))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.generated_by is not None:
        return markdown
    return in_site(markdown, f"docs/{page.file.src_uri}", set())
