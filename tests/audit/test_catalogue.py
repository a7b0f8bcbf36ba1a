"""`kaudit kernels`: the catalogue of an engine, asked in the process of a Python that has it."""

import json
import sys

import pytest
from typer.testing import CliRunner

from kaudit.catalogue import Catalogue, Listed, catalogue
from kaudit.cli import app
from kaudit.errors import UserError
from kaudit.observation import Unmet
from kaudit.report.catalogue import lines

DECODE = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096"

STATED = Catalogue(
    "own",
    "7",
    True,
    "sm_90 with 132 SMs",
    (
        Listed("attention", "split", ("page_size is a multiple of 16",), ("kv_len is at least 9",), ("^split_[a-z]+",)),
        Listed("attention", "flash", ("sm is at least 80",), (), ("^flash",)),
        Listed("sample", "eager"),
    ),
)


def answered(*unmet: Unmet) -> Catalogue:
    """STATED with a cell that its first path turns down for these."""
    first, *others = STATED.paths
    paths = (Listed(first.op, first.path, unmet=unmet), *others)
    return Catalogue("own", "7", True, STATED.device, paths, DECODE, ("attention",))


def test_needs_stand_beside_their_kernel_in_the_order_of_the_catalogue() -> None:
    text = list(lines(STATED, None, 120))
    places = [next(i for i, line in enumerate(text) if word in line) for word in (" split ", " flash ", " eager")]
    assert places == sorted(places)
    split = text[places[0]]
    for word in ("attention", "1", "page_size is a multiple of 16", "kv_len is at least 9", "^split_[a-z]+"):
        assert word in split


@pytest.mark.parametrize(
    ("unmet", "chosen", "said"),
    [
        ((), "split", {"flash": "would be served, were the faster ones not there"}),
        ((Unmet("page_size", "8", "a multiple of 16"),), "flash", {"split": "page_size=8, needs a multiple of 16"}),
        ((Unmet("kv_len", "64", "at least 512", worth=True),), "flash", {"split": "kv_len=64, pays with at least 512"}),
    ],
)
def test_of_a_cell_the_first_kernel_without_a_reason_serves_it(
    unmet: tuple[Unmet, ...], chosen: str, said: dict[str, str]
) -> None:
    found = answered(*unmet)
    assert found.chosen("attention") == next(each for each in found.paths if each.path == chosen)
    text = list(lines(found, None, 120))
    for kernel, words in {chosen: "is served by it", "eager": "has no such op", **said}.items():
        assert any(kernel in line and words in line for line in text), kernel


def test_only_the_op_that_is_asked_for() -> None:
    assert not any("attention" in line for line in lines(STATED, "sample", 80))


def test_the_reference_engine_answers_for_a_gpu_that_is_not_there() -> None:
    found = catalogue(sys.executable, "reference", "sm_90", DECODE, None)
    assert found.device == "sm_90 with 132 SMs"
    assert (found.cell, found.refused) == (DECODE, "")
    assert "logits_mask" not in found.ops  # no grammar
    chosen = found.chosen("attention")
    assert chosen is not None
    assert chosen.requires
    assert chosen.shows
    on_cpu = catalogue(sys.executable, "reference", "cpu", DECODE, None).chosen("attention")
    assert on_cpu is not None
    assert on_cpu.path == "eager"


@pytest.mark.parametrize(("features", "shares"), [("prefix_share", True), ("cuda_graph+prefix_share", False)])
def test_what_is_decided_on_is_the_batch_that_a_graph_is_filled_up_to(features: str, shares: bool) -> None:
    """Five requests share a prefix; of eight, three are padding and share none."""
    cell = DECODE.replace("plain", features).replace("b8", "b5")
    found = catalogue(sys.executable, "reference", "sm_90", cell, None)
    cascade = found.of("attention")[0]
    assert cascade.path == "cascade_decode"
    assert ("shared_prefix=0, pays with at least 1024" in map(str, cascade.unmet)) != shares


def test_a_cell_that_contradicts_itself_is_refused_in_words() -> None:
    found = catalogue(sys.executable, "reference", "sm_90", DECODE.replace("h32x8", "h33x2"), None)
    assert found.refused == "kv_heads=2, needs a divisor of q_heads=33"
    assert any(found.refused in line for line in lines(found, None, 120))


def test_an_engine_that_states_no_needs_is_listed_by_name() -> None:
    found = catalogue(sys.executable, "sdpa", "cpu", None, "attention")
    assert not found.stated
    assert [each.path for each in found.of("attention")][-1] == "sdpa:math"
    assert list(lines(found, "attention", 100))[-1] == "sdpa does not state what its paths need"


def test_json_holds_what_the_table_shows() -> None:
    printed = CliRunner().invoke(app, ["kernels", "rms_norm", "--device", "sm_90", "--cell", DECODE, "--json"])
    told = json.loads(printed.stdout)
    assert (told["engine"], told["cell"]) == ("reference", DECODE)
    assert {each["op"] for each in told["paths"]} == {"rms_norm"}


@pytest.mark.parametrize(
    ("engine", "device", "cell", "op", "fault"),
    [
        ("reference", "auto", None, "nope", 'no op "nope" in reference; name one of rms_norm, '),
        (
            "reference",
            "sm_77",
            None,
            None,
            "--device sm_77: how many SMs it has is not known here; name one of sm_80, ",
        ),
        ("reference", "tpu", None, None, "--device tpu: names no GPU; write sm_90, say, or auto"),
        ("reference", "cpu", "decode", None, '--cell: cell "decode" has 1 parts, needs phase/'),
        ("reference", "cpu", "", None, '--cell: cell "" has 1 parts, needs phase/'),
        ("sdpa", "cpu", "", None, "--cell: sdpa does not state what its paths need; "),
        ("os.path:join", "cpu", None, None, "builtins:str: has no name, refusals, "),
        ("sdpa", "cpu", DECODE, None, "--cell: sdpa does not state what its paths need; "),
        ("sdpa", "sm_90", None, None, "--device sm_90: only an engine that predicts takes a GPU's name"),
        ("none", "cpu", None, None, '--engine: no engine "none"; name one of '),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    engine: str, device: str, cell: str | None, op: str | None, fault: str
) -> None:
    with pytest.raises(UserError) as error:
        catalogue(sys.executable, engine, device, cell, op)
    (line,) = error.value.faults
    assert line.startswith(fault)
    assert "\n" not in line


@pytest.mark.parametrize(("python", "fault"), [("/bin/false", "exit 1"), ("/bin/true", "it printed nothing")])
def test_a_python_that_does_not_answer_is_one_line(python: str, fault: str) -> None:
    with pytest.raises(UserError, match=f"^--python {python}: cannot ask for its paths: {fault}; name a Python"):
        catalogue(python, "reference", "cpu", None, None)
