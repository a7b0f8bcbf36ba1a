"""Each test runs a suite of its own, in a process of its own: a test runner that unloads modules breaks torch."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import logging, warnings
import pytest, torch
from torch.nn.functional import scaled_dot_product_attention
from kaudit.observation import Rejection, Said
from kaudit_probes.engines import Path
from kaudit_probes.seen import Unseen

X = torch.randn(1, 2, 64, 64)
PATHS = [Path("fused", ("flash_attention",)), Path("eager")]

def unfused():
    return torch.softmax(X @ X.transpose(-1, -2), -1) @ X

def words(heard):
    texts = [record.getMessage() for record in heard.records if record.name == "engine"] + list(heard.warnings)
    return [Rejection("fused", "announced", tuple(map(Said, texts)))]
"""


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(SUITE + body)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_test_asserts_the_family_in_one_line(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_fused(kernels):
    with kernels(device="cpu") as seen:
        scaled_dot_product_attention(X, X, X)
    assert seen.family("attention") == "cpu_flash"
    assert not seen.fallbacks
    assert seen.names == ("aten::_scaled_dot_product_flash_attention_for_cpu",)
    assert seen.families == ("cpu_flash",)
    assert seen.launches == 1

def test_blocks_follow_one_another(kernels):
    for times in (1, 3):
        with kernels(device="cpu") as seen:
            for _ in range(times):
                torch.mm(X[0, 0], X[0, 0])
        assert seen.launches == times
""",
        "--kaudit",
    )
    result.assert_outcomes(passed=2)


def test_an_unfused_softmax_is_a_fallback_and_the_failure_shows_the_kernels(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_fallback(kernels):
    with kernels(device="cpu") as seen:
        unfused()
    assert not seen.fallbacks

def test_family(kernels):
    with kernels(device="cpu") as seen:
        unfused()
    assert seen.family("attention") == "cpu_flash"

def test_several(kernels):
    with kernels(device="cpu") as seen:
        scaled_dot_product_attention(X, X, X)
        unfused()
        torch.cumsum(X, 0)
    assert seen.family("scan") == "scan"
    with pytest.raises(AssertionError, match="no kernel served norm"):
        seen.family("norm")
    assert [fallback.why for fallback in seen.fallbacks] == ["unfused attention: _softmax beside bmm"]
""",
        "--kaudit",
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: assert not (Fallback(why='unfused attention: _softmax beside bmm'*",
            "*Captured kaudit call*",
            "test_fallback, on cpu",
            "matmul   gemm             2 *bmm",
            "softmax  unfused_softmax  1 *_softmax",
            "fallback: unfused attention: _softmax beside bmm",
            ">*assert seen.family(*",
            "E*no kernel served attention, needs one family: <Seen: matmul gemm ×2, softmax unfused_softmax ×1>",
        ]
    )


def test_without_the_option_such_tests_are_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(kernels): raise AssertionError\ndef test_other(): pass")
    result = pytester.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*run with --kaudit"])


def test_paths_judge_and_what_the_engine_says_announces(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_announced(kernels):
    with kernels(paths=PATHS, announced=words, device="cpu") as seen:
        logging.getLogger("engine").info("head_dim 64 is odd")
        warnings.warn("slow!")
        unfused()
    assert seen.path == "eager"
    (fallback,) = seen.fallbacks
    assert fallback.why == "eager ran, not fused"
    assert fallback.announced == ("head_dim 64 is odd; slow!",)

def test_silent(kernels):
    with kernels(paths=PATHS, announced=words, device="cpu") as seen:
        unfused()
    assert not seen.fallbacks[0].announced

def test_fast(kernels):
    with kernels(paths=PATHS, device="cpu") as seen:
        scaled_dot_product_attention(X, X, X)
    assert seen.path == "fused" and not seen.fallbacks

def test_arguments_that_do_not_go_together(kernels):
    for wrong in (
        {"announced": words},
        {"paths": [Path("flex", fits=lambda cell, kernels: True)]},
        {"device": "cuda:1"},
    ):
        with pytest.raises(ValueError), kernels(**wrong):
            pass
    with kernels(device="cpu") as seen:
        unfused()
    with pytest.raises(ValueError, match="paths"):
        seen.path
""",
        "--kaudit",
    )
    result.assert_outcomes(passed=4)


def test_what_was_not_seen_is_never_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_empty(kernels):
    with kernels(device="cpu") as seen:
        pass
    assert [fallback.why for fallback in seen.fallbacks] == ["no kernel ran on the CPU"]

def test_unclassified(kernels):
    with kernels(device="cpu") as seen:
        torch.special.i0(X)
    assert [kernel.name for kernel in seen.unclassified] == ["aten::i0"]
    assert "unclassified" in seen.fallbacks[0].why

def test_other_profiler_inside(kernels):
    with pytest.raises(Unseen, match="another profiler"), kernels(device="cpu") as seen:
        with torch.profiler.profile():
            unfused()
    with pytest.raises(RuntimeError, match="after its block"):
        seen.fallbacks

def test_other_profiler_outside(kernels):
    with torch.profiler.profile(), pytest.raises(RuntimeError, match="only one profiler"), kernels(device="cpu"):
        pass

def test_nested(kernels):
    with kernels(device="cpu") as seen:
        with pytest.raises(RuntimeError, match="inside another kernels"), kernels(device="cpu"):
            pass
        with pytest.raises(RuntimeError, match="after its block"):
            seen.launches
        unfused()
    assert seen.launches == 3

def test_raising(kernels):
    with pytest.raises(KeyError, match="mine"), kernels(device="cpu") as seen:
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="after its block"):
        seen.kernels
    with kernels(device="cpu") as seen:
        unfused()
    assert seen.launches == 3
""",
        "--kaudit",
    )
    result.assert_outcomes(passed=6)


@pytest.mark.gpu
def test_on_a_gpu_kernels_are_seen_with_their_grids(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
Y = X.to("cuda", torch.bfloat16)

def test_kernels(kernels):
    scaled_dot_product_attention(Y, Y, Y)
    with kernels() as seen:
        scaled_dot_product_attention(Y, Y, Y)
    assert seen.family("attention") in {"fa2", "cudnn_sdpa"}
    assert all(kernel.grid for kernel in seen.kernels if kernel.role == "attention")

def test_elsewhere(kernels):
    with kernels() as seen:
        unfused()
    assert [fallback.why for fallback in seen.fallbacks] == ["no kernel ran on the GPU"]
""",
        "--kaudit",
    )
    result.assert_outcomes(passed=2)


def test_without_torch_the_option_says_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kaudit_probes.pytest_plugin.find_spec", lambda _: None)
    result = pytester.runpytest_inprocess("--kaudit")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--kaudit: torch is not installed here; pip install 'kaudit[[]torch]'"])


def test_pytest_starts_without_torch_or_kaudit(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\ndef test_two(kernels): pass\n")
    code = """
import sys, pytest
pytest.main(["-q"])
print(sorted(name for name in sys.modules if name.partition(".")[0] in {"torch", "msgspec", "kaudit", "kaudit_probes"}))
"""
    ran = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed, 1 skipped" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "['kaudit_probes', 'kaudit_probes.pytest_plugin']"
