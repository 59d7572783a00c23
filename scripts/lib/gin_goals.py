#!/usr/bin/env python3
"""What GIN takes beside what libfabric alone takes, and what each step takes.

gin_goals.py LOG PROVIDER ROWS.jsonl: LOG has what devcomm-perf limits, raw_libfabric and network_steps printed, each
after a line with its command; ROWS.jsonl has the rows of devcomm-perf. Exits with 1 where a figure is missing.
"""
import json
import re
import sys

log_path, provider, rows_path = sys.argv[1:]

# What each command printed, the latest of its kind.
printed = {}
for section in open(log_path).read().split("\n$ ")[1:]:
    command, _, text = section.partition("\n")
    for program in ("raw_libfabric", "network_steps", "limits"):
        if re.search(rf"\b{program}\b", command) and (program == "limits" or f"--provider {provider} " in command):
            printed[program] = text
rows = [json.loads(line) for line in open(rows_path)]
rows = [r for r in rows if not r["late_us"] and not r["jitter_us"]]
missing = []


def number(program, pattern, what):
    found = re.search(pattern, printed.get(program, ""), re.MULTILINE)
    if found is None:
        missing.append(what)
        return 0.0
    return float(found.group(1))


def row(operation, algorithm, size, memory="device"):
    found = [r for r in rows if r["op"] == operation and r["algo"] == algorithm and r["bytes"] == size and
             r["memory"] == memory and r["impl"] == "devcomm"]
    if not found:
        missing.append(f"{operation} {algorithm} of {size} B in {memory} memory")
        return None
    return found[0]  # later ones are of runs with late ranks, of which one is late by 0


def print_line(what, figure, unit, limit, holds, why):
    print(f"   {what:56} {figure:10.2f} {unit:4} {limit:10.2f} {'held' if holds else 'MISSED':7} {why}")


def at_most(what, found, limit, why):
    if found is not None:
        print_line(what, found["us_median"], "us", limit, found["us_median"] <= limit, why)


def at_least(what, figure, limit, unit, why):
    print_line(what, figure, unit, limit, figure >= limit, why)


print(f"== {provider}: figures and limits")
raw = {int(size): (float(one_way), float(each), float(rate)) for size, one_way, each, rate in
       re.findall(r"^ *(\d+) \| +([\d.]+) \| +([\d.]+) +([\d.]+) +\d+$", printed.get("raw_libfabric", ""), re.MULTILINE)}
if 8 not in raw:
    missing.append("raw_libfabric")
else:
    one_way, each, _ = raw[8]
    print(f"   libfabric alone: 8 B one way {one_way:.2f} us, one among many {each:.2f} us")
    at_most("signal, one way", row("gin_signal", "signal", 8), one_way + 4, "libfabric + 4")
    at_most("put of 8 B with signal, windows in pinned host memory", row("gin_ping_pong", "put", 8, "pinned"),
            one_way + 5, "libfabric + 5")
    at_most("put of 8 B with signal, windows in device memory", row("gin_ping_pong", "put", 8), one_way + 8,
            "libfabric + 8")
    best = max(rate for _, _, rate in raw.values())
    for memory in ("device", "pinned"):
        for size in (8 << 20, 64 << 20):
            found = row("gin_put", "put_by_block", size, memory)
            if found is not None:
                at_least(f"puts of {size >> 20} MiB, windows in {memory} memory", found["algbw"], 0.85 * best, "GB/s",
                         f"0.85 of libfabric's best, {best:.2f}")
        found = row("gin_put", "put_by_threads", 8, memory)
        if found is not None:
            at_least(f"puts of 8 B by one context, windows in {memory} memory", 1e3 / found["us_median"], 0.6e3 / each,
                     "k/s", "0.6 of libfabric's rate")

# NCCL 2.28.9 over sockets on loopback, between two H200 of one host, microseconds.
by_sockets = {
    ("gin_exchange", "put_through_slots"): {1 << 10: 33, 64 << 10: 75},
    ("gin_exchange", "put"): {1 << 20: 476, 64 << 20: 30240},
    ("gin_all_to_all", "by_size"): {1 << 10: 33, 64 << 10: 44, 1 << 20: 297, 64 << 20: 15619},
    ("gin_all_reduce", "hierarchical_by_size"): {1 << 10: 42, 64 << 10: 103, 1 << 20: 326, 64 << 20: 16137},
}
for (operation, algorithm), limits in by_sockets.items():
    for size, limit in limits.items():
        # Both of NCCL's, with windows and without, in the same run.
        peers = [r["us_median"] for r in rows if r["impl"] == "nccl" and r["op"] == operation and r["bytes"] == size][:2]
        at_most(f"{operation} of {size} B", row(operation, algorithm, size), min(peers) if peers else limit,
                "NCCL over sockets" + ("" if peers else ", measured before on two GPUs"))

print(f"== {provider}: floors of each step, us")
word = number("limits", r"^word of the host to a kernel and back +([\d.]+) us", "the host's word")
polled = number("limits", r"^the same, polled as contexts do +([\d.]+) us", "the host's word, polled in turns")
copy = number("limits", r"^copy to the device, 8 B, call to event seen +([\d.]+) us", "the copy of 8 B")
message = number("network_steps", r"^message of the fabric, one way +\d+ +([\d.]+)", "the message of the fabric")
signal = number("network_steps", r"^signal, one way +\d+ +([\d.]+)", "the signal between proxies")
value = number("network_steps", r"^value with signal, one way +\d+ +([\d.]+)", "the value between proxies")
if not missing:
    for what, time in (("GPU to host word and host to GPU word", word), ("polling in turns", polled - word),
                       ("fabric: a message of a signal", message), ("both proxies, for a signal", signal - message),
                       ("both proxies, for a value", value - message), ("copy engine, 8 B", copy),
                       ("sum for a signal", polled + signal),
                       ("sum for 8 B with a signal into device memory", polled + value + copy)):
        print(f"   {what:56} {time:10.2f}")
for what in missing:
    print(f"   missing: {what}")
sys.exit(1 if missing else 0)
