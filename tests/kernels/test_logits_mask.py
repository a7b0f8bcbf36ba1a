"""The grammar's bit mask: what it lets through, where the kernel is taken, and that it compiles."""

import math
from pathlib import Path

import pytest
import torch
from kernel_problems import BASE, SMALL, but

from kaudit_kernels import eager
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.cuda import module
from kaudit_kernels.cuda.logits_mask import INSTANCE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.engine import Step, ops


def test_the_op_runs_with_a_grammar_only() -> None:
    assert "logits_mask" in ops(but(SMALL, features="grammar top_p"))
    assert "logits_mask" not in ops(but(SMALL, features="top_p"))


def test_a_vocabulary_without_whole_words_is_left_to_torch() -> None:
    grammar = but(BASE, features="grammar")
    assert str(decide("logits_mask", grammar, CATALOGUE)) == "logits_mask: vectorised_logits_mask"
    odd = but(grammar, vocabulary=50_257)
    assert str(decide("logits_mask", odd, CATALOGUE)) == (
        "logits_mask: eager, not vectorised_logits_mask (vocabulary=50257, needs a multiple of 32)"
    )


@pytest.mark.parametrize("features", ["grammar", "grammar top_k top_p"])
@pytest.mark.parametrize("vocabulary", [1, 31, 33, 50_257])
def test_a_step_of_a_vocabulary_without_whole_words(vocabulary: int, features: str) -> None:
    step = Step(but(SMALL, features=features, kv_len=4, vocabulary=vocabulary), "cpu")
    step.run()
    assert step.decisions["logits_mask"].chosen.name == "eager"
    words, masked = step.inputs.allowed.tolist(), step.outputs["logits_mask"]
    for request, logits in enumerate(step.inputs.logits.tolist()):
        wanted = [
            logit if words[request][token // 32] >> token % 32 & 1 else -math.inf for token, logit in enumerate(logits)
        ]
        assert masked[request].tolist() == wanted
    assert all(0 <= token < vocabulary for token in step.outputs["sample"].tolist())


def test_a_single_allowed_token_is_the_one_left() -> None:
    for token in (0, 31, 32, 63):
        allowed = torch.zeros(1, 2, dtype=torch.int32)
        allowed[0, token // 32] = -(2**31) if token % 32 == 31 else 1 << token % 32
        masked = eager.logits_mask(torch.ones(1, 64), allowed)
        assert masked.isfinite().nonzero().tolist() == [[0, token]]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_kernel_compiles(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path))
    cubin = module.build("logits_mask.cu", INSTANCE, arch)
    assert cubin.symbol.encode() in cubin.code


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_outputs")
@pytest.mark.parametrize("batch", [1, 3, 70_000])
@pytest.mark.parametrize("vocabulary", [32, 1056, 32_768])
def test_the_kernel_gives_what_torch_gives(batch: int, vocabulary: int) -> None:
    if batch * vocabulary > 1 << 27:
        pytest.skip("more memory than the case is worth")
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(batch, vocabulary, generator=generator, device="cuda")
    shape = batch, vocabulary // 32
    allowed = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, generator=generator, device="cuda")
    allowed[0] = 0
    allowed[-1, -1] = -(2**31)
    kernel = CATALOGUE["logits_mask"][0]
    assert torch.equal(kernel.launch(logits, allowed), eager.logits_mask(logits, allowed))
