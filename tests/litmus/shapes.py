#!/usr/bin/env python3
"""Litmus tests of PTX's memory model, each with the verdict that its axioms give, argued by family.

    shapes.py check BIN [NAME...]   against the axioms and the simulator, by BIN/devcomm-litmus; BIN may be "install",
                                    to install it from BUILD_DIR into WORK first
    shapes.py gpu [NAME...]         on this machine's GPUs, a million times each
    shapes.py table                 the table of docs/litmus.md
    shapes.py write DIR             each as a file

A verdict is whether the outcome that sequential consistency does not have is allowed, and whether there is a race. The
arguments name the axioms by PTX's names; "covers" says that a scope includes the other thread. The model computes, the
rules below do not: where both agree, either both are right or both are wrong in the same way.
"""

import importlib.machinery
import importlib.util
import pathlib
import sys

ROUNDS = {"IRIW": 20000, "RWC": 6000, "WRC": 6000}  # random schedules of each test, where 1000 do not do
# Allowed outcomes that the simulator never shows; docs/litmus.md says why.
NOT_SHOWN = {
    "LB+rlx",
    "LB+acq+rlx",
    "LB+rel+rel",
    "LB+fence",
    "LB+data+rlx",
    "S+rel+rlx.gpu@gpu",
    "2+2W+rel.gpu@gpu",
    "2+2W+acq_rel.gpu@gpu",
    "2+2W+sc.gpu@sys",
}
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wild"))
from wild import installed  # noqa: E402

RANK = {"cta": 0, "gpu": 1, "sys": 2}  # scopes, and how far threads are apart
FAMILIES = {}
PAGE = pathlib.Path(__file__).parents[2] / "docs/litmus.md"


class Shape:
    def __init__(
        self, family, name, threads, weak, allowed, race=False, place="gpu", places=None, aliases=(), final=()
    ):
        """`threads`: lists of instructions; `weak`: the outcome that sequential consistency lacks, as a condition."""
        self.family, self.name, self.threads, self.weak = family, f"{family}+{name}", threads, weak
        self.allowed, self.race = allowed, race
        self.places = places or [{"cta": (0, 0), "gpu": (i, 0), "sys": (i, i)}[place] for i in range(len(threads))]
        self.aliases = aliases

    def text(self):
        rows = max(map(len, self.threads))
        columns = [t + [""] * (rows - len(t)) for t in self.threads]
        head = " | ".join(f"P{i}@cta {c},gpu {g}" for i, (c, g) in enumerate(self.places))
        body = "".join(" " + " | ".join(row) + " ;\n" for row in zip(*columns))
        declared = " ".join(f"{a} @ generic aliases {x};" for a, x in self.aliases)
        quantifier = "exists" if self.allowed else "~exists"
        return f"PTX {self.name}\n{{ {declared} }}\n {head} ;\n{body}{quantifier} ({self.weak})\n"


def family(name):
    """`function` makes a family's shapes; its text argues the verdicts."""

    def register(function):
        FAMILIES[name] = (function, " ".join(function.__doc__.split()))
        return function

    return register


def covers(scope, place):
    return RANK[scope] >= RANK[place]


def release(kind, location, scope):
    """How a thread tells others: (instructions, whether they begin a release pattern)."""
    return {"rel": ([f"st.release.{scope} {location}, 1"], True),
            "fence": ([f"fence.acq_rel.{scope}", f"st.relaxed.{scope} {location}, 1"], True),
            "sc": ([f"fence.sc.{scope}", f"st.relaxed.{scope} {location}, 1"], True),
            "atom": ([f"red.release.{scope}.add {location}, 1"], True),
            "rlx": ([f"st.relaxed.{scope} {location}, 1"], False)}[kind]  # fmt: skip


def acquire(kind, register, location, scope):
    return {"acq": ([f"ld.acquire.{scope} {register}, {location}"], True),
            "fence": ([f"ld.relaxed.{scope} {register}, {location}", f"fence.acq_rel.{scope}"], True),
            "sc": ([f"ld.relaxed.{scope} {register}, {location}", f"fence.sc.{scope}"], True),
            "atom": ([f"atom.acquire.{scope}.add {register}, {location}, 0"], True),
            "rlx": ([f"ld.relaxed.{scope} {register}, {location}"], False)}[kind]  # fmt: skip


@family("MP")
def message_passing():
    """Data, then a flag; the reader has seen the flag and reads the data. A release pattern synchronizes with an
    acquire pattern that observes it where both scopes cover: then the store of data precedes its load in causality
    order, and Causality forbids the old value. Else nothing orders the two: they race where they are weak, and where
    they are strong the old value is allowed. The weak load is taken only where the flag was seen, as programs do."""
    kinds = [(w, r) for w in ("rel", "fence", "atom", "rlx") for r in ("acq", "fence", "atom", "rlx")]
    cases = [(w, r, "gpu", "gpu", "gpu", d) for w, r in kinds for d in ("weak", "relaxed")]
    cases += [
        ("rel", "acq", s, s, p, d) for s in RANK for p in RANK for d in ("weak", "relaxed") if (s, p) != ("gpu", "gpu")
    ]
    cases += [
        (w, r, s, t, p, "weak")
        for w, r in (("rel", "acq"), ("fence", "fence"))
        for s, t, p in (
            ("cta", "gpu", "gpu"),
            ("gpu", "cta", "gpu"),
            ("sys", "gpu", "sys"),
            ("gpu", "sys", "sys"),
            ("sys", "gpu", "gpu"),
        )
    ]
    for w, r, s, t, p, data in cases:
        told, releases = release(w, "flag", s)
        heard, acquires = acquire(r, "r0", "flag", t)
        ordered = releases and acquires and covers(s, p) and covers(t, p)
        racing = not ordered and data == "weak" or not (covers(s, p) and covers(t, p))
        words = "weak" if data == "weak" else "relaxed.sys"
        yield Shape(
            "MP",
            f"{w}.{s}+{r}.{t}@{p}" + ("" if data == "weak" else "+strong"),
            [[f"st.{words} x, 1"] + told, heard + ["bne r0, 1, END", f"ld.{words} r1, x", "END:"]],
            "P1:r0 == 1 /\\ P1:r1 == 0",
            not ordered,
            racing,
            p,
        )


@family("MPspin")
def message_passing_by_polling():
    """MP where the reader polls: the last load of the loop is the one that begins the acquire pattern."""
    for w, r in (("rel", "acq"), ("fence", "fence"), ("rlx", "acq"), ("rel", "rlx")):
        told, releases = release(w, "flag", "sys")
        heard, acquires = acquire(r, "r0", "flag", "sys")
        loop = ["LC0: " + heard[0], "bne r0, 1, LC0"] + heard[1:]
        yield Shape(
            "MPspin",
            f"{w}+{r}",
            [["st.weak x, 1"] + told, loop + ["ld.weak r1, x"]],
            "P1:r1 == 0",
            not (releases and acquires),
            not (releases and acquires),
            "sys",
        )


@family("SB")
def store_buffering():
    """Each stores, then loads what the other stores; both read 0. No load observes a store, so nothing synchronizes but
    Fence-SC: of two morally strong fence.sc one comes first, and then that thread's store precedes the other's load in
    causality order. Any weaker fence, one fence.sc alone, or scopes that do not cover, allow it."""
    between = {"rlx": [], "acq_rel": ["fence.acq_rel.{}"], "sc": ["fence.sc.{}"]}
    cases = [(a, b, "gpu", "gpu") for a in between for b in between if (a, b) != ("acq_rel", "rlx")]
    cases += [("sc", "sc", s, p) for s in RANK for p in RANK if (s, p) != ("gpu", "gpu") and covers("sys", p)]
    for a, b, s, p in cases:
        sides = [
            [f"st.relaxed.sys {mine}, 1", *(t.format(s) for t in between[kind]), f"ld.relaxed.sys r0, {other}"]
            for kind, mine, other in ((a, "x", "y"), (b, "y", "x"))
        ]
        yield Shape(
            "SB",
            f"{a}+{b}.{s}@{p}",
            sides,
            "P0:r0 == 0 /\\ P1:r0 == 0",
            not (a == b == "sc" and covers(s, p)),
            False,
            p,
        )
    yield Shape(
        "SB",
        "rel+acq",
        [["st.release.sys x, 1", "ld.acquire.sys r0, y"], ["st.release.sys y, 1", "ld.acquire.sys r0, x"]],
        "P0:r0 == 0 /\\ P1:r0 == 0",
        True,
    )
    yield Shape(
        "SB",
        "exch",
        [
            ["atom.acq_rel.sys.exch r1, x, 1", "ld.acquire.sys r0, y"],
            ["atom.acq_rel.sys.exch r1, y, 1", "ld.acquire.sys r0, x"],
        ],
        "P0:r0 == 0 /\\ P1:r0 == 0",
        True,
    )


@family("LB")
def load_buffering():
    """Each loads, then stores what the other loads; both read 1. Allowed where nothing orders: a load may be
    performed after a later store. One release-acquire pair that covers puts one thread's load before the other's
    store in causality order; values or branches on both sides that depend on the loads are excluded by No Thin
    Air."""

    def sides(first, second):
        return [
            [f"ld.{first[0]} r0, x", *first[2:], f"st.{first[1]}"],
            [f"ld.{second[0]} r0, y", *second[2:], f"st.{second[1]}"],
        ]

    rlx = "relaxed.gpu"
    both = "P0:r0 == 1 /\\ P1:r0 == 1"
    yield Shape("LB", "rlx", sides((rlx, rlx + " y, 1"), (rlx, rlx + " x, 1")), both, True)
    for s in RANK:
        for p in RANK:
            order = sides((f"acquire.{s}", f"relaxed.{s} y, 1"), (f"relaxed.{s}", f"release.{s} x, 1"))
            yield Shape("LB", f"acq+rel.{s}@{p}", order, both, not covers(s, p), not covers(s, p), p)
    yield Shape("LB", "acq+rlx", sides(("acquire.gpu", rlx + " y, 1"), (rlx, rlx + " x, 1")), both, True)
    yield Shape("LB", "rel+rel", sides((rlx, "release.gpu y, 1"), (rlx, "release.gpu x, 1")), both, True)
    yield Shape(
        "LB",
        "fences",
        sides((rlx, rlx + " y, 1", "fence.acq_rel.gpu"), (rlx, rlx + " x, 1", "fence.acq_rel.gpu")),
        both,
        False,
    )
    yield Shape("LB", "fence", sides((rlx, rlx + " y, 1", "fence.acq_rel.gpu"), (rlx, rlx + " x, 1")), both, True)
    yield Shape("LB", "data", sides((rlx, rlx + " y, r0"), (rlx, rlx + " x, r0")), both, False)
    yield Shape("LB", "data+rlx", sides((rlx, rlx + " y, r0"), (rlx, rlx + " x, 1")), both, True)
    branch = ["ld.relaxed.gpu r0, {}", "bne r0, 1, END", "st.relaxed.gpu {}, 1", "END:"]
    yield Shape(
        "LB",
        "branches",
        [[i.format(a if i[0] == "l" else b) for i in branch] for a, b in (("x", "y"), ("y", "x"))],
        both,
        False,
    )


@family("IRIW")
def independent_reads():
    """Two readers see two stores in different orders. Acquire loads do not order the stores for others: PTX is not
    multi-copy atomic. With a morally strong fence.sc in each reader, the one that comes first in Fence-SC order has
    observed what the other then reads, so Causality forbids the old value."""
    orders = {"rlx": (["relaxed"], []), "acq": (["acquire"], []), "acq_rel": (["relaxed"], ["fence.acq_rel.{}"]),
              "sc": (["relaxed"], ["fence.sc.{}"])}  # fmt: skip
    cases = [
        ("rlx", "rlx", "gpu", "gpu"),
        ("acq", "acq", "gpu", "gpu"),
        ("acq_rel", "acq_rel", "gpu", "gpu"),
        ("sc", "acq_rel", "gpu", "gpu"),
        ("sc", "sc", "gpu", "gpu"),
        ("sc", "sc", "sys", "sys"),
        ("sc", "sc", "gpu", "sys"),
        ("sc", "sc", "cta", "gpu"),
        ("sc", "sc", "cta", "cta"),
    ]
    for a, b, s, p in cases:
        readers = [
            [
                f"ld.{orders[k][0][0]}.sys r0, {x}",
                *(f.format(s) for f in orders[k][1]),
                f"ld.{orders[k][0][0]}.sys r1, {y}",
            ]
            for k, x, y in ((a, "x", "y"), (b, "y", "x"))
        ]
        yield Shape(
            "IRIW",
            f"{a}+{b}.{s}@{p}",
            [["st.relaxed.sys x, 1"], ["st.relaxed.sys y, 1"], *readers],
            "P2:r0 == 1 /\\ P2:r1 == 0 /\\ P3:r0 == 1 /\\ P3:r1 == 0",
            not (a == b == "sc" and covers(s, p)),
            False,
            p,
        )


@family("Co")
def coherence():
    """One location. Morally strong accesses obey SC-per-Location: communication order (what is read from, what
    overwrites) does not contradict program order. Where scopes do not cover, or an access is weak, they race."""

    def shapes(strong):
        yield "RR", [[f"st{strong} x, 1"], [f"ld{strong} r0, x", f"ld{strong} r1, x"]], "P1:r0 == 1 /\\ P1:r1 == 0"
        yield (
            "WW",
            [[f"st{strong} x, 1", f"st{strong} x, 2"], [f"ld{strong} r0, x", f"ld{strong} r1, x"]],
            "P1:r0 == 2 /\\ P1:r1 == 1",
        )
        yield "RW1", [[f"ld{strong} r0, x", f"st{strong} x, 1"]] + [[f"ld{strong} r0, x"]], "P0:r0 == 1"
        yield "RW2", [[f"ld{strong} r0, x", f"st{strong} x, 1"], [f"st{strong} x, 2"]], "P0:r0 == 2 /\\ x == 2"
        yield "WR", [[f"st{strong} x, 1", f"ld{strong} r0, x"], [f"st{strong} x, 2"]], "P0:r0 == 2 /\\ x == 1"
        yield (
            "IRIW",
            [[f"st{strong} x, 1"], [f"st{strong} x, 2"], *([f"ld{strong} r0, x", f"ld{strong} r1, x"],) * 2],
            "P2:r0 == 1 /\\ P2:r1 == 2 /\\ P3:r0 == 2 /\\ P3:r1 == 1",
        )

    for s, p in (("cta", "cta"), ("gpu", "gpu"), ("sys", "sys")):
        for name, threads, weak in shapes(f".relaxed.{s}"):
            yield Shape("Co", f"{name}.{s}@{p}", threads, weak, False, False, p)
    for words, p in ((".relaxed.cta", "gpu"), (".relaxed.gpu", "sys"), (".weak", "gpu")):
        for name, threads, weak in shapes(words):
            if name in ("RR", "RW2", "WR"):
                yield Shape("Co", f"{name}{words}@{p}", threads, weak, True, True, p)


@family("2+2W")
def double_write():
    """Each stores to both locations, in opposite order; the first store of each is what is left. No load observes
    anything, so release does not synchronize; coherence order contradicts causality order only where fence.sc of
    both, that cover, order the threads."""
    for kind, s, p in (
        ("rlx", "gpu", "gpu"),
        ("rel", "gpu", "gpu"),
        ("acq_rel", "gpu", "gpu"),
        ("sc", "gpu", "gpu"),
        ("sc", "sys", "sys"),
        ("sc", "gpu", "sys"),
        ("sc", "cta", "cta"),
        ("sc", "cta", "gpu"),
    ):
        fence = {"acq_rel": [f"fence.acq_rel.{s}"], "sc": [f"fence.sc.{s}"]}.get(kind, [])
        store = "st.release.sys" if kind == "rel" else "st.relaxed.sys"
        yield Shape(
            "2+2W",
            f"{kind}.{s}@{p}",
            [["st.relaxed.sys x, 2", *fence, f"{store} y, 1"], ["st.relaxed.sys y, 2", *fence, f"{store} x, 1"]],
            "x == 2 /\\ y == 2",
            not (kind == "sc" and covers(s, p)),
            False,
            p,
        )


@family("S")
def store_after_flag():
    """As MP, but the reader stores to the data, and the writer's store is what is left: Coherence forbids it where the
    two synchronize. A store that depends on the load is no order of the other thread's stores."""
    for w, r, s, p in (
        ("rel", "acq", "gpu", "gpu"),
        ("fence", "fence", "gpu", "gpu"),
        ("rlx", "acq", "gpu", "gpu"),
        ("rel", "rlx", "gpu", "gpu"),
        ("rel", "acq", "cta", "cta"),
        ("rel", "acq", "sys", "sys"),
        ("rel", "acq", "gpu", "sys"),
        ("rel", "acq", "cta", "gpu"),
    ):
        told, releases = release(w, "y", s)
        heard, acquires = acquire(r, "r0", "y", s)
        ordered = releases and acquires and covers(s, p)
        yield Shape(
            "S",
            f"{w}+{r}.{s}@{p}",
            [["st.relaxed.sys x, 2"] + told, heard + ["st.relaxed.sys x, 1"]],
            "P1:r0 == 1 /\\ x == 2",
            not ordered,
            not covers(s, p),
            p,
        )


@family("R")
def store_and_read():
    """Stores to two locations in one thread, a store and a load in the other: as SB, only fence.sc on both sides
    forbids."""
    for a, b, s, p in (
        ("rlx", "rlx", "gpu", "gpu"),
        ("acq_rel", "acq_rel", "gpu", "gpu"),
        ("sc", "acq_rel", "gpu", "gpu"),
        ("acq_rel", "sc", "gpu", "gpu"),
        ("sc", "sc", "gpu", "gpu"),
        ("sc", "sc", "sys", "sys"),
        ("sc", "sc", "gpu", "sys"),
    ):
        fence = {"rlx": []}
        first, second = (fence.get(k, [f"fence.{k}.{s}"]) for k in (a, b))
        yield Shape(
            "R",
            f"{a}+{b}.{s}@{p}",
            [
                ["st.relaxed.sys x, 1", *first, "st.relaxed.sys y, 1"],
                ["st.relaxed.sys y, 2", *second, "ld.relaxed.sys r0, x"],
            ],
            "y == 2 /\\ P1:r0 == 0",
            not (a == b == "sc" and covers(s, p)),
            False,
            p,
        )


@family("WRC")
def write_to_read_causality():
    """A thread that has read a store tells a third. Where its release and the third's acquire synchronize, the store
    precedes, by its observation, the third's load in causality order, also if the middle thread's load is relaxed; it
    has to be morally strong with the store."""
    for middle, w, r, s, p in (
        ("relaxed", "rel", "acq", "gpu", "gpu"),
        ("acquire", "rel", "acq", "gpu", "gpu"),
        ("relaxed", "fence", "fence", "gpu", "gpu"),
        ("relaxed", "rlx", "acq", "gpu", "gpu"),
        ("acquire", "rel", "rlx", "gpu", "gpu"),
        ("relaxed", "rel", "acq", "sys", "sys"),
        ("relaxed", "rel", "acq", "cta", "cta"),
        ("acquire", "rlx", "rlx", "gpu", "gpu"),
    ):
        told, releases = release(w, "y", s)
        heard, acquires = acquire(r, "r0", "y", s)
        yield Shape(
            "WRC",
            f"{middle}+{w}+{r}.{s}@{p}",
            [["st.relaxed.sys x, 1"], [f"ld.{middle}.sys r0, x"] + told, heard + ["ld.relaxed.sys r1, x"]],
            "P1:r0 == 1 /\\ P2:r0 == 1 /\\ P2:r1 == 0",
            not (releases and acquires),
            False,
            p,
        )


@family("ISA2")
def cumulativity():
    """The first tells the second, which tells the third: base causality order is transitive, so what the first stored
    is there for the third, also where the first pair synchronizes at the scope of its block only. A relaxed store or
    load in the middle breaks the chain."""
    together = [(0, 0), (0, 0), (1, 0)]  # the first two in one block
    for w1, r1, w2, r2, s, places in (
        ("rel", "acq", "rel", "acq", "gpu", None),
        ("fence", "fence", "fence", "fence", "gpu", None),
        ("rel", "acq", "rel", "acq", "cta", together),
        ("rel", "acq", "rel", "acq", "cta", None),
        ("rel", "rlx", "rel", "acq", "gpu", None),
        ("rel", "acq", "rlx", "acq", "gpu", None),
        ("rlx", "acq", "rel", "acq", "gpu", None),
        ("rel", "acq", "rel", "rlx", "gpu", None),
    ):
        tells, a = release(w1, "y", s)
        hears, b = acquire(r1, "r0", "y", s)
        passes, c = release(w2, "z", "gpu")
        ends, d = acquire(r2, "r0", "z", "gpu")
        ordered = a and b and c and d and (s == "gpu" or places is together)
        threads = [
            ["st.weak x, 1"] + tells,
            hears + ["bne r0, 1, END"] + passes + ["END:"],
            ends + ["bne r0, 1, END", "ld.weak r1, x", "END:"],
        ]
        yield Shape(
            "ISA2",
            f"{w1}+{r1}.{s}+{w2}+{r2}" + ("@block" if places else ""),
            threads,
            "P2:r0 == 1 /\\ P2:r1 == 0",
            not ordered,
            not ordered,
            "gpu",
            places,
        )


@family("RelSeq")
def release_sequences():
    """Observation order goes through atomic operations of any thread and order: an acquire that reads what they made
    of a released value synchronizes with the release. A plain strong store in between ends that."""
    acquired = ["ld.acquire.gpu r0, y", "bne r0, 2, END", "ld.weak r1, x", "END:"]
    weak = "P2:r0 == 2 /\\ P2:r1 == 0"
    for name, middle, ordered in (
        ("add", ["atom.relaxed.gpu.add r0, y, 1"], True),
        ("cas", ["atom.relaxed.gpu.cas r0, y, 1, 2"], True),
        ("store", ["ld.relaxed.gpu r0, y", "bne r0, 1, END", "st.relaxed.gpu y, 2", "END:"], False),
    ):
        first = ["st.weak x, 1", "st.release.gpu y, 1"]
        yield Shape("RelSeq", name, [first, middle, acquired], weak, not ordered, not ordered)
    yield Shape(
        "RelSeq",
        "own_store",
        [["st.weak x, 1", "st.release.gpu y, 1", "st.relaxed.gpu y, 2"], acquired],
        "P1:r0 == 2 /\\ P1:r1 == 0",
        False,
    )
    yield Shape(
        "RelSeq",
        "weak_before",
        [["st.release.gpu y, 1", "st.weak x, 1", "st.relaxed.gpu y, 2"], acquired],
        "P1:r0 == 2 /\\ P1:r1 == 0",
        True,
        True,
    )
    yield Shape(
        "RelSeq",
        "narrow",
        [["st.weak x, 1", "st.release.cta y, 1"], ["atom.relaxed.gpu.add r0, y, 1"], acquired],
        weak,
        True,
        True,
    )


@family("RMW")
def atomicity():
    """Atomicity: no morally strong write comes between an atomic operation's read and its write. Where scopes do not
    cover, the two race and an update may be lost."""
    for operation, value in (("add", 1), ("inc", 9), ("exch", 1), ("cas", None), ("max", 1), ("or", 1)):
        operands = "x, 0, 1" if value is None else f"x, {value}"
        weak = "P0:r0 == 0 /\\ P1:r0 == 0"
        for s, p in (("gpu", "gpu"), ("sys", "sys"), ("cta", "gpu")):
            if s == "cta" and operation != "add":
                continue
            yield Shape(
                "RMW",
                f"{operation}.{s}@{p}",
                [[f"atom.relaxed.{s}.{operation} r0, {operands}"]] * 2,
                weak,
                not covers(s, p),
                not covers(s, p),
                p,
            )
    yield Shape(
        "RMW", "load_store", [["ld.relaxed.gpu r0, x", "add r1, r0, 1", "st.relaxed.gpu x, r1"]] * 2, "x == 1", True
    )
    yield Shape(
        "RMW", "between", [["atom.relaxed.gpu.add r0, x, 1"], ["st.relaxed.gpu x, 4"]], "P0:r0 == 0 /\\ x == 1", False
    )


@family("Lock")
def locks():
    """A lock by compare-and-swap: who acquires it has observed, through atomic operations, the release of who held it
    before. Where either is relaxed, or its scope does not cover, the data race."""
    for take, give, s, p in (
        ("acquire", "release", "gpu", "gpu"),
        ("relaxed", "release", "gpu", "gpu"),
        ("acquire", "relaxed", "gpu", "gpu"),
        ("acquire", "release", "cta", "cta"),
        ("acquire", "release", "cta", "gpu"),
        ("acquire", "release", "sys", "sys"),
        ("acquire", "release", "gpu", "sys"),
    ):
        side = [
            f"atom.{take}.{s}.cas r0, lock, 0, 1",
            "bne r0, 0, END",
            "ld.weak r1, x",
            "add r2, r1, 1",
            "st.weak x, r2",
            f"st.{give}.{s} lock, 0",
            "END:",
        ]
        ordered = (take, give) == ("acquire", "release") and covers(s, p)
        yield Shape(
            "Lock", f"{take}+{give}.{s}@{p}", [side] * 2, "P0:r2 == 1 /\\ P1:r2 == 1", not ordered, not ordered, p
        )


@family("Bar")
def barriers():
    """bar.sync synchronizes the threads of a block with each other, as a morally strong release and acquire; what it
    orders is passed on by base causality order, also to threads of other blocks."""
    yield Shape(
        "Bar",
        "MP",
        [["st.weak x, 1", "bar.sync 0"], ["bar.sync 0", "ld.weak r1, x"]],
        "P1:r1 == 0",
        False,
        False,
        "cta",
    )
    yield Shape("Bar", "none", [["st.weak x, 1"], ["ld.weak r1, x"]], "P1:r1 == 0", True, True, "cta")
    yield Shape(
        "Bar",
        "late",
        [["bar.sync 0", "st.weak x, 1"], ["bar.sync 0", "ld.weak r1, x"]],
        "P1:r1 == 0",
        True,
        True,
        "cta",
    )
    yield Shape(
        "Bar",
        "twice",
        [["bar.sync 0", "st.weak x, 1", "bar.sync 0"], ["bar.sync 0", "bar.sync 0", "ld.weak r1, x"]],
        "P1:r1 == 0",
        False,
        False,
        "cta",
    )
    together = [(0, 0), (0, 0), (1, 0)]
    for w, r in (("rel", "acq"), ("rlx", "acq"), ("rel", "rlx"), ("fence", "fence")):
        told, releases = release(w, "y", "gpu")
        heard, acquires = acquire(r, "r0", "y", "gpu")
        yield Shape(
            "Bar",
            f"ISA2+{w}+{r}",
            [
                ["st.weak x, 1", "bar.sync 0"],
                ["bar.sync 0"] + told,
                heard + ["bne r0, 1, END", "ld.weak r1, x", "END:"],
            ],
            "P2:r0 == 1 /\\ P2:r1 == 0",
            not (releases and acquires),
            not (releases and acquires),
            "gpu",
            together,
        )
    yield Shape(
        "Bar",
        "SB",
        [["st.weak x, 1", "bar.sync 0", "ld.weak r0, y"], ["st.weak y, 1", "bar.sync 0", "ld.weak r0, x"]],
        "P0:r0 == 0 /\\ P1:r0 == 0",
        False,
        False,
        "cta",
    )


@family("RWC")
def read_to_write_causality():
    """As SB, with the store of one side observed by a thread that did not make it: fence.sc of both readers."""
    for a, b, s, p in (
        ("rlx", "rlx", "gpu", "gpu"),
        ("sc", "sc", "gpu", "gpu"),
        ("sc", "acq_rel", "gpu", "gpu"),
        ("acq_rel", "sc", "gpu", "gpu"),
        ("sc", "sc", "sys", "sys"),
        ("sc", "sc", "gpu", "sys"),
    ):
        first, second = ([] if k == "rlx" else [f"fence.{k}.{s}"] for k in (a, b))
        yield Shape(
            "RWC",
            f"{a}+{b}.{s}@{p}",
            [
                ["st.relaxed.sys x, 1"],
                ["ld.relaxed.sys r0, x", *first, "ld.relaxed.sys r1, y"],
                ["st.relaxed.sys y, 1", *second, "ld.relaxed.sys r0, x"],
            ],
            "P1:r0 == 1 /\\ P1:r1 == 0 /\\ P2:r0 == 0",
            not (a == b == "sc" and covers(s, p)),
            False,
            p,
        )


@family("Alias")
def aliases():
    """Two addresses of one location are two proxies: base causality order is kept for them only along
    fence.proxy.alias. (The simulator has two addresses only of multicast memory, so these are for the axioms
    alone.)"""
    alias = (("v", "x"),)
    for fenced in (False, True):
        fence = ["fence.proxy.alias"] if fenced else []
        name = "fence" if fenced else "none"
        yield Shape(
            "Alias", f"own+{name}", [["st.weak x, 1", *fence, "ld.weak r0, v"]], "P0:r0 == 0", not fenced, aliases=alias
        )
        yield Shape(
            "Alias",
            f"MP+writer_{name}",
            [
                ["st.weak v, 1", *fence, "st.release.gpu y, 1"],
                ["ld.acquire.gpu r0, y", "bne r0, 1, END", "ld.weak r1, x", "END:"],
            ],
            "P1:r0 == 1 /\\ P1:r1 == 0",
            not fenced,
            not fenced,
            aliases=alias,
        )
        yield Shape(
            "Alias",
            f"MP+reader_{name}",
            [
                ["st.weak v, 1", "st.release.gpu y, 1"],
                ["ld.acquire.gpu r0, y", "bne r0, 1, END", *fence, "ld.weak r1, x", "END:"],
            ],
            "P1:r0 == 1 /\\ P1:r1 == 0",
            not fenced,
            not fenced,
            aliases=alias,
        )


def rounds_of(shape):
    return ROUNDS.get(shape.family, 1000)


def all_shapes(names=()):
    shapes = [s for make, _ in FAMILIES.values() for s in make()]
    chosen = [s for s in shapes if not names or s.family in names or s.name in names]
    if len({s.name for s in shapes}) != len(shapes):
        sys.exit("two shapes have one name")
    return chosen


def litmus(path):
    """devcomm-litmus as a module."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("devcomm_litmus", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("devcomm_litmus", loader))
    loader.exec_module(module)
    return module


def difference(shape, result):
    """What is not as it should be, or an empty text."""
    allowed = any(result.test.condition.of(dict(o)) for o in result.verdict.outcomes)
    if (allowed, bool(result.verdict.race)) != (shape.allowed, shape.race):
        return f"the axioms computed: allowed {allowed}, race {bool(result.verdict.race)}"
    if not result.agrees():
        return f"the simulator: {result.compared()}"
    if result.seen is None or shape.race or not shape.allowed:
        return ""
    shown = any(result.test.condition.of(dict(o)) for o in result.seen.outcomes)
    if shown == (shape.name in NOT_SHOWN):
        return "the simulator shows the outcome" if shown else f"the simulator does not show {shape.weak}"
    return ""


def run(tool, shapes):
    results = {}
    for rounds in sorted({rounds_of(s) for s in shapes}):
        some = [s for s in shapes if rounds_of(s) == rounds]
        results |= zip((s.name for s in some), tool.run([tool.Test(s.name, s.text()) for s in some], True, rounds))
    return [results[s.name] for s in shapes]


def check(tool, names):
    shapes = all_shapes(names)
    differences = 0
    if table() not in PAGE.read_text():
        differences += 1
        print(f"{PAGE}: its table is not what `shapes.py table` prints")
    for shape, result in zip(shapes, run(tool, shapes)):
        if found := difference(shape, result):
            differences += 1
            print(f"{shape.name}: by argument allowed {shape.allowed}, race {shape.race}; {found}\n{shape.text()}")
    print(f"{len(shapes) - differences} passed, {differences} failed")
    return 1 if differences else 0


def on_gpu(tool, names):
    """A line for each test; how many of the allowed outcomes that sequential consistency lacks were seen."""
    tests = [tool.Test(s.name, s.text()) for s in all_shapes(names)]
    results = [r for r in tool.run(tests, False, gpu_rounds=tool.GPU_ROUNDS) if r.on_gpu]
    print("\n".join(r.text() for r in results))
    weak = [r for r in results if any(r.test.condition.of(dict(o)) for o in r.allowed)]
    seen = [r for r in weak if any(r.test.condition.of(dict(o)) for o in r.on_gpu.outcomes)]
    forbidden = [r for r in results if r.forbidden(r.on_gpu)]
    print(
        f"{len(results)} tests, {len(forbidden)} with a forbidden outcome; {len(seen)} of {len(weak)} weak outcomes were seen"
    )
    return 1 if forbidden else 0


def table():
    lines = ["| family | tests | allowed | forbidden | race | not shown | why |", "|---|---|---|---|---|---|---|"]
    for name, (make, why) in FAMILIES.items():
        made = list(make())
        counted = [sum(s.allowed and not s.race for s in made), sum(not s.allowed and not s.race for s in made),
                   sum(s.race for s in made), sum(s.name in NOT_SHOWN for s in made)]  # fmt: skip
        lines.append(f"| {name} | {len(made)} | {' | '.join(str(c or '') for c in counted)} | {why} |")
    return "\n".join(lines) + "\n"


def write(folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for shape in all_shapes():
        pathlib.Path(folder, f"{shape.name}.litmus").write_text(shape.text())


def main():
    match sys.argv[1:]:
        case ["check", "install", *names]:
            return check(litmus(installed().parent / "devcomm-litmus"), names)
        case ["check", binaries, *names]:
            return check(litmus(pathlib.Path(binaries, "devcomm-litmus")), names)
        case ["gpu", *names]:
            return on_gpu(litmus(PAGE.parents[1] / "simulator/tools/devcomm_litmus.py"), names)
        case ["table"]:
            print(table(), end="")
            return 0
        case ["write", folder]:
            return write(folder)
    return __doc__


if __name__ == "__main__":
    sys.exit(main())
