"""What an op can cost its step, and how its memory grows."""

import math

import pytest

from kaudit.amdahl import bound, shares
from kaudit.memory_growth import memory_growths
from kaudit.observation import WHOLE_CELL
from kaudit.timing import Timing

CELL = "prefill/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b1q{0}k{0}"
MIB = 1 << 20


def test_a_share_is_of_the_medians_of_all_ops_of_the_step() -> None:
    timings = {
        ("c", "attention"): Timing("cupti", (30.0, 29.0, 90.0)),
        ("c", "qkv_proj"): Timing("cupti", (10.0,)),
        ("c", WHOLE_CELL): Timing("events", (400.0,)),
    }
    found = dict(shares(timings))
    assert found == {("c", "attention"): 0.75, ("c", "qkv_proj"): 0.25}
    assert bound(found["c", "attention"]) == 4.0
    assert bound(1.0) == math.inf


def test_nothing_is_said_of_a_step_that_is_not_known_whole() -> None:
    one = {("c", "attention"): Timing("cupti", (30.0,)), ("c", WHOLE_CELL): Timing("events", (40.0,))}
    assert not dict(shares(one))
    # The same call in other words is no other op of a step.
    assert not dict(shares({**one, ("c", "attention=expanded_heads"): Timing("cupti", (30.0,))}))
    assert not dict(shares({**one, ("c", "sample"): Timing(unknown="two runs differ")}))


def grown(peaks: dict[int, int], cell: str = CELL) -> list[str]:
    timings = {(cell.format(length), "attention"): Timing("cupti", peak_bytes=peak) for length, peak in peaks.items()}
    return [finding.sentence for finding in memory_growths(timings)]


def scores(length: int) -> int:
    return 32 * length * length * 2 + 8192 * length


def test_scores_that_are_kept_are_told_by_their_growth() -> None:
    (sentence,) = grown({length: scores(length) for length in (128, 1024, 2048)})
    assert sentence.startswith("attention's memory grows with kv_len^1.9 or more between 1024 and 2048")
    # What was rounded away is not made up for: 0 → 9 MiB is no kv_len^23.
    (sentence,) = grown({1024: 0, 2048: 9 * MIB})
    assert "kv_len^3.0 or more" in sentence


@pytest.mark.parametrize("rounded", [(0, 0), (0, MIB), (MIB, 0), (512, 2 * MIB - 512)])
@pytest.mark.parametrize("bytes_a_token", [64, 8192, 65536])
def test_what_grows_with_the_length_is_not_told_whatever_the_allocator_rounds(
    rounded: tuple[int, int], bytes_a_token: int
) -> None:
    shorter, longer = rounded
    assert not grown({1024: 1024 * bytes_a_token + shorter, 2048: 2048 * bytes_a_token + longer})


def test_attention_is_compared_whatever_its_op_is_called() -> None:
    peaks = {length: Timing("cupti", peak_bytes=scores(length)) for length in (1024, 2048)}
    (finding,) = memory_growths({(CELL.format(length), "short_query_attention"): at for length, at in peaks.items()})
    assert finding.op == "short_query_attention"


def test_only_attention_of_otherwise_equal_cells_is_compared() -> None:
    assert not grown({1024: scores(1024)})
    other = CELL.replace("h32x8x128", "h8x8x128")
    timings = {
        (CELL.format(1024), "attention"): Timing("cupti", peak_bytes=scores(1024)),
        (other.format(2048), "attention"): Timing("cupti", peak_bytes=scores(2048)),
        (CELL.format(2048), "o_proj"): Timing("cupti", peak_bytes=scores(2048)),
        (CELL.format(4096), "attention"): Timing("cupti"),
    }
    assert not list(memory_growths(timings))
