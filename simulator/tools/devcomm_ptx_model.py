"""PTX's memory model: which outcomes it allows a small program, and whether the program has a data race.

The axioms are those of "Memory Consistency Model" in NVIDIA's PTX ISA 9.0; names of relations are that text's. All
accesses have 4 bytes. Every execution is made and judged, so programs are to have a dozen accesses at most.
"""

import collections
import itertools

SCOPES = ("cta", "cluster", "gpu", "sys")
LOOPS = 3  # backward branches that a thread takes at most; longer executions are left out
WORD = 1 << 32
MAX_CANDIDATES = 500000  # choices of stores for loads, and of orders of stores; half a minute
MAX_WRITES = 8  # of a location, its first value among them


class TooLarge(Exception):
    pass


class Thread:
    """`code` is a list of `Instruction`."""

    def __init__(self, name, cta, gpu, code):
        self.name, self.cta, self.gpu, self.code = name, cta, gpu, code


class Instruction:
    """`kind`: ld, st, atom, fence, fence.proxy.alias, bar, mov, add, sub, label, goto, beq, bne. `order`: weak,
    relaxed, acquire, release, acq_rel, sc. Operands are registers (names) or numbers."""

    def __init__(self, kind, line, order=None, scope=None, operation=None, target=None, location=None, operands=()):
        self.kind, self.line, self.order, self.scope, self.operation = kind, line, order, scope, operation
        self.target, self.location, self.operands = target, location, operands


class Event:
    """One thing that a thread does. `kind`: R, W, F (fence), A (fence.proxy.alias), B and E (arrive at and leave a
    barrier); `name` is the location as the program calls it, `location` what that name is an alias of."""

    def __init__(self, thread, kind, **more):
        self.thread, self.kind = thread, kind
        self.order = self.scope = self.name = self.location = self.value = self.instruction = None
        self.partner = None  # the write of an atomic operation's read
        self.sources = ()  # reads that decide on this event
        self.barrier = None
        self.__dict__.update(more)

    @property
    def strong(self):
        return self.order not in (None, "weak")

    @property
    def acquires(self):
        return self.order in ("acquire", "acq_rel", "sc")

    @property
    def releases(self):
        return self.order in ("release", "acq_rel", "sc")


def changed(operation, old, operands):
    """What an atomic operation stores."""
    first = operands[0] if operands else 0
    new = {
        "exch": lambda: first,
        "add": lambda: old + first,
        "and": lambda: old & first,
        "or": lambda: old | first,
        "xor": lambda: old ^ first,
        "min": lambda: min(old, first),
        "max": lambda: max(old, first),
        "inc": lambda: 0 if old >= first else old + 1,
        "dec": lambda: first if old == 0 or old > first else old - 1,
        "cas": lambda: operands[1] if old == first else None,
    }[operation]()
    return None if new is None else new % WORD


def paths(program, thread, values):
    """Each way through a thread's code in which its loads return any of `values[location]`: (events, registers)."""
    code = program.threads[thread].code
    labels = {i.target: at for at, i in enumerate(code) if i.kind == "label"}
    found = []

    def run(at, events, registers, decided, loops, barriers):
        """`registers`: name -> (value, reads that it comes from); `decided`: reads that branches depend on."""
        registers = dict(registers)

        def value_of(operand):
            return registers.get(operand, (0, ())) if isinstance(operand, str) else (operand % WORD, ())

        while at < len(code):
            i = code[at]
            at += 1
            operands = [value_of(o) for o in i.operands]
            sources = decided + tuple(s for _, more in operands for s in more)
            common = dict(
                instruction=i,
                scope=i.scope,
                sources=sources,
                name=i.location,
                location=program.aliases.get(i.location, i.location),
            )
            if i.kind in ("ld", "atom"):
                read_order = {"release": "relaxed", "acq_rel": "acquire"}.get(i.order, i.order)
                for value in sorted(values[common["location"]]):
                    read = Event(thread, "R", order=read_order, value=value, **common)
                    more = [read]
                    if i.kind == "atom":
                        new = changed(i.operation, value, [v for v, _ in operands])
                        if new is not None:
                            write_order = {"acquire": "relaxed", "acq_rel": "release"}.get(i.order, i.order)
                            written = Event(thread, "W", order=write_order, value=new, **common)
                            written.sources += () if i.operation == "exch" else (read,)
                            read.partner = written
                            more.append(written)
                    taken = dict(registers)
                    if i.target:
                        taken[i.target] = (value, (read,))
                    run(at, events + more, taken, decided, loops, barriers)
                return
            if i.kind == "st":
                events = events + [Event(thread, "W", order=i.order, value=operands[0][0], **common)]
            elif i.kind in ("fence", "fence.proxy.alias"):
                events = events + [
                    Event(thread, "F" if i.kind == "fence" else "A", order=i.order, scope=i.scope, instruction=i)
                ]
            elif i.kind == "bar":
                key = (i.operands[0], sum(1 for b in barriers if b == i.operands[0]))
                barriers = barriers + (i.operands[0],)
                events = events + [Event(thread, kind, barrier=key, instruction=i) for kind in "BE"]
            elif i.kind in ("mov", "add", "sub"):
                numbers = [v for v, _ in operands]
                result = {"mov": numbers[0], "add": sum(numbers), "sub": numbers[0] - numbers[-1]}[i.kind] % WORD
                registers[i.target] = (result, tuple(s for _, more in operands for s in more))
            elif i.kind in ("goto", "beq", "bne"):
                if i.kind != "goto":
                    decided = sources
                    if (operands[0][0] == operands[1][0]) != (i.kind == "beq"):
                        continue
                if labels[i.target] < at:
                    loops += 1
                    if loops > LOOPS:
                        return
                at = labels[i.target]
        found.append((events, {name: value for name, (value, _) in registers.items()}))

    run(0, [], {}, (), 0, ())
    return found


def values_of(program):
    """Location -> values that can be in it, by what stores there can store."""
    values = {location: {value} for location, value in program.initial.items()}
    for _ in range(4):
        before = sum(map(len, values.values()))
        for thread in range(len(program.threads)):
            for events, _ in paths(program, thread, values):
                for event in events:
                    if event.kind == "W":
                        values[event.location].add(event.value)
        if sum(map(len, values.values())) == before:
            break
    return values


class Relation:
    """A relation of events 0 to n - 1, as a mask of successors for each."""

    def __init__(self, size, pairs=()):
        self.after = [0] * size
        for a, b in pairs:
            self.after[a] |= 1 << b

    def has(self, a, b):
        return bool(self.after[a] >> b & 1)

    def pairs(self):
        return [(a, b) for a, mask in enumerate(self.after) for b in range(len(self.after)) if mask >> b & 1]

    def closed(self):
        """Its transitive closure."""
        result = Relation(len(self.after))
        result.after = list(self.after)
        for middle in range(len(self.after)):
            for a in range(len(self.after)):
                if result.after[a] >> middle & 1:
                    result.after[a] |= result.after[middle]
        return result

    def acyclic(self):
        return not any(mask >> a & 1 for a, mask in enumerate(self.closed().after))


class Candidate:
    """The events of one choice of a path for each thread, and what does not depend on who reads from whom."""

    def __init__(self, program, events):
        self.program, self.events, self.size = program, events, len(events)
        self.judged = 0
        for number, event in enumerate(events):
            event.number = number
        self.reads = [e for e in events if e.kind == "R"]
        self.writes = [e for e in events if e.kind == "W"]
        self.order = Relation(
            self.size,
            [
                (a.number, b.number)
                for a, b in itertools.combinations(events, 2)
                if a.thread is None or a.thread == b.thread
            ],
        )
        self.strong = Relation(
            self.size,
            [(a.number, b.number) for a in events for b in events if a is not b and self.morally_strong(a, b)],
        )
        self.barriers = [
            (a.number, b.number)
            for a in events
            for b in events
            if a.kind == "B"
            and b.kind == "E"
            and a.barrier == b.barrier
            and self.thread(a).cta == self.thread(b).cta
            and self.thread(a).gpu == self.thread(b).gpu
        ]
        self.alias_fences = [e.number for e in events if e.kind == "A"]
        self.patterns = (self.release_patterns(), self.acquire_patterns())

    def thread(self, event):
        return self.program.threads[event.thread]

    def covers(self, scope, a, b):
        a, b = self.thread(a), self.thread(b)
        return scope == "sys" or a.gpu == b.gpu and (scope == "gpu" or a.cta == b.cta)

    def morally_strong(self, a, b):
        if a.thread is None or b.thread is None:
            return True
        if a.location is not None and b.location is not None and a.name != b.name and a.location == b.location:
            return False  # by different proxies
        if self.order.has(a.number, b.number) or self.order.has(b.number, a.number):
            return True
        return a.strong and b.strong and self.covers(a.scope, a, b) and self.covers(b.scope, a, b)

    def release_patterns(self):
        """(first event, strong write that ends the pattern)"""
        found = []
        for write in self.writes:
            if not write.strong or write.thread is None:
                continue
            if write.releases:
                found.append((write, write))
            for before in self.events[: write.number]:
                if (
                    before.thread == write.thread
                    and before.releases
                    and (before.kind == "F" or before.kind == "W" and before.location == write.location)
                ):
                    found.append((before, write))
        return found

    def acquire_patterns(self):
        """(strong read that begins the pattern, last event)"""
        found = []
        for read in self.reads:
            if not read.strong:
                continue
            if read.acquires:
                found.append((read, read))
            for after in self.events[read.number + 1 :]:
                if (
                    after.thread == read.thread
                    and after.acquires
                    and (after.kind == "F" or after.kind == "R" and after.location == read.location)
                ):
                    found.append((read, after))
        return found

    def executions(self):
        """Each consistent execution: (co as a relation, the causality order)."""
        by_location = collections.defaultdict(list)
        for write in self.writes:
            by_location[write.location].append(write)
        choices = [
            [w for w in by_location[r.location] if w.value == r.value and w is not r.partner] for r in self.reads
        ]
        depends = [(s.number, e.number) for e in self.events for s in e.sources]
        depends += [(r.number, r.partner.number) for r in self.reads if r.partner]
        coherence_choices = [self.coherences(writes) for writes in by_location.values()]
        fences = [e.number for e in self.events if e.kind == "F" and e.order == "sc"]
        fence_orders = {
            tuple((a, b) for a, b in itertools.combinations(order, 2) if self.strong.has(a, b))
            for order in itertools.permutations(fences)
        }
        for chosen in itertools.product(*choices):
            self.count()
            rf = [(w.number, r.number) for w, r in zip(chosen, self.reads)]
            if not Relation(self.size, rf + depends).acyclic():
                continue  # out of thin air
            observed = self.observations(rf)
            synchronized = [
                (first.number, last.number)
                for first, write in self.patterns[0]
                for read, last in self.patterns[1]
                if observed.has(write.number, read.number) and self.strong.has(first.number, last.number)
            ]
            for fence_order in fence_orders:
                base = Relation(
                    self.size, self.order.pairs() + synchronized + self.barriers + list(fence_order)
                ).closed()
                if not base.acyclic():
                    continue
                cause = self.causality(base, observed)
                forced = [
                    (a.number, b.number)
                    for writes in by_location.values()
                    for a in writes
                    for b in writes
                    if a is not b and cause.has(a.number, b.number)
                ]
                for coherences in itertools.product(*coherence_choices):
                    self.count()
                    co = Relation(self.size, [p for pairs in coherences for p in pairs] + forced).closed()
                    if co.acyclic() and self.consistent(rf, co, cause):
                        yield co, cause

    def count(self):
        self.judged += 1
        if self.judged > MAX_CANDIDATES:
            raise TooLarge

    def coherences(self, writes):
        """Each way to order the pairs of writes of one location that are morally strong."""
        if len(writes) > MAX_WRITES:
            raise TooLarge
        found = set()
        for order in itertools.permutations(writes[1:]):
            order = (writes[0], *order)  # the initial value comes first
            found.add(
                tuple(
                    sorted(
                        (a.number, b.number)
                        for a, b in itertools.combinations(order, 2)
                        if self.strong.has(a.number, b.number)
                    )
                )
            )
        return found

    def observations(self, rf):
        """Observation order, from writes to reads, along chains of atomic operations."""
        pairs = [(w, r) for w, r in rf if self.strong.has(w, r)]
        pairs += [(r.number, r.partner.number) for r in self.reads if r.partner]
        return Relation(self.size, pairs).closed()

    def causality(self, base, observed):
        """Causality order of accesses to one location each, which is all that the axioms ask for."""
        preserved = []
        for a, b in base.pairs():
            first, second = self.events[a], self.events[b]
            if first.location is None or first.location != second.location:
                continue
            if (
                first.thread is None
                or first.name == second.name
                or any(base.has(a, fence) and base.has(fence, b) for fence in self.alias_fences)
            ):
                preserved.append((a, b))
        kept = Relation(self.size, preserved)
        pairs = preserved + [
            (a, c)
            for a, b in observed.pairs()
            if self.events[b].kind == "R"
            for c in range(self.size)
            if kept.has(b, c)
        ]
        return Relation(self.size, pairs)

    def consistent(self, rf, co, cause):
        fr = [
            (r, w)
            for source, r in rf
            for w in range(self.size)
            if co.has(source, w) and w != r and self.events[r].partner is not self.events[w]
        ]
        if any(cause.has(b, a) for a, b in rf + fr):
            return False  # causality
        strong_fr = {p for p in fr if self.strong.has(*p)}
        for read in self.reads:  # atomicity
            if read.partner and any(
                r == read.number and co.has(w, read.partner.number) and self.strong.has(w, read.partner.number)
                for r, w in strong_fr
            ):
                return False
        same = [
            (a, b)
            for a, b in self.order.pairs()
            if self.events[a].location is not None
            and self.events[a].location == self.events[b].location
            and self.strong.has(a, b)
        ]
        communication = [p for p in rf + co.pairs() if self.strong.has(*p)] + list(strong_fr)
        return Relation(self.size, same + communication).acyclic()  # sequential consistency of each location

    def races(self, cause):
        """Pairs of conflicting accesses that are neither morally strong nor ordered."""
        accesses = [e for e in self.events if e.kind in "RW" and e.thread is not None]
        return [
            (a, b)
            for a, b in itertools.combinations(accesses, 2)
            if a.thread != b.thread
            and a.location == b.location
            and "W" in (a.kind, b.kind)
            and not self.strong.has(a.number, b.number)
            and not cause.has(a.number, b.number)
            and not cause.has(b.number, a.number)
        ]

    def final_values(self, co):
        """Each memory that this may leave: of writes that nothing orders, any."""
        last = collections.defaultdict(set)
        for write in self.writes:
            if not any(co.has(write.number, w.number) for w in self.writes if w.location == write.location):
                last[write.location].add(write.value)
        names = sorted(last)
        return [dict(zip(names, values)) for values in itertools.product(*(sorted(last[n]) for n in names))]


class Verdict:
    """`outcomes`: frozen sets of (register or location, value); `race`: two accesses, or nothing."""

    def __init__(self):
        self.outcomes, self.race, self.executions = set(), None, 0


def judge(program):
    """All that PTX allows. `program` has `threads`, `initial` (location -> value) and `aliases` (name -> location)."""
    verdict = Verdict()
    values = values_of(program)
    each = [paths(program, thread, values) for thread in range(len(program.threads))]
    judged = 0
    for chosen in itertools.product(*each):
        initial = [
            Event(None, "W", order="relaxed", scope="sys", name=location, location=location, value=value)
            for location, value in program.initial.items()
        ]
        barriers = [collections.Counter(e.barrier for e in events if e.kind == "B") for events, _ in chosen]
        for key in {k for counted in barriers for k in counted}:
            groups = collections.defaultdict(set)
            for thread, counted in zip(program.threads, barriers):
                groups[thread.cta, thread.gpu].add(counted[key])
            if any(len(counts) > 1 for counts in groups.values()):
                break  # a thread waits for ever
        else:
            candidate = Candidate(program, initial + [e for events, _ in chosen for e in events])
            registers = frozenset(
                (f"{program.threads[t].name}:{name}", value)
                for t, (_, named) in enumerate(chosen)
                for name, value in named.items()
            )
            for co, cause in candidate.executions():
                verdict.executions += 1
                for memory in candidate.final_values(co):
                    verdict.outcomes.add(registers | frozenset(memory.items()))
                if not verdict.race:
                    found = candidate.races(cause)
                    verdict.race = found and tuple(
                        f"{program.threads[e.thread].name}'s line {e.instruction.line}" for e in found[0]
                    )
            judged += candidate.judged
            if judged > MAX_CANDIDATES:
                raise TooLarge
    return verdict
