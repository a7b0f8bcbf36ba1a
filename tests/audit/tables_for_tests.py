"""Tables to test with: by hand, and generated."""

from hypothesis import strategies as st

from kaudit.observation import (
    Crashed,
    Hung,
    Kernel,
    Other,
    Outcome,
    Ran,
    Refused,
    Rejection,
    Row,
    Said,
    Skipped,
    Unmet,
    Unseen,
)
from kaudit.table import SCHEMA, Device, Header, Stamp, Table

CELL = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096"
PATHS = {"attention": ("flash", "split", "eager"), "rms_norm": ("fused", "eager")}


def header(paths: dict[str, tuple[str, ...]] = PATHS, **stamp: object) -> Header:
    device = Device("NVIDIA H200", "sm_90", 132, "570.1")
    fields = {
        "engine": "reference",
        "revision": "1",
        "device": device,
        "versions": {"torch": "2.10"},
        "environment": {},
        "matrix": "smoke",
        "matrix_digest": "abc",
    }
    return Header(SCHEMA, "0.1", Stamp(**{**fields, **stamp}), paths)


def ran(path: str | None = "flash", *rejections: Rejection, **more: object) -> Ran:
    """Its kernel is named after the path, its claim is right, unless said otherwise."""
    fields = {"kernels": (Kernel(f"{path}_kernel", "fa2", "attention", 1),), "claimed": path, **more}
    return Ran(path, rejections=rejections, **fields)


def announced(path: str, text: str = "head_dim is 96") -> Rejection:
    return Rejection(path, "announced", (Said(text),))


def asked(path: str) -> Rejection:
    return Rejection(path, "asked", (Unmet("head_dim", "96", "one of 64, 128"),))


def table(*outcomes: Outcome, op: str = "attention", cell: str = CELL, **more: object) -> Table:
    return Table.of(header(**more), [Row(cell, op, outcome) for outcome in outcomes])


_words = st.text('ab é\n"\\\u2028', max_size=9)
_counts = st.integers(0, 1 << 20)
_lengths = st.integers(1, 1 << 20)
_triples = st.none() | st.tuples(_counts, _counts, _counts)
_paths = st.sampled_from(["flash", "split", "eager", "unlisted"])
_reasons = st.builds(Unmet, _words, _words, _words, st.booleans()) | st.builds(Said, _words)
_rejections = st.builds(
    Rejection, _paths, st.sampled_from(["announced", "asked"]), st.lists(_reasons, max_size=2).map(tuple)
)
_kernels = st.builds(
    Kernel,
    st.sampled_from(["a", "b", "void c::d<int>(e)"]) | _words,
    _words,
    _words,
    st.integers(1, 9),
    arch=_words,
    grid=_triples,
    block=_triples,
    registers=st.none() | _counts,
    shared_memory=st.none() | _counts,
    graph=st.booleans(),
)
_graphs = st.sampled_from(["eager", "partial", "full"])
rans = st.builds(
    Ran,
    st.none() | _paths,
    st.lists(_kernels, max_size=3).map(tuple),
    claimed=st.none() | _paths,
    rejections=st.lists(_rejections, max_size=3).map(tuple),
    graph_asked=_graphs,
    graph_got=_graphs,
    ungraphed=st.lists(_reasons, max_size=2).map(tuple),
    numerics=st.sampled_from(["unchecked", "ok", "wrong", "unwritten"]),
)
_stopped = st.one_of(
    st.builds(Refused, _words),
    st.builds(Crashed, _words),
    st.builds(Hung, st.floats(0.1, 1e6)),
    st.builds(Unseen, _words),
    st.builds(Skipped, _words),
)
outcomes = rans | _stopped
_reruns = st.sampled_from(["again", "alone"])
_others = st.lists(
    st.builds(Other, _reruns, st.sampled_from(list(PATHS)), st.none() | outcomes)
    | st.builds(Other, _reruns, st.just("*"), _stopped),
    max_size=2,
).map(tuple)

cells = st.builds(
    "/".join,
    st.tuples(
        st.sampled_from(["prefill", "chunked_prefill", "decode", "mixed"]),
        st.sampled_from(["fp16", "bf16"]),
        st.sampled_from(["kv-fp16", "kv-fp8_e4m3", "kv-int8"]),
        st.sampled_from(["h32x8x128", "h8x8x64", "h128x128x192x128"]),
        st.sampled_from(["contiguous", "ragged", "paged16", "paged7"]),
        st.sampled_from(["none", "causal", "window1024", "tree"]),
        st.sampled_from(["none", "neox", "interleaved+yarn@131071", "neox@5"]),
        st.sampled_from(["plain", "sinks", "cuda_graph+sinks+softcap"]),
        st.builds("b{}q{}k{}{}".format, _lengths, _lengths, _lengths, st.sampled_from(["", "skew"])),
    ),
)


@st.composite
def _of_cell(draw: st.DrawFn, cell: str) -> list[Row]:
    if draw(st.booleans()):
        return [Row(cell, "*", draw(_stopped), draw(_others))]
    ops = draw(st.lists(st.sampled_from(list(PATHS)), min_size=1, unique=True))
    return [Row(cell, op, draw(outcomes), draw(_others)) for op in ops]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Over few cells, so that two of them share some."""
    ids = draw(st.lists(cells | st.just(CELL), max_size=3, unique=True))
    paths = {op: tuple(draw(st.permutations(known)))[: draw(st.integers(1, 3))] for op, known in PATHS.items()}
    return Table.of(header(paths), [row for cell in ids for row in draw(_of_cell(cell))])
