"""A model's config to a matrix file that can be swept."""

import json
from pathlib import Path

import pytest
from configs_for_tests import DEEPSEEK
from configs_for_tests import LLAMA as SHORT_LLAMA

from kaudit.cli import app
from kaudit.matrix import expand, load
from kaudit.terminal import guarded

LLAMA = SHORT_LLAMA | {"max_position_embeddings": 131072}
CONFIGS = Path(__file__).parents[3] / "shared" / "configs"


def kaudit(*arguments: object) -> int:
    return guarded(lambda: app([str(argument) for argument in arguments], standalone_mode=False))


def made(folder: Path, config: object, *options: str) -> Path:
    """The matrix of a config."""
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "made.yaml"
    assert kaudit("matrix", "from-config", folder / "config.json", "--out", file, *options) == 0
    return file


def test_a_matrix_that_can_be_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'Llama "3.1": no'
    folder.mkdir()
    file = made(folder, LLAMA, "--tp", "1,2,8,16,3")
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "not in the cells: tp=3 does not divide 32 query heads\n"
    matrix = load(str(file))
    assert matrix.name == 'Llama "3.1": no'
    assert [str(heads) for heads in matrix.axes.heads] == ["h32x8x128", "h16x4x128", "h4x1x128", "h2x1x128"]
    plan = expand(matrix)
    assert len(plan.cells) == plan.product == 4 * 2 * 3 * 9
    assert not plan.skipped and not plan.unresolved and not plan.uncovered
    assert kaudit("matrix", file, "--only", "decode/*/paged16/*") == 0
    assert "decode/bf16/kv-fp8_e4m3/h2x1x128/paged16/causal/neox/plain/b1q1k32768" in capsys.readouterr().out


def test_to_stdout_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = made(tmp_path, LLAMA)
    assert kaudit("matrix", "from-config", tmp_path / "config.json") == 0
    assert capsys.readouterr().out == file.read_text()


def test_what_is_not_in_the_cells_stands_in_the_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = made(tmp_path, LLAMA | {"rope_scaling": {"type": "dynamic"}, "model_type": "x\naxes: {}"})
    assert "# - dynamic rope scaling: written without scaling\n" in file.read_text()
    assert capsys.readouterr().err == "not in the cells: dynamic rope scaling: written without scaling\n"
    load(str(file))


def test_local_and_full_layers_are_blocks_with_lengths_about_their_window(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention"] * 16
    matrix = load(str(made(tmp_path, LLAMA | {"sliding_window": 1024, "layer_types": types})))
    assert [str(mask) for block in matrix.blocks() for mask in block.axes.mask] == ["window1024", "causal"]
    lengths = {cell.shape.kv_len for cell in expand(matrix).cells if cell.phase == "decode" and cell.mask.window}
    assert lengths == {1024, 1025, 4096, 8192, 32768}


def test_latent_attention_is_expanded_in_prefill_and_absorbed_in_decode(tmp_path: Path) -> None:
    cells = expand(load(str(made(tmp_path, DEEPSEEK, "--tp", "8")))).cells
    assert {(cell.phase, str(cell.heads)) for cell in cells} == {
        ("prefill", "h16x16x192x128"),
        ("chunked_prefill", "h16x16x192x128"),
        ("decode", "h16x1x576x512"),
    }


def test_short_models_have_short_cells(tmp_path: Path) -> None:
    plan = expand(load(str(made(tmp_path, LLAMA | {"max_position_embeddings": 16}))))
    assert max(cell.shape.kv_len for cell in plan.cells) == 16
    assert not plan.skipped


def test_an_fp32_checkpoint_is_served_in_bf16_too_and_its_cache_as_it_says(tmp_path: Path) -> None:
    quantised = {"kv_cache_scheme": {"num_bits": 8, "type": "int"}}
    axes = load(str(made(tmp_path, LLAMA | {"torch_dtype": "float32", "quantization_config": quantised}))).axes
    assert (axes.dtype, axes.kv_dtype) == (("fp32", "bf16"), ("same", "fp8_e4m3", "int8"))


@pytest.mark.parametrize(
    ("config", "options", "fault"),
    [
        (LLAMA, ["--tp", "3,5"], "tp=3 does not divide 32 query heads and tp=5 does not divide 32 query heads; write"),
        (LLAMA, ["--tp", "1,two"], '--tp: "two" is not a number of ranks'),
        (LLAMA, ["--tp", "0"], '--tp: "0" is not a number of ranks'),
        (LLAMA | {"max_position_embeddings": 8}, [], "config.json: sequences of fewer than 16 tokens"),
        ({"model_type": "rwkv5"}, [], "config.json: rwkv5 has no attention"),
    ],
)
def test_one_line_where_there_is_no_matrix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: object, options: list[str], fault: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert kaudit("matrix", "from-config", tmp_path / "config.json", *options) == 2
    told = capsys.readouterr()
    assert fault in told.err and told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize("arguments", [["smoke"], ["cells", "smoke"], ["--max-cells", "9000", "smoke"]])
def test_the_word_cells_may_be_left_out(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert kaudit("matrix", *arguments) == 0
    assert capsys.readouterr().err.startswith("smoke: ")


def test_help_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert kaudit("matrix", "--help") == 0
    shown = capsys.readouterr().out
    assert "cells" in shown and "from-config" in shown


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the collection of real configs is not here")
def test_every_real_config_gives_a_matrix_or_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {}
    files = sorted(CONFIGS.glob("*.json"))
    for file in files:
        matrix = tmp_path / f"{file.stem}.yaml"
        ended = kaudit("matrix", "from-config", file, "--tp", "1,2,4,8", "--out", matrix)
        told = capsys.readouterr().err.splitlines()
        if ended == 2:
            assert len(told) == 1 and not matrix.exists()
            refused[file.name] = told[0]
            continue
        assert ended == 0
        plan = expand(load(str(matrix)))
        assert plan.cells and not plan.skipped and not plan.unresolved
        notes = {line.removeprefix("not in the cells: ") for line in told}
        assert notes == {line[4:] for line in matrix.read_text().splitlines() if line.startswith("# - ")}
    assert len(files) >= 211
    assert set(refused) == {"mlc__llava.json", "mlc__rwkv5_3b.json"}  # no heads in the file; no attention at all


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert kaudit("matrix", "from-config", tmp_path / "config.json", "--out", tmp_path / "no" / "file.yaml") == 2
    assert "no is not a folder that can be written; name a file" in capsys.readouterr().err
