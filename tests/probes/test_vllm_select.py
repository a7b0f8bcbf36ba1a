"""vLLM's selector, asked for GPUs that are not here: a stand-in with the real one's traps, and vLLM if it is there."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import msgspec
import pytest

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit.observation import Predicted, Refused, Rejection, Row, Said, Skipped, Unseen
from kaudit.table import read
from kaudit_probes.engines.vllm_select import VllmSelect

FAKE = Path(__file__).parents[1] / "fakes/vllm_package"
PLAIN = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b8q1k4096"
LATENT = PLAIN.replace("h32x8x128", "h128x1x576x512")


def cells_file(folder: Path, *cells: str) -> Path:
    """A matrix of just these cells."""
    blocks = []
    for cell in map(Cell.parse, cells):
        axes = {
            "phase": cell.phase,
            "dtype": cell.dtype,
            "kv_dtype": cell.kv_dtype,
            "heads": cell.heads,
            "kv_layout": cell.layout,
            "mask": cell.mask,
            "rope": cell.rope,
            "features": "+".join(cell.features) or "plain",
            "shape": cell.shape,
        }
        listed = "\n".join(f"      {axis}: [{value}]" for axis, value in axes.items())
        blocks.append(f"  - axes:\n{listed}")
    first, *others = blocks
    text = first.replace("  - axes:", "axes:").replace("      ", "  ") + "\n"
    text += "also:\n" + "\n".join(others) if others else ""
    path = folder / "cells.yaml"
    path.write_text(f"name: cells\n{text}\n")
    return path


def sweep(
    folder: Path, device: str, *cells: str, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    matrix = cells_file(folder, *cells)
    command = [sys.executable, "-m", "kaudit", "sweep", str(matrix), "--engine", "vllm-select", "--device", device]
    search = os.pathsep.join(filter(None, (str(path) if path else "", os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [*command, "--out", str(folder / f"{device}.jsonl")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": search, **environment},
    )


def rows(folder: Path, device: str, *cells: str, path: Path | None = None, **environment: str) -> dict[str, Row]:
    done = sweep(folder, device, *cells, path=path, **environment)
    assert done.returncode == 0, done.stderr
    return {row.cell: row for row in read(folder / f"{device}.jsonl").rows.values()}


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """The stand-in, installed, with an extension that needs a library which only the GPU's machine has."""
    path = tmp_path / "site"
    shutil.copytree(FAKE, path, ignore=shutil.ignore_patterns("__pycache__"))
    (path / "vllm-0.33.0.dist-info").mkdir()
    (path / "vllm-0.33.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    real = Path(msgspec._core.__file__).read_bytes()
    (path / "vllm/_extension.abi3.so").write_bytes(real.replace(b"libc.so.6", b"libX.so.6"))
    return path


def tried(site: Path) -> str:
    """What `kaudit engines` is told of it."""
    command = [sys.executable, "-P", "-m", "kaudit_probes.listing", "vllm-select"]
    search = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, env=environment)
    return str(msgspec.json.decode(done.stdout)["trouble"])


SINKS = PLAIN.replace("plain", "sinks")
HD512, PAGE8 = PLAIN.replace("x128/", "x512/"), PLAIN.replace("paged16", "paged8")
NO_SINK = Rejection("vllm:FLASH_ATTN", "asked", (Said("sink not supported on compute capability < 9.0"),))
NO_HEAD = Said("head_size not supported")


@pytest.mark.skipif(sys.platform != "linux", reason="the extension that does not load is an ELF file")
def test_each_gpu_has_a_choice_of_its_own(fake: Path, tmp_path: Path) -> None:
    wide = SINKS.replace("x128/", "x256/")
    before = rows(tmp_path, "sm_80", PLAIN, SINKS, HD512, PAGE8, wide, path=fake)
    assert before[PLAIN] == Row(PLAIN, "attention", Predicted("vllm:FLASH_ATTN"))
    assert before[HD512].outcome == Predicted(
        "vllm:TRITON_ATTN",
        (Rejection("vllm:FLASH_ATTN", "asked", (NO_HEAD,)), Rejection("vllm:FLASHINFER", "asked", (NO_HEAD,))),
    )
    # No server was asked whether FlashInfer's kernels can be had: where that decides, nothing is predicted.
    assert isinstance(before[SINKS].outcome, Unseen)
    assert "VLLM_HAS_FLASHINFER_CUBIN" in before[SINKS].outcome.why
    # Where the head size rules FlashInfer out anyway, it does not decide.
    assert before[wide].outcome == Predicted(
        "vllm:TRITON_ATTN", (NO_SINK, Rejection("vllm:FLASHINFER", "asked", (NO_HEAD,)))
    )
    assert before[PAGE8].outcome == Predicted(
        "vllm:FLASHINFER", (Rejection("vllm:FLASH_ATTN", "asked", (Said("block_size not supported"),)),)
    )
    assert tried(fake) == ""
    stamp = read(tmp_path / "sm_80.jsonl").header.stamp
    assert (stamp.device.name, stamp.device.arch, stamp.device.predicted) == ("predicted sm_80", "sm_80", True)
    assert stamp.environment["taken to load there"] == "vllm._extension"
    known = rows(tmp_path, "sm_80", SINKS, path=fake, VLLM_HAS_FLASHINFER_CUBIN="1")
    assert known[SINKS].outcome == Predicted("vllm:FLASHINFER", (NO_SINK,))
    assert rows(tmp_path, "sm_90", SINKS, path=fake)[SINKS].outcome == Predicted("vllm:FLASH_ATTN")


@pytest.mark.skipif(sys.platform != "linux", reason="the extension that does not load is an ELF file")
def test_what_cannot_be_asked_here_is_not_guessed(fake: Path, tmp_path: Path) -> None:
    quantised, open_mask = LATENT.replace("kv-bf16", "kv-fp8_e4m3"), PLAIN.replace("causal", "none")
    found = rows(tmp_path, "sm_100", LATENT, quantised, PLAIN, open_mask, path=fake)
    # What is not installed is turned down in vLLM's own words; if nothing is left, it says no.
    assert found[LATENT] == Row(
        LATENT,
        "*",
        Refused(
            "no attention backend is valid: "
            "vllm:TOKENSPEED_MLA: ModuleNotFoundError: No module named 'tokenspeed_mla'; "
            "vllm:CUTLASS_MLA: kv_cache_dtype not supported"
        ),
    )
    assert found[quantised].outcome == Unseen(
        "vllm:CUTLASS_MLA stands before what is left, and cannot be asked here: "
        "RuntimeError: Found no NVIDIA driver on your system."
    )
    assert found[PLAIN] == Row(PLAIN, "attention", Predicted("vllm:FLASHINFER"))
    assert found[open_mask] == Row(open_mask, "non_causal_attention", Predicted("vllm:FLASH_ATTN"))
    paths = read(tmp_path / "sm_100.jsonl").header.paths
    assert [paths[op][0] for op in ("attention", "non_causal_attention")] == ["vllm:FLASHINFER", "vllm:FLASH_ATTN"]


def test_an_extension_that_is_broken_is_not_taken_to_load(fake: Path, tmp_path: Path) -> None:
    (fake / "vllm/_extension.abi3.so").write_bytes(b"not an extension")
    done = sweep(tmp_path, "sm_90", PLAIN, path=fake)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--engine vllm-select: does not import (ImportError: " in done.stderr
    assert tried(fake) in done.stderr


def test_another_interface_is_one_line(fake: Path, tmp_path: Path) -> None:
    selector = fake / "vllm/v1/attention/selector.py"
    selector.write_text(selector.read_text().replace("block_size", "kernel_block_size"))
    (fake / "vllm/_extension.abi3.so").unlink()
    (fake / "vllm/_extension.py").touch()
    done = sweep(tmp_path, "sm_90", PLAIN, path=fake)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "vllm 0.33.0 is asked otherwise than 0.33" in done.stderr


@pytest.mark.parametrize(
    ("engine", "device", "fault"),
    [
        ("vllm-select", "auto", "name that, as in --device sm_90"),
        ("reference", "sm_90", "only an engine that predicts takes a GPU's name"),
        ("reference", "h200", '"h200" is not one of auto, cpu, cuda'),
    ],
)
def test_a_prediction_needs_the_name_of_a_gpu(engine: str, device: str, fault: str) -> None:
    command = [sys.executable, "-m", "kaudit", "sweep", "smoke", "--engine", engine, "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert fault in done.stderr


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (PLAIN.replace("paged16", "ragged"), "paged, not ragged"),
        (PLAIN.replace("bf16/kv-bf16", "fp8_e4m3/kv-fp8_e4m3"), "model's dtype"),
        (PLAIN.replace("kv-bf16", "kv-int8"), "a scale for each token and head"),
        (PLAIN.replace("causal", "custom"), "no mask tensor"),
        (PLAIN.replace("h32x8x128", "h128x128x192x128"), "one head size"),
    ],
)
def test_what_cannot_be_said_is_skipped(cell: str, why: str) -> None:
    op, outcome = VllmSelect.predict(object.__new__(VllmSelect), Cell.parse(cell))
    assert op == "*"
    assert isinstance(outcome, Skipped)
    assert why in outcome.reason


def test_the_shipped_matrix_asks_each_head_dim_of_each_kv_dtype() -> None:
    """224 is report B34, KV in fp8 is B11."""
    asked = {(cell.heads.dim, cell.kv_dtype) for cell in expand(load("vllm")).cells if cell.dtype == "bf16"}
    assert asked >= set(product((64, 80, 128, 224, 256, 512), ("bf16", "fp8_e4m3", "fp8_e5m2")))


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_real_selector(tmp_path: Path) -> None:
    """Since FlashAttention 2 has no sinks, an A100 cannot have what an H100 has."""
    hopper, ampere = rows(tmp_path, "sm_90", PLAIN, SINKS), rows(tmp_path, "sm_80", PLAIN, SINKS)
    assert hopper[PLAIN].outcome == ampere[PLAIN].outcome == Predicted("vllm:FLASH_ATTN")
    assert hopper[SINKS].outcome == Predicted("vllm:FLASH_ATTN")
    assert isinstance(ampere[SINKS].outcome, Predicted)
    assert ampere[SINKS].outcome.path != "vllm:FLASH_ATTN"
    assert ampere[SINKS].outcome.rejections[0].path == "vllm:FLASH_ATTN"
