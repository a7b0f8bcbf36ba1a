"""How a token is chosen: what greedy, top-k and top-p mean, and the kernel against that.

On a CPU the kernel runs in Triton's interpreter, on a GPU compiled (see conftest.py).
"""

import math
from dataclasses import replace

import pytest
import torch
from kernel_problems import BASE, SMALL, but
from torch import Tensor

from kaudit_kernels import eager_sampling
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.eager_sampling import TEMPERATURE, TOP_K, TOP_P, draw
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.triton import launch_sample

FEATURES = ["", "top_k", "top_p", "top_k top_p"]


def logits_of(probabilities: list[float]) -> Tensor:
    return (torch.tensor(probabilities, dtype=torch.float64).log() * TEMPERATURE).float()


def tokens_of(probabilities: list[float], numbers: list[float], top_k: int = 0, top_p: float = 0.0) -> list[int]:
    rows = logits_of(probabilities).expand(len(numbers), -1)
    return draw(rows, torch.tensor(numbers), top_k, top_p).tolist()


def test_a_number_falls_into_the_part_of_its_token() -> None:
    assert tokens_of([0.2, 0.5, 0.3], [0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-24]) == [0, 0, 1, 1, 2, 2]


def test_top_k_keeps_the_equals_of_the_last_one() -> None:
    assert tokens_of([0.1, 0.4, 0.3, 0.2], [0.0, 0.5, 0.6, 0.99], top_k=2) == [1, 1, 2, 2]
    assert tokens_of([0.25, 0.5, 0.25], [0.0, 0.3, 0.8], top_k=2) == [0, 1, 2]


def test_top_p_keeps_the_token_that_reaches_it_and_its_equals() -> None:
    assert tokens_of([0.1, 0.6, 0.3], [0.0, 0.6, 0.7, 0.99], top_p=0.7) == [1, 1, 2, 2]
    assert tokens_of([0.1, 0.6, 0.3], [0.0, 0.99], top_p=0.5) == [1, 1]
    assert tokens_of([0.25, 0.5, 0.25], [0.0, 0.3, 0.8], top_p=0.7) == [0, 1, 2]


def test_top_p_is_of_what_top_k_left() -> None:
    # Of 0.5 and 0.3 alone, the first has 0.625: enough for 0.6 of them, not of all.
    assert tokens_of([0.2, 0.5, 0.3], [0.99], top_k=2, top_p=0.6) == [1]
    assert tokens_of([0.2, 0.5, 0.3], [0.99], top_p=0.6) == [2]


@pytest.mark.parametrize("features", FEATURES)
def test_what_the_features_stand_for(features: str) -> None:
    inputs = make_inputs(but(SMALL, features=features, batch=64, kv_len=2), "cpu", seed=0)
    ranks = inputs.logits.argsort(dim=-1, descending=True).argsort(dim=-1)
    tokens = eager_sampling.sample(inputs.logits, inputs)
    rank = ranks.gather(1, tokens[:, None])[:, 0]
    shares = (inputs.logits.double() / TEMPERATURE).softmax(-1).sort(-1, descending=True).values
    before = (shares.cumsum(-1) - shares).gather(1, rank[:, None])
    if not features:
        assert not rank.any()
        return
    assert rank.unique().numel() > 5
    assert rank.max() < TOP_K or "top_k" not in features
    assert before.max() < TOP_P or "top_p" not in features


def _given(logits: Tensor, features: str) -> Inputs:
    inputs = make_inputs(but(SMALL, kv_len=2, features=features), str(logits.device), seed=0)
    numbers = torch.rand(len(logits), generator=torch.Generator().manual_seed(3))
    numbers[0], numbers[-1] = 0.0, 1 - 2**-24
    return replace(inputs, draws=numbers.to(logits.device))


def _odd_rows(rows: int, vocabulary: int) -> Tensor:
    """Whole numbers, so that many are equal, a fifth forbidden; a row with one token, one with none, one of zeros."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (3 * torch.randn(rows, vocabulary, generator=generator)).round()
    logits[logits > 2.5] = -math.inf
    logits[1] = logits[2] = -math.inf
    logits[1, -1] = -3.0
    logits[3] = 0.0
    logits[3, vocabulary // 2] = -0.0
    return logits


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("vocabulary", [1, 5, 33, 4096])
def test_the_kernel_takes_the_same_tokens(vocabulary: int, features: str, device: str) -> None:
    pytest.importorskip("triton")
    logits = _odd_rows(16, vocabulary).to(device)
    inputs = _given(logits, features)
    found = launch_sample.sample(logits, inputs)
    assert found.tolist() == eager_sampling.sample(logits, inputs).tolist()
    assert found.dtype == torch.int64
    allowed = logits.isfinite().any(-1)
    assert logits.gather(1, found[:, None])[allowed].isfinite().all()
    assert found[1].item() == vocabulary - 1
    assert found[2].item() == 0


@pytest.mark.parametrize("features", FEATURES)
def test_the_kernel_takes_the_same_tokens_of_a_whole_vocabulary(features: str, device: str) -> None:
    pytest.importorskip("triton")
    inputs = make_inputs(but(SMALL, kv_len=2, features=features, batch=256 if device == "cuda" else 8), device, seed=5)
    found, wanted = launch_sample.sample(inputs.logits, inputs), eager_sampling.sample(inputs.logits, inputs)
    assert found.tolist() == wanted.tolist()


def test_a_token_depends_on_its_row_and_number_alone(device: str) -> None:
    pytest.importorskip("triton")
    logits = _odd_rows(16, 1000).to(device)
    inputs = _given(logits, "top_k top_p")
    whole = launch_sample.sample(logits, inputs)
    for row in (0, 5, 15):
        alone = launch_sample.sample(logits[row : row + 1], replace(inputs, draws=inputs.draws[row : row + 1]))
        assert alone.tolist() == whole[row : row + 1].tolist()


def test_the_kernel_serves_every_way_to_sample() -> None:
    for features in (*FEATURES, "grammar cuda_graph top_k"):
        assert decide("sample", but(BASE, features=features), CATALOGUE).chosen.name == "fused_sample"
    assert (
        str(decide("sample", but(BASE, sm=75), CATALOGUE))
        == "sample: eager, not fused_sample (sm=75, needs at least 80)"
    )


@pytest.mark.parametrize("features", FEATURES)
def test_a_row_that_would_compile_for_minutes_is_left_to_torch(features: str) -> None:
    most = but(BASE, batch=64, vocabulary=262_144, features=features)
    assert decide("sample", most, CATALOGUE).chosen.name == "fused_sample"
    assert str(decide("sample", replace(most, vocabulary=262_145), CATALOGUE)) == (
        "sample: eager, not fused_sample (vocabulary=262145, needs at most 262144)"
    )


TIMED = {
    "": {
        True: [(1, 32_768), (1, 131_072), (32, 151_936), (64, 32_768), (64, 151_936), (64, 262_144)],
        False: [(1, 151_936), (1, 262_144), (8, 151_936)],
    },
    "top_k top_p": {
        True: [(1, 32_768), (8, 151_936), (32, 151_936), (64, 32_768), (64, 151_936), (64, 262_144)],
        False: [(1, 131_072), (1, 151_936), (1, 262_144)],
    },
}
"""Rows and logits of each that were timed on an H200, by whether the kernel was the faster one."""


@pytest.mark.parametrize("features", TIMED)
def test_the_kernel_is_taken_where_it_was_the_faster_one(features: str) -> None:
    for faster, points in TIMED[features].items():
        for batch, vocabulary in points:
            problem = but(BASE, features=features, batch=batch, vocabulary=vocabulary)
            taken = decide("sample", problem, CATALOGUE).chosen.name == "fused_sample"
            assert taken == faster, (batch, vocabulary)


def test_a_few_long_rows_are_left_to_torch_by_how_a_token_is_chosen() -> None:
    few = but(BASE, batch=7, vocabulary=151_936)
    assert str(decide("sample", few, CATALOGUE)) == (
        "sample: eager, not fused_sample (vocabulary=151936, pays with at most 131072 for batch=7 and sampling=greedy)"
    )
    assert str(decide("sample", replace(few, features=frozenset({"top_k"})), CATALOGUE)) == (
        "sample: eager, not fused_sample (vocabulary=151936, pays with at most 32768 for batch=7 and sampling=random)"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("vocabulary", [32_000, 50_257, 131_072])
def test_a_vocabulary_that_spills_is_right_too(vocabulary: int, features: str) -> None:
    logits = 3 * torch.randn(64, vocabulary, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    inputs = _given(logits, features)
    assert launch_sample.sample(logits, inputs).tolist() == eager_sampling.sample(logits, inputs).tolist()
