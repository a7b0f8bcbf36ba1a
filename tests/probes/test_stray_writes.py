"""B58 of the reports: what an op writes outside of its output, where that is the cache."""

from typing import Any

import pytest
from numerics_for_tests import PLAIN, checked
from test_numerics_features import launched
from torch import Tensor

from kaudit_kernels.inputs import Inputs
from kaudit_probes.numerics import Checked


def wrong(cell: str) -> dict[str, Checked]:
    return {op: one for op, one in checked(cell).items() if one.verdict != "ok"}


@pytest.mark.parametrize("features", ["plain", "sliced", "preempted"])
@pytest.mark.parametrize("kv_dtype", ["bf16", "int8"])
def test_b58_a_write_to_rows_of_the_cache_that_are_not_the_new_tokens(
    monkeypatch: pytest.MonkeyPatch, kv_dtype: str, features: str
) -> None:
    """A token of one request in a row of the other, and in one of nobody. Attention is right by what is there."""

    def astray(qkv: Tensor, inputs: Inputs) -> tuple[Any, ...]:
        cache = inputs.cache
        for row in (cache.rows[0][7], cache.slots[-1] + 1):
            cache.v[row] = 1
        return qkv, inputs

    cell = PLAIN.replace("kv-bf16", f"kv-{kv_dtype}").replace("plain", features)
    assert not wrong(cell)
    launched(monkeypatch, "rope_kv_write", astray)
    found = wrong(cell)
    assert list(found) == ["rope_kv_write"]
    assert found["rope_kv_write"].verdict == "wrong"
    assert found["rope_kv_write"].numbers.hint.startswith("2 rows of the cache, the first of them ")
