"""The words of C++ and CUDA sources, for devcomm_translate.py and devcomm_ptx.py."""

import re

TOKENS = re.compile(
    r"""
    (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<name>[A-Za-z_$][\w$]*)
  | (?P<space>(?:\\\r?\n|[^\S\n])+)
  | (?P<newline>\n)
  | (?P<operator><<<|>>>|<<=|>>=|<=>|<=|>=|->|<<|>>|::|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
BLANK = ("comment", "space", "newline")


class Problem(Exception):
    def __init__(self, line, text):
        super().__init__(text)
        self.line = line


class Token:
    __slots__ = ("kind", "text", "line")

    def __init__(self, kind, text, line):
        self.kind = kind
        self.text = text
        self.line = line


def tokens_of(text):
    found = []
    line = 1
    for match in TOKENS.finditer(text):
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        found.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return found


def one_line(tokens):
    """The tokens' text without newlines and comments."""
    return "".join(" " if t.kind in BLANK else t.text for t in tokens).strip()


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {close: opening for opening, close in OPENING.items()}


def matching(tokens, start):
    """The index of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].kind != "operator":
            continue
        if tokens[i].text in OPENING:
            depth += 1
        elif tokens[i].text in CLOSING:
            depth -= 1
            if depth == 0:
                return i
    raise Problem(tokens[start].line, f"'{tokens[start].text}' is not closed")


def before(tokens, i):
    """The index of the last token before `i` that is not blank; -1 if there is none."""
    i -= 1
    while i >= 0 and tokens[i].kind in BLANK:
        i -= 1
    return i


def after(tokens, i):
    i += 1
    while i < len(tokens) and tokens[i].kind in BLANK:
        i += 1
    return i


def matching_back(tokens, i):
    depth = 0
    while i >= 0:
        if tokens[i].kind == "operator":
            if tokens[i].text in CLOSING:
                depth += 1
            elif tokens[i].text in OPENING:
                depth -= 1
                if depth == 0:
                    return i
        i -= 1
    return -1


def template_start(tokens, i):
    """`i` is at the end of a template's arguments: the index of their `<`."""
    depth = 0
    while i >= 0:
        t = tokens[i]
        if t.kind == "operator":
            if t.text in (">", ">>", ">>>"):
                depth += len(t.text)
            elif t.text == "<":
                depth -= 1
                if depth == 0:
                    return i
            elif t.text in (")", "]", "}"):
                i = matching_back(tokens, i)
            elif t.text in (";", "{", "(", "["):
                return -1
        i -= 1
    return -1


def in_directives(tokens):
    """The indices of tokens of preprocessor directives."""
    found = set()
    inside, line_begins = False, True
    for i, t in enumerate(tokens):
        if t.kind == "newline":
            inside, line_begins = False, True
        elif line_begins and t.kind not in BLANK:
            inside, line_begins = t.text == "#", False
        if inside:
            found.add(i)
    return found
