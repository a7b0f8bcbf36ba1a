"""NVRTC and its cache on disk. Needs cuda-core, no GPU."""

from pathlib import Path

import pytest

from kaudit_kernels.cuda import module
from kaudit_kernels.cuda.module import Cubin
from kaudit_kernels.cuda.silu_mul import INSTANCE
from kaudit_kernels.cuda.split_kv_decode import instance

SOURCE, HALF = "silu_mul.cu", "silu_mul_kernel<Half, 2>"


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(instance, arch) of each compilation; the compiler itself is a stand-in, and the cache a fresh one."""
    pytest.importorskip("cuda.core")
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path))
    made: list[tuple[str, str]] = []

    def compile_(text: str, instance: str, arch: str) -> Cubin:
        made.append((instance, arch))
        return Cubin(b"\x7fELF\n\n" + text[:8].encode(), f"_Z{instance}")

    monkeypatch.setattr(module, "_compile", compile_)
    return made


def _entries(directory: Path) -> list[Path]:
    return sorted((directory / "cuda").iterdir())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("instance", INSTANCE.values())
def test_silu_mul_compiles(arch: str, instance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path))
    cubin = module.build(SOURCE, instance, arch)
    assert cubin.code.startswith(b"\x7fELF")
    assert "silu_mul_kernel" in cubin.symbol
    assert cubin.symbol.encode() in cubin.code
    assert module.build(SOURCE, instance, arch) == cubin


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("kv_dtype", ["bf16", "int8", "fp8_e4m3", "fp8_e5m2"])
def test_warp_decode_compiles(arch: str, kv_dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path))
    if arch == "sm_80" and kv_dtype.startswith("fp8"):
        pytest.skip("the catalogue denies it: sm_80 has no instruction that converts fp8")
    for head_dim, heads in ((64, 1), (256, 2)):
        cubin = module.build("split_kv_decode.cu", instance("bf16", kv_dtype, head_dim, heads), arch)
        assert "warp_decode_kernel" in cubin.symbol


def test_an_entry_is_compiled_once(compilations: list[tuple[str, str]], tmp_path: Path) -> None:
    first = module.build(SOURCE, HALF, "sm_90")
    assert module.build(SOURCE, HALF, "sm_90") == first
    assert len(compilations) == len(_entries(tmp_path)) == 1


def test_what_the_machine_code_depends_on_is_in_the_key(
    compilations: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module.build(SOURCE, HALF, "sm_90")
    module.build(SOURCE, HALF, "sm_80")
    module.build(SOURCE, "silu_mul_kernel<BFloat16, 2>", "sm_90")
    monkeypatch.setattr(module, "OPTIONS", {"std": "c++20"})
    module.build(SOURCE, HALF, "sm_90")
    assert len(compilations) == 4


@pytest.mark.parametrize(("intact", "damaged"), [(b"ELF", b"FLE"), (b"\n", b""), (b"ELF", b"")])
def test_a_damaged_entry_is_compiled_anew(
    compilations: list[tuple[str, str]], tmp_path: Path, intact: bytes, damaged: bytes
) -> None:
    good = module.build(SOURCE, HALF, "sm_90")
    (entry,) = _entries(tmp_path)
    entry.write_bytes(entry.read_bytes().replace(intact, damaged))
    assert module.build(SOURCE, HALF, "sm_90") == good
    assert module.build(SOURCE, HALF, "sm_90") == good
    assert len(compilations) == 2


def test_a_cache_that_cannot_be_written_costs_a_compilation_and_nothing_else(
    compilations: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path / "file"))
    assert module.build(SOURCE, HALF, "sm_90") == module.build(SOURCE, HALF, "sm_90")
    assert len(compilations) == 2


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KAUDIT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_directory() == tmp_path / "kaudit" / "cuda"
    monkeypatch.setenv("KAUDIT_CACHE_DIR", str(tmp_path / "own"))
    assert module.cache_directory() == tmp_path / "own" / "cuda"
