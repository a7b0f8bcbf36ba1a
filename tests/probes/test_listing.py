"""What `kaudit engines` says of an engine, and a sweep of it: the same words, whatever its import raises."""

import subprocess
import sys
from pathlib import Path

import pytest

from kaudit.errors import UserError
from kaudit_probes.engines import ENGINES, load
from kaudit_probes.engines.flashinfer import FlashInfer
from kaudit_probes.engines.torch_varlen import VarlenEngine
from kaudit_probes.listing import trouble

GET = f"{ENGINES['flashinfer'].get}, where --python points"


def install(folder: Path, module: str, text: str, package: str = "") -> None:
    (folder / f"{module}.py").write_text(text)
    if package:
        about = folder / f"{package.replace('-', '_')}-0.7.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.7\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Goes before what is installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flashinfer", None)  # so that what the test imports is forgotten after it
    del sys.modules["flashinfer"]
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise OSError('libcudart.so.12: no such file')", "OSError: libcudart.so.12: no such file"),
        ("raise ImportError('_C.so: undefined symbol')", "ImportError: _C.so: undefined symbol"),
        ("import of_another", "ModuleNotFoundError: No module named 'of_another'"),
        ("def (", "SyntaxError: invalid syntax (flashinfer.py, line 1)"),
        ("import sys; sys.exit('not on this machine')", "SystemExit: not on this machine"),
        ("class Panic(BaseException): ...\nraise Panic('in Rust\\nat lib.rs')", "Panic: in Rust at lib.rs"),
        (f"raise OSError('{'x' * 5000}')", f"OSError: {'x' * 200}"),
        ("raise ImportError('\\n\\nIMPORTANT: read this')", "ImportError: IMPORTANT: read this"),
        (
            "class Bare(Exception):\n    def __str__(self):\n        raise KeyError\nraise Bare",
            "Bare",
        ),
    ],
)
def test_an_import_that_fails_is_told_in_the_words_of_a_sweep(site: Path, text: str, words: str) -> None:
    install(site, "flashinfer", text, "flashinfer-python")
    told = trouble("flashinfer")
    assert told == f"does not import ({words}); {GET}"
    with pytest.raises(UserError) as error:
        load("flashinfer")("cpu")
    assert str(error.value) == f"--engine flashinfer: {told}"


def test_what_imports_is_no_trouble_though_it_needs_a_gpu(site: Path) -> None:
    install(site, "flashinfer", "__version__ = '0.7'", "flashinfer-python")
    assert trouble("flashinfer") == ""
    with pytest.raises(UserError, match="needs an NVIDIA GPU"):
        load("flashinfer")("cpu")


def test_an_engine_of_ones_own_behind_a_listed_one_is_told_under_its_own_name(site: Path) -> None:
    class Mine(FlashInfer):
        name = "mine"

    install(site, "flashinfer", "import of_another", "flashinfer-python")
    with pytest.raises(UserError) as error:
        Mine("cpu")
    assert str(error.value) == ("--engine mine: does not import (ModuleNotFoundError: No module named 'of_another')")


def test_an_interrupt_is_no_word_of_a_library(site: Path) -> None:
    install(site, "flashinfer", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        trouble("flashinfer")


def test_an_older_torch_is_installed_and_lacks_what_an_engine_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trouble("torch-varlen") == trouble("flex") == ""
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    assert "has no torch.nn.attention.varlen; install 2.10" in trouble("torch-varlen")
    with pytest.raises(UserError, match=r"install 2\.10"):
        VarlenEngine("cpu")
    monkeypatch.setattr("kaudit_probes.engines.flex.find_spec", lambda _: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert trouble("flex") == ""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "install 2.9 or later" in trouble("flex")


def test_transformers_without_flash_attn_is_no_engine_that_asks_for_it() -> None:
    pytest.importorskip("transformers")
    assert trouble("transformers") == ""
    flash = ENGINES["flash-attn-2"].version()
    assert trouble("transformers-flash").startswith("flash-attn 2 is not installed") is not bool(flash)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", ""), ("raise OSError('undefined symbol')", "does not import (OSError: undefined symbol)")],
)
def test_whether_flash_attn_sees_a_gpu_a_sweep_says(
    site: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    del sys.modules["flash_attn"]
    install(site, "flash_attn", text, "flash-attn")
    told = trouble("transformers-flash")
    assert told.partition(";")[0] == words
    with pytest.raises(UserError, match="needs an NVIDIA GPU" if not text else "undefined symbol"):
        load("transformers-flash")("cpu")


def test_flash_attn_that_transformers_does_not_take_is_no_engine(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    del sys.modules["flash_attn"]
    install(site, "flash_attn", "", "flash-attn")
    monkeypatch.setattr(transformers.utils, "is_flash_attn_2_available", lambda: False)
    with pytest.raises(UserError, match=r"transformers .* does not take flash-attn 0\.7; install a newer one"):
        load("transformers-flash")("cuda")


def test_no_engine_behind_one_that_fails_is_tried_in_its_process() -> None:
    command = [sys.executable, "-P", "-m", "kaudit_probes.listing", "sdpa", "nonsense", "flex"]
    tried = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    first, second = tried.stdout.splitlines()
    assert first == '{"name":"sdpa","trouble":""}'
    assert 'no engine \\"nonsense\\"' in second


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import of_another", "No module named 'of_another'"),
        ("Other = 1", "module 'own_engine' has no attribute 'Mine'"),
        ("def (", "SyntaxError: invalid syntax (own_engine.py, line 1)"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_an_engine_of_ones_own_that_does_not_import_is_told_likewise(
    text: str, words: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "own_engine", raising=False)
    install(site, "own_engine", text)
    with pytest.raises(UserError) as error:
        load("own_engine:Mine")
    assert str(error.value) == f'--engine: "own_engine:Mine" does not import: {words}; install it where --python points'
