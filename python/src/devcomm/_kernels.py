"""Finds the kernels in a CUDA source."""

from devcomm._installation import import_tools


def kernels_of(text: str) -> list[str]:
    """Qualified names of all kernels that are no templates, in their order."""
    import_tools()
    from devcomm_tokens import after, before, matching, tokens_of

    tokens = tokens_of(text)
    found: list[str] = []
    spaces: list[tuple[int, str]] = []  # where each open namespace ends, and its name
    for i, token in enumerate(tokens):
        while spaces and i > spaces[-1][0]:
            spaces.pop()
        if token.kind != "name":
            continue
        if token.text == "namespace":
            name, k = "", after(tokens, i)
            while k < len(tokens) and tokens[k].text not in ("{", ";", "="):
                name += tokens[k].text
                k = after(tokens, k)
            if k < len(tokens) and tokens[k].text == "{":
                spaces.append((matching(tokens, k), name))
        elif token.text == "__global__" and not _is_template(tokens, i, before):
            k = after(tokens, i)
            while k < len(tokens) and tokens[k].text not in (";", "{", "}"):
                following = after(tokens, k)
                if following >= len(tokens):
                    break
                if tokens[following].text == "(":
                    if tokens[k].text not in ("__launch_bounds__", "__cluster_dims__", "__attribute__", "__align__"):
                        name = "::".join([name for _, name in spaces if name] + [tokens[k].text])
                        if name not in found:
                            found.append(name)
                        break
                    k = matching(tokens, following)
                k = after(tokens, k)
    return found


def _is_template(tokens, i, before) -> bool:
    """Whether the declaration that has token `i` begins with `template`."""
    k = before(tokens, i)
    while k >= 0 and tokens[k].text not in (";", "}", "{"):
        if tokens[k].text == "template":
            return True
        if tokens[k].text.startswith("#"):
            return False
        k = before(tokens, k)
    return False
