"""An error that grows faster with the context than roundings add up."""

import pytest

from kaudit.error_growth import error_growths
from kaudit.wire import Numbers

ONE = "decode/bf16/kv-bf16/h8x2x64/paged16/{}/neox/plain/b2q{}k{}"
LIMIT = 0.032


def grown(*errors: tuple[str, int, int, float | None], op: str = "attention") -> list[tuple[str, str]]:
    """Each error with mask, q_len and kv_len."""
    numbers = {
        (ONE.format(mask, q_len, kv_len), op): Numbers(error=error, tolerance=LIMIT)
        for mask, q_len, kv_len, error in errors
    }
    return [(one.cell, one.sentence) for one in error_growths(numbers)]


def test_roundings_grow_with_the_root_and_are_no_finding() -> None:
    assert not grown(("causal", 1, 1000, 0.006), ("causal", 1, 4000, 0.0119), ("causal", 1, 16000, 0.024))


def test_a_faster_growth_is_found_between_the_two_lengths_where_it_happens() -> None:
    cell = ONE.format("causal", 1, 4000)
    assert grown(("causal", 1, 4000, 0.025), ("causal", 1, 1000, 0.006), ("causal", 1, 16000, 0.025)) == [
        (
            cell,
            "attention's error grows from 0.006 to 0.025 between kv_len 1000 and 4000: "
            "up to 0.024 is what roundings add up to",
        )
    ]


def test_an_error_near_nothing_grows_from_one_rounding() -> None:
    assert not grown(("causal", 1, 2, 0.0), ("causal", 1, 8, 0.0159))
    assert grown(("causal", 1, 2, 0.0), ("causal", 1, 8, 0.0161))


@pytest.mark.parametrize(
    "errors",
    [
        (("causal", 1, 1000, 0.001), ("window100", 1, 1001, 0.03)),
        (("causal", 1, 1000, 0.001), ("causal", 2, 1001, 0.03)),
        (("causal", 1, 1000, None), ("causal", 1, 1001, 0.03)),
        (("causal", 1, 1000, 0.001),),
    ],
)
def test_only_lengths_of_otherwise_equal_cells_whose_errors_are_known_are_compared(
    errors: tuple[tuple[str, int, int, float | None], ...],
) -> None:
    assert not grown(*errors)


def test_other_ops_know_no_context() -> None:
    assert not grown(("causal", 1, 1000, 0.001), ("causal", 1, 1001, 0.03), op="o_proj")
    assert grown(("causal", 1, 1000, 0.001), ("causal", 1, 1001, 0.03), op="attention=explicit_mask")
