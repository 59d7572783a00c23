"""devcomm.ops against numpy, in float64: operators, types, sizes, numbers of ranks.

A sample runs by default; all of it with PYTHON_TESTS_FULL=1, which scripts/python_package.sh --full sets.
"""

import os

import devcomm
import ml_dtypes
import numpy
import pytest
from devcomm import ops

FULL = os.environ.get("PYTHON_TESTS_FULL") == "1"
RANKS = [1, 2, 3, 4, 8] if FULL else [1, 3]
SEEDS = 20 if FULL else 2
COUNTS = [0, 1, 5, 127] if FULL else [0, 1, 5, 127, 1000]
LARGE = 10_007  # more takes the simulator minutes
ONLY_FULL = pytest.mark.skipif(not FULL, reason="only with PYTHON_TESTS_FULL=1")
REDUCED = (
    [(dtype, op) for dtype in ops.IN_CPP for op in ops.OPERATORS]
    if FULL
    else [("float32", "sum"), ("bfloat16", "max"), ("float16", "average"), ("int64", "product"), ("uint8", "xor")]
)
MOVED = list(ops.IN_CPP) if FULL else ["float8_e5m2", "float32"]

IN_NUMPY = {
    "sum": numpy.add,
    "average": numpy.add,
    "product": numpy.multiply,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "and": numpy.bitwise_and,
    "or": numpy.bitwise_or,
    "xor": numpy.bitwise_xor,
}


def is_defined(dtype, op):
    is_float = "float" in dtype
    return not (is_float and op in ops.OF_INTEGERS) and not (not is_float and op in ops.OF_FLOATS)


def numpy_type(dtype):
    return getattr(ml_dtypes, dtype, None) or numpy.dtype(dtype)


def values(rank, shape, dtype):
    """Small whole numbers: sums, products and averages of powers of two are exact in every type."""
    random = numpy.random.default_rng([rank, *numpy.atleast_1d(shape)])
    lowest = 0 if dtype.startswith("uint") else -1
    return random.integers(lowest, 2, shape).astype(numpy_type(dtype))


def reduced(op, parts, dtype):
    wide = [part.astype(numpy.float64 if "float" in dtype else part.dtype) for part in parts]
    total = IN_NUMPY[op].reduce(wide)
    if op == "average":
        total = total / len(parts)
    return total.astype(numpy_type(dtype))


def unaligned(array, offset=1):
    """The same content, elsewhere than at a multiple of 16 bytes."""
    room = numpy.zeros(array.size + 16, array.dtype)
    place = room[offset : offset + array.size].reshape(array.shape)
    place[...] = array
    return place


def check_equal(found, expected, what):
    assert found.shape == expected.shape and found.dtype == expected.dtype, what
    bits = f"u{expected.dtype.itemsize}"
    # A zero has a sign, which sums need not keep.
    same = (found.view(bits) == expected.view(bits)) | ((found == 0) & (expected == 0))
    assert same.all(), (what, found, expected)


def check_reductions(dtype, op, counts_of):
    def rank(comm):
        n = comm.size
        for count in counts_of(n):
            parts = [values(r, count, dtype) for r in range(n)]
            result = ops.all_reduce(comm, parts[comm.rank], op)
            check_equal(result, reduced(op, parts, dtype), ("all_reduce", count))
            place = unaligned(parts[comm.rank])
            ops.all_reduce(comm, place, op, out=place, max_blocks=1)
            check_equal(place, reduced(op, parts, dtype), ("all_reduce in place", count))
            shares = [values(r, (n, count), dtype) for r in range(n)]
            expected = reduced(op, shares, dtype)[comm.rank]
            result = ops.reduce_scatter(comm, shares[comm.rank], op)
            check_equal(result[0], expected, ("reduce_scatter", count))
            place = unaligned(shares[comm.rank], 3)
            ops.reduce_scatter(comm, place, op, out=place[comm.rank : comm.rank + 1])
            check_equal(place[comm.rank], expected, ("reduce_scatter in place", count))

    devcomm.run_ranks(rank)


PAIRS = [each for each in REDUCED if is_defined(*each)]


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_reductions(dtype, op):
    check_reductions(dtype, op, lambda _: COUNTS)


@ONLY_FULL
@pytest.mark.simulate(seeds=1, ranks=RANKS)
@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_large_reductions(dtype, op):
    check_reductions(dtype, op, lambda n: [LARGE // n])


def check_moves(dtype, counts_of):
    def rank(comm):
        n = comm.size
        for count in counts_of(n):
            parts = [values(r, (count, 3), dtype) for r in range(n)]
            check_equal(ops.all_gather(comm, parts[comm.rank]), numpy.concatenate(parts), ("all_gather", count))
            whole = unaligned(numpy.zeros((n * count, 3), parts[0].dtype), 3)
            mine = whole[comm.rank * count : (comm.rank + 1) * count]
            mine[...] = parts[comm.rank]
            check_equal(ops.all_gather(comm, mine, out=whole), numpy.concatenate(parts), ("all_gather in place", count))
            root = count % n
            place = unaligned(parts[comm.rank])
            check_equal(ops.broadcast(comm, place, root, out=place), parts[root], ("broadcast", count))
            shares = [values(r, (n, count), dtype) for r in range(n)]
            expected = numpy.stack([share[comm.rank] for share in shares])
            check_equal(ops.all_to_all(comm, shares[comm.rank]), expected, ("all_to_all", count))

    devcomm.run_ranks(rank)


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
@pytest.mark.parametrize("dtype", MOVED)
def test_moves(dtype):
    check_moves(dtype, lambda _: COUNTS)


@ONLY_FULL
@pytest.mark.simulate(seeds=1, ranks=RANKS)
@pytest.mark.parametrize("dtype", MOVED)
def test_large_moves(dtype):
    check_moves(dtype, lambda n: [LARGE // n])


def chunked_all_reduce(comm, part, kind, blocks, groups):
    """As the plan has it for larger arrays than the simulator can have here."""
    call = ops._Call(comm, "all_reduce", part, False, None)
    context, result = call.context, numpy.zeros_like(part)
    packs = context.chunk_bytes // (2 * 16 * blocks * groups * comm.size)
    kernel = ops._kernel(comm, f"all_reduce_two_shot_chunked<{kind}, devcomm::sum>")
    call.launch(
        kernel, blocks, 64 * groups, context.inputs, context.results, packs, groups, part, result, call.count
    )  # fmt: skip
    return result


@pytest.mark.simulate(seeds=2, ranks=RANKS if FULL else [2])
def test_large_arrays():
    """By LL128 and by chunks, as the plan has it for larger ones yet."""

    def rank(comm):
        n, me, count = comm.size, comm.rank, LARGE
        parts = [values(r, (n, count), "float32") for r in range(n)]
        total = numpy.add.reduce(parts)
        check_equal(ops.all_gather(comm, parts[me]), numpy.concatenate(parts), "all_gather")
        check_equal(ops.broadcast(comm, parts[me], n - 1), parts[n - 1], "broadcast")
        check_equal(ops.all_to_all(comm, parts[me]), numpy.stack([part[me] for part in parts]), "all_to_all")
        check_equal(ops.reduce_scatter(comm, parts[me])[0], total[me], "reduce_scatter")
        assert "ll128" in comm._operators.mailboxes
        for blocks, groups in ((1, 1), (2, 2)):
            result = chunked_all_reduce(comm, parts[me], "float", blocks, groups)
            check_equal(result, total, ("all_reduce in chunks", groups))

    devcomm.run_ranks(rank)


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
def test_all_to_all_v():
    def rank(comm):
        n = comm.size
        for width, dtype in ((1, "float32"), (3, "int16")):
            lengths = [[(2 * r + 3 * m) % 7 for m in range(n)] for r in range(n)]  # of r for m
            rows = [[values(10 * r + m, (lengths[r][m], width), dtype) for m in range(n)] for r in range(n)]
            out = numpy.full((60, width), 9, dtype)
            came = numpy.zeros(n, "int64")
            ops.all_to_all_v(
                comm, numpy.concatenate(rows[comm.rank]), numpy.array(lengths[comm.rank]), out=out, counts_out=came
            )
            expected = numpy.concatenate([rows[r][comm.rank] for r in range(n)])
            assert came.tolist() == [lengths[r][comm.rank] for r in range(n)]
            check_equal(out[: len(expected)], expected, dtype)
            assert (out[len(expected) :] == 9).all()

    devcomm.run_ranks(rank)


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
def test_send_receive():
    def rank(comm):
        n, me = comm.size, comm.rank
        for count in COUNTS:
            # To each rank, itself among them: a long message and a short one.
            long = [values(n * me + to, (count, 3), "float32") for to in range(n)]
            short = [values(to, count % 5, "int8") for to in range(n)]
            places = [unaligned(numpy.zeros((count, 3), "float32")) for _ in range(n)]
            shorts = [numpy.zeros(count % 5, "int8") for _ in range(n)]
            ops.send_receive(
                comm,
                sends=[(array, to) for to in range(n) for array in (long[to], short[to])],
                receives=[(array, of) for of in reversed(range(n)) for array in (places[of], shorts[of])],
            )
            for of in range(n):
                check_equal(places[of], values(n * of + me, (count, 3), "float32"), ("long", count, of))
                check_equal(shorts[of], values(me, count % 5, "int8"), ("short", count, of))
        # From the first rank to the last alone.
        mark = comm.empty(5, "int64")
        if n > 1 and me == 0:
            ops.send_receive(comm, sends=[(numpy.arange(5), n - 1)])
        elif n > 1 and me == n - 1:
            ops.send_receive(comm, receives=[(mark, 0)], dependent=True)
            comm.synchronize()
            assert mark.get().tolist() == [0, 1, 2, 3, 4]

    devcomm.run_ranks(rank)


def quantize(comm, hidden, kind="float8_e4m3fn", **given):
    rows = numpy.ones((2, hidden), "float32")
    ops.all_reduce_rms_norm(
        comm, rows, rows.copy(), numpy.ones(hidden, "float32"), out=numpy.zeros(rows.shape, numpy_type(kind)), **given
    )


def normed(residual, weight, eps):
    wide = residual.astype(numpy.float64)
    return wide / numpy.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight.astype(numpy.float64)


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"] if not FULL else ["float32", "bfloat16", "float16"])
def test_all_reduce_rms_norm(dtype):
    def rank(comm):
        shared = numpy.random.default_rng(5)
        for shape in ((1, 64), (3, 520), (2, 3, 32)):
            residual = shared.standard_normal(shape).astype(numpy_type(dtype))
            weight = shared.standard_normal(shape[-1]).astype(numpy_type(dtype))
            parts = [values(r, shape, dtype) for r in range(comm.size)]
            total = numpy.add.reduce([part.astype(numpy.float32) for part in parts])
            expected = (total + residual.astype(numpy.float32)).astype(numpy_type(dtype))
            result = ops.all_reduce_rms_norm(comm, parts[comm.rank], residual, weight, 1e-5)
            check_equal(residual, expected, shape)
            ulp = float(ml_dtypes.finfo(numpy_type(dtype)).eps)
            assert numpy.allclose(
                result.astype(numpy.float64), normed(residual, weight, 1e-5), rtol=4 * ulp, atol=4 * ulp
            )

    devcomm.run_ranks(rank)


@pytest.mark.simulate(seeds=SEEDS, ranks=RANKS)
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_all_reduce_rms_norm_to_8_bits(kind):
    fp8 = numpy_type(kind)
    largest = float(ml_dtypes.finfo(fp8).max)

    def rank(comm):
        shared = numpy.random.default_rng(6)
        shape = (2, 3, 256)
        weight = shared.standard_normal(shape[-1]).astype("float32")
        parts = [values(r, shape, "float32") for r in range(comm.size)]
        start = shared.standard_normal(shape).astype("float32")

        def run(**given):
            residual, out = start.copy(), numpy.zeros(shape, fp8)
            assert ops.all_reduce_rms_norm(comm, parts[comm.rank], residual, weight, out=out, **given) is out
            return out.astype("float64"), normed(residual, weight, 1e-6)

        ulp = float(ml_dtypes.finfo(fp8).eps)
        found, exact = run(scale=numpy.array([0.01], "float32"))
        assert numpy.allclose(found, numpy.clip(exact / numpy.float32(0.01), -largest, largest), rtol=ulp, atol=1e-2)
        scales = numpy.zeros((2, 3, 2), "float32")
        found, exact = run(scales=scales)
        groups = exact.reshape(2, 3, 2, 128)
        assert numpy.allclose(scales, numpy.abs(groups).max(-1) / largest, rtol=1e-5)
        assert numpy.allclose(found.reshape(groups.shape) * scales[..., None], groups, rtol=ulp, atol=1e-3)

    devcomm.run_ranks(rank)


def in_order(parts, dtype):
    """The one sum that ops promises, whoever computes it: in the ranks' order, in float32."""
    total = parts[0].astype("float32")
    for part in parts[1:]:
        total = total + part.astype("float32")
    return total.astype(numpy_type(dtype))


def real_numbers(rank, shape, dtype):
    """Of very different magnitudes, so that each order of addition has a sum of its own; and zeros of both signs."""
    random = numpy.random.default_rng([99, rank])
    numbers = random.standard_normal(shape) * 2.0 ** random.integers(-12, 12, shape)
    numbers[random.random(shape) < 0.02] = -0.0
    return numbers.astype(numpy_type(dtype))


def check_bits(found, expected, what):
    bits = f"u{expected.dtype.itemsize}"
    assert (found.view(bits) == expected.view(bits)).all(), what


@pytest.mark.parametrize("dtype", ["bfloat16"] if not FULL else ["bfloat16", "float32", "float16"])
@pytest.mark.parametrize("ranks", [3] if not FULL else [2, 3, 8])
def test_batch_invariance(dtype, ranks):
    """A row has the same bits in batches of 1 to 64 rows, and in each run: those of the sum in the ranks' order."""
    hidden = 96

    def rank(comm):
        me = comm.rank
        parts = [real_numbers(r, (64, hidden), dtype) for r in range(comm.size)]
        weight = real_numbers(50, hidden, dtype)
        expected, norms = in_order(parts, dtype), []
        for batch in range(1, 65):
            check_bits(ops.all_reduce(comm, parts[me][:batch]), expected[:batch], batch)
            residual = numpy.zeros((batch, hidden), numpy_type(dtype))
            norms.append(ops.all_reduce_rms_norm(comm, parts[me][:batch], residual, weight))
        for norm in norms:
            check_bits(norm, norms[-1][: len(norm)], len(norm))

    devcomm.run_ranks(rank, ranks)


@pytest.mark.parametrize("ranks", [3] if not FULL else [2, 3, 4, 8])
def test_all_algorithms_have_the_same_bits(ranks):
    """Whatever the plan chooses for a size: each algorithm with each protocol, blocks of all sizes."""

    def rank(comm):
        n, me, count, dtype = comm.size, comm.rank, 3000, "bfloat16"
        parts = [real_numbers(r, count, dtype) for r in range(n)]
        expected = in_order(parts, dtype)
        for algorithm in ("one_shot", "two_shot"):
            for protocol in ("ll", "lamport", "ll128"):
                for blocks in (1, 3):
                    call = ops._Call(comm, "all_reduce", parts[me], False, None)
                    kernel = f"all_reduce_{algorithm}<__nv_bfloat16, devcomm::sum, {ops._session(protocol)}>"
                    result = numpy.zeros_like(expected)
                    call.launch(
                        ops._kernel(comm, kernel), blocks, 64, call.context.mailboxes[protocol], call.facts, result, count
                    )
                    check_bits(result, expected, (algorithm, protocol, blocks))
        check_bits(chunked_all_reduce(comm, parts[me], "__nv_bfloat16", 3, 1), expected, "chunks")
        check_bits(chunked_all_reduce(comm, parts[me], "__nv_bfloat16", 2, 2), expected, "chunks of two groups")

    devcomm.run_ranks(rank, ranks)


def test_real_numbers_and_symmetric_arrays():
    """Sums of narrow types accumulate in float32, and all ranks get the same bits."""

    def rank(comm):
        random = numpy.random.default_rng(comm.rank)
        source = comm.empty((40, 25), "bfloat16")
        source.set(random.standard_normal((40, 25)).astype(ml_dtypes.bfloat16))
        result = ops.all_reduce(comm, source)
        comm.synchronize()
        return source.get(), result.get()

    outcomes = devcomm.run_ranks(rank, 4)
    total = numpy.add.reduce([source.astype(numpy.float32) for source, _ in outcomes]).astype(ml_dtypes.bfloat16)
    for _, result in outcomes:
        assert (result.view("u2") == total.view("u2")).all()


def on_first(comm, call):
    ops._context_of(comm) if comm.rank else call(numpy.zeros(4))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: ops.all_reduce(c, numpy.zeros(4), "median"), "op is one of sum, product, min"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4), "and"), "op 'and' is not defined for float64"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4, int), "average"), "op 'average' is not defined for int64"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4, bool)), "elements of bool cannot be reduced"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4), out=numpy.zeros(5)), "out has (5,) and float64"),
        (lambda c: ops.all_reduce(c, numpy.zeros((4, 4))[:, ::2]), "is not contiguous"),
        (lambda c: ops.all_reduce(c, [1.0]), "is no array"),
        (lambda c: ops.all_reduce(numpy.zeros(4), c), "the first argument is a Communicator; it is a ndarray"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4), max_blocks=-1), "max_blocks is a number from 0"),
        (
            lambda c: ops.broadcast(c, numpy.zeros(4), 2),
            "root, a member of the LSA team, is a number from 0 to 1; it is 2",
        ),
        (lambda c: ops.reduce_scatter(c, numpy.zeros(3)), "2 ranks do not divide the first axis of (3,)"),
        (lambda c: ops.all_to_all(c, numpy.zeros(())), "2 ranks do not divide the first axis of ()"),
        (
            lambda c: ops.all_to_all_v(
                c, numpy.zeros(3), numpy.array([2, 2]), out=numpy.zeros(4), counts_out=numpy.zeros(2, int)
            ),
            "counts are from 0 on, and 3 in all at most; they are [2, 2]",
        ),
        (
            lambda c: ops.all_to_all_v(
                c, numpy.zeros(4), numpy.array([2, 2]), out=numpy.zeros(3), counts_out=numpy.zeros(2, int)
            ),
            "4 rows came, and out has room for 3",
        ),
        (
            lambda c: ops.all_reduce_rms_norm(
                c, numpy.zeros((2, 6), "float32"), numpy.zeros((2, 6), "float32"), numpy.zeros(6, "float32")
            ),
            "rows fill whole 16 bytes; these have 6 elements of 4",
        ),
        (lambda c: quantize(c, 128), "needs either scale, which is read, or scales, which are written"),
        (lambda c: quantize(c, 128, scale=numpy.ones(2, "float32")), "scale is one float32; this one has shape (2,)"),
        (lambda c: quantize(c, 96, scales=numpy.ones((2, 1), "float32")), "scales are of groups of 128 elements"),
        (
            lambda c: quantize(c, 256, scales=numpy.ones((2, 1), "float32")),
            "scales have shape (2, 2) and type float32; these have (2, 1) and float32",
        ),
        (lambda c: quantize(c, 128, "float32", scale=numpy.ones(1, "float32")), "scale and scales are for an out of"),
        (
            lambda c: ops.send_receive(c, [(numpy.zeros(1), 2)]),
            "a peer, a member of the LSA team, is a number from 0 to 1; it is 2",
        ),
        (lambda c: ops.send_receive(c, [(numpy.zeros(1), 0)] * 65), "a call has 64 messages at most; this one has 65"),
        (lambda c: ops.send_receive(c, [(x := numpy.zeros(4), 0)], [(x[3:], 0)]), "overlaps another array of the call"),
        (lambda c: ops.send_receive(c, [], [((x := numpy.zeros(4))[:3], 0), (x[2:], 1)]), "overlaps another array"),
        (lambda c: ops.send_receive(c, [numpy.zeros(3)]), "sends and receives are lists of pairs"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4), max_blocks=2.5), "max_blocks is a number from 0"),
        (
            lambda c: [ops.all_gather(c, numpy.zeros(4), max_blocks=n) for n in (2, 2.0)],
            "max_blocks is a number from 0 to 2147483647; it is 2.0",
        ),
        (lambda c: ops.all_reduce(c, numpy.zeros(4, ">f4")), "have the other byte order"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4, "complex64")), "elements of complex64 cannot be reduced"),
        (lambda c: ops.all_reduce(c, numpy.zeros(4), out=numpy.frombuffer(bytes(32))), "out is read-only"),
        (lambda c: ops.all_reduce(c, (x := numpy.zeros(9))[:8], out=x[1:]), "out overlaps the input"),
        (lambda c: ops.all_to_all(c, x := numpy.zeros(4), out=x), "out overlaps the input; give it other memory"),
        (lambda c: ops.all_gather(c, (x := numpy.zeros(4))[1:3], out=x), "or of it this rank's part as input"),
        # On the first rank the input's part of the result begins where the input does.
        (lambda c: on_first(c, lambda x: ops.all_gather(c, x, out=x)), "the result has shape (8,) and type float64"),
        (lambda c: on_first(c, lambda x: ops.reduce_scatter(c, x, out=x)), "the result has shape (2,) and type float64"),
        (lambda c: ops.all_gather(c, numpy.zeros(())), "an array without axes cannot be gathered"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(devcomm.InvalidArgument) as caught:
        devcomm.run_ranks(call, 2)
    assert says in str(caught.value)


def test_messages_that_differ_are_named():
    def rank(comm):
        if comm.rank == 0:
            ops.send_receive(comm, sends=[(numpy.zeros(5, "int8"), 1)])
        else:
            ops.send_receive(comm, receives=[(numpy.zeros(6, "int8"), 0)])

    with pytest.raises(devcomm.KernelError, match="5 bytes") as caught:
        devcomm.run_ranks(rank, 2)
    assert "6 bytes" in str(caught.value)


def test_kernels_that_differ_are_named():
    with pytest.raises(devcomm.KernelError, match="launched with kernel .*<float, devcomm::sum") as caught:
        devcomm.run_ranks(lambda comm: ops.all_reduce(comm, numpy.ones(9, "float32"), "max" if comm.rank else "sum"), 2)
    assert "<float, devcomm::maximum" in str(caught.value)


def test_ranks_that_differ_are_named():
    with pytest.raises(devcomm.KernelError, match="launch mismatch|rank 1") as caught:
        devcomm.run_ranks(lambda comm: ops.all_reduce(comm, numpy.zeros(10 if comm.rank else 4000, "float32")), 2)
    assert "rank 0" in str(caught.value)
