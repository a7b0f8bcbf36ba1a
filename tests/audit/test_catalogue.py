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
        Listed(
            "attention",
            "split",
            ("dtype is one of fp16, bf16", "page_size is a multiple of 16"),
            ("kv_len is at least 9",),
            ("^split_[a-z]+",),
            also=("merge_kernel<",),
        ),
        Listed("attention", "flash", ("sm is at least 80",), (), ("^flash_kernel", r"aten::bmm$")),
        Listed("sample", "eager"),
    ),
)


def answered(*unmet: Unmet) -> Catalogue:
    """STATED with a cell that its first path turns down for these."""
    first, *others = STATED.paths
    paths = (Listed(first.op, first.path, unmet=unmet), *others)
    return Catalogue("own", "7", True, STATED.device, paths, DECODE, ("attention",))


def test_needs_and_functions_stand_under_their_kernel_in_the_order_of_the_catalogue() -> None:
    assert list(lines(STATED, None, 120)) == [
        "own@7 on sm_90 with 132 SMs",
        "",
        "attention",
        "  1  split  shows ^split_[a-z]+, at times merge_kernel",
        "     requires  dtype is one of fp16, bf16; page_size is a multiple of 16",
        "     worth if  kv_len is at least 9",
        "  2  flash  shows flash_kernel, aten::bmm",
        "     requires  sm is at least 80",
        "",
        "sample",
        "  1  eager",
    ]


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (60, ["requires  dtype is one of fp16, bf16;", "page_size is a multiple of 16"]),
        (36, ["requires  dtype is one of fp16,", "bf16; page_size is a", "multiple of 16"]),
    ],
)
def test_a_need_is_broken_where_it_fits_no_line(width: int, told: list[str]) -> None:
    text = list(lines(STATED, None, width))
    first = next(i for i, line in enumerate(text) if "requires" in line)
    assert [line.strip() for line in text[first : first + len(told)]] == told


def test_what_a_device_never_runs_is_told_in_the_place_of_its_needs() -> None:
    split, flash, _ = STATED.paths
    paths = (split, Listed("attention", "flash", flash.requires, unmet=(Unmet("sm", "75", "at least 80"),)))
    text = list(lines(Catalogue("own", "7", True, "sm_75 with 40 SMs", paths), None, 120))
    assert text[-1] == "  2  flash  never: sm=75, needs at least 80"


@pytest.mark.parametrize(
    ("unmet", "chosen", "said"),
    [
        ((), "split", {"flash": "would serve it, were the faster ones not there"}),
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
    for kernel, words in {chosen: "serves the cell", **said}.items():
        assert any(kernel in line and words in line for line in text), kernel
    assert found.chosen("sample") is None
    assert text[-2:] == ["sample", "  the cell has no such op"]


def test_only_the_op_that_is_asked_for() -> None:
    assert not any("attention" in line for line in lines(STATED, "sample", 80))


def test_an_engine_that_states_no_needs_is_said_to() -> None:
    found = Catalogue("own", "7", False, "cpu", (Listed("sample", "fast", shows=("^fast",)), Listed("sample", "slow")))
    told = ["", "sample", "  1  fast  shows fast", "  2  slow", "", "own does not state what its paths need"]
    assert list(lines(found, None, 80)) == ["own@7 on cpu", *told]


def test_without_a_device_the_list_is_of_any() -> None:
    printed = CliRunner().invoke(app, ["kernels", "sample"]).stdout.splitlines()
    assert " on " not in printed[0]
    assert printed[2] == "sample"
    assert not any("never" in line for line in printed)


def test_json_holds_what_the_table_shows() -> None:
    printed = CliRunner().invoke(app, ["kernels", "rms_norm", "--device", "sm_90", "--cell", DECODE, "--json"])
    told = json.loads(printed.stdout)
    assert (told["engine"], told["cell"]) == ("reference", DECODE)
    assert {each["op"] for each in told["paths"]} == {"rms_norm"}
    fused = told["paths"][0]
    assert (fused["path"], fused["shows"]) == ("fused_rms_norm", ["^rms_norm_kernel"])
    assert "sm is at least 80" in fused["requires"]


@pytest.mark.parametrize(
    ("device", "op", "fault"),
    [
        ("auto", "nope", 'no op "nope" in reference; name one of rms_norm, '),
        ("tpu", None, "--device tpu: names no GPU; "),
    ],
)
def test_what_cannot_be_asked_is_one_line(device: str, op: str | None, fault: str) -> None:
    with pytest.raises(UserError) as error:
        catalogue(sys.executable, "reference", device, None, op)
    (line,) = error.value.faults
    assert line.startswith(fault)


@pytest.mark.parametrize(("python", "fault"), [("/bin/false", "exit 1"), ("/bin/true", "exit 0")])
def test_a_python_that_does_not_answer_is_one_line(python: str, fault: str) -> None:
    with pytest.raises(
        UserError, match=f"^--python {python}: cannot ask for its paths: {fault}: it printed nothing; name a "
    ):
        catalogue(python, "reference", "cpu", None, None)
