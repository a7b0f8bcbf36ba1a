import pytest

from kaudit.findings import findings
from kaudit.observation import Crashed, Kernel, Outcome, Ran, Row
from kaudit.table import SCHEMA, Device, Header, Stamp, Table

CELL = "decode/bf16/kv-bf16/h32x8x128/contiguous/causal/none/plain/b8q1k4096"


def table(arch: str, **outcomes: Outcome) -> Table:
    stamp = Stamp("sdpa", "1", Device("GPU", arch, 132, "580"), {}, {}, "m", "0")
    rows = [Row(CELL, op.replace("__", "="), outcome) for op, outcome in outcomes.items()]
    return Table.of(Header(SCHEMA, "0", stamp, {row.op: ("fast", "slow") for row in rows}), rows)


def ran(path: str | None, arch: str = "") -> Ran:
    return Ran(path, (Kernel("k", "cudnn_sdpa", "attention", 1, arch),))


@pytest.mark.parametrize(
    ("device", "kernel", "older"),
    [
        ("sm_90", "sm80", True),
        ("sm_120", "sm90", True),
        ("sm_90", "sm90", False),
        ("sm_86", "sm80", False),
        ("sm_80", "sm90", False),
        ("sm_90", "", False),
        ("AVX512", "sm80", False),
    ],
)
def test_a_kernel_of_an_older_generation_is_found(device: str, kernel: str, older: bool) -> None:
    found = list(findings(table(device, attention=ran("fast", kernel))))
    assert [finding.kind for finding in found] == ["older_kernel"] * older
    assert all(kernel in finding.sentence for finding in found)


def test_equal_calls_that_take_different_paths_are_found() -> None:
    (found,) = findings(table("sm_90", attention=ran("fast"), attention__expanded_heads=ran("slow")))
    assert (found.kind, found.op) == ("disagreement", "attention=expanded_heads")
    assert found.sentence == "attention=expanded_heads took slow, the equal attention fast"


@pytest.mark.parametrize("other", [ran("fast"), Crashed("SIGSEGV")])
def test_equal_calls_that_agree_or_did_not_run_are_not_accused(other: Outcome) -> None:
    assert not list(findings(table("sm_90", attention=ran("fast"), attention__explicit_mask=other)))


def test_ops_that_share_no_name_are_not_equal() -> None:
    assert not list(findings(table("sm_90", attention=ran("fast"), sample=ran("slow"))))
