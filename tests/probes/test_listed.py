"""What an engine says of its paths to `kaudit kernels`: of any device, of one, and of a cell there."""

import pytest

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Outcome
from kaudit.report.catalogue import lines
from kaudit_probes.catalogue import asked

DECODE = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096"


class Picky:
    """A selector."""

    name = "picky"
    environment = ()

    def __init__(self, capability: tuple[int, int]) -> None:
        self._major = capability[0]

    def revision(self) -> str:
        return "1"

    def switches(self) -> dict[str, str]:
        return {}

    def paths(self) -> dict[str, tuple[str, ...]]:
        return {"attention": (f"for_{self._major}", "any")}

    def predict(self, cell: Cell) -> tuple[str, Outcome]:
        raise NotImplementedError(cell)


PICKY = f"{__name__}:Picky"


@pytest.mark.parametrize(("device", "served_by"), [("sm_90", "split_kv_decode"), ("cpu", "eager")])
def test_the_reference_engine_answers_for_a_gpu_that_is_not_there(device: str, served_by: str) -> None:
    found = asked("reference", device, DECODE)
    assert found.device.startswith(device)
    assert (found.cell, found.refused) == (DECODE, "")
    assert "logits_mask" not in found.ops  # no grammar
    chosen = found.chosen("attention")
    assert chosen is not None
    assert chosen.path == served_by
    assert chosen.requires
    assert all(found.chosen(op) for op in found.ops)


@pytest.mark.parametrize(("features", "tokens"), [("plain", "17"), ("cuda_graph", "32")])
def test_what_is_decided_on_is_the_batch_that_a_graph_is_filled_up_to(features: str, tokens: str) -> None:
    cell = DECODE.replace("plain", features).replace("b8", "b17")
    skinny = asked("reference", "sm_90", cell).of("qkv_proj")[0]
    assert [str(unmet) for unmet in skinny.unmet] == [f"tokens={tokens}, pays with at most 16"]


@pytest.mark.parametrize(
    ("heads", "refused"),
    [
        ("h33x2x128", "kv_heads=2, needs a divisor of q_heads=33"),
        ("h32x8x65", "rope_kv_write: no kernel takes this problem: fused_rope_kv_write (head_dim=65, needs a "),
    ],
)
def test_of_a_cell_that_is_refused_nothing_else_is_told(heads: str, refused: str) -> None:
    """Before any kernel is asked, or because one op has none: no op of it is served."""
    cell = DECODE.replace("h32x8x128", heads)
    found = asked("reference", "sm_90", cell)
    assert found.refused.startswith(refused)
    assert (found.ops, found.chosen("rms_norm")) == ((), None)
    assert not any(each.unmet for each in found.paths)
    assert list(lines(found, None, 120))[1:] == [f"{cell}: refused: {found.refused}"]


@pytest.mark.parametrize(
    ("device", "never"),
    [
        ("auto", {}),
        ("sm_80", {"flash_prefill_tma": "sm=80, needs 90", "fused_sdpa": "sm=80, needs at most 0"}),
        ("sm_90", {"fused_sdpa": "sm=90, needs at most 0"}),
    ],
)
def test_what_never_runs_on_a_device_is_told_where_one_is_named(device: str, never: dict[str, str]) -> None:
    found = asked("reference", device, None)
    assert {each.path: str(*each.unmet) for each in found.of("attention") if each.unmet} == never
    assert bool(found.device) == (device != "auto")


def test_functions_that_only_some_cells_launch_are_told_apart() -> None:
    (split,) = (each for each in asked("reference", "auto", None).paths if each.path == "split_kv_decode")
    assert (split.shows, split.also) == (("^split_kv_decode_kernel",), ("^split_kv_merge_kernel",))


def test_an_engine_that_states_no_needs_is_listed_by_name() -> None:
    found = asked("sdpa", "cpu", None)
    assert (found.stated, found.device) == (False, "cpu")
    assert [each.path for each in found.of("attention")] == ["sdpa:flash", "sdpa:math"]


@pytest.mark.parametrize(("device", "gpu", "first"), [("auto", "sm_90", "for_9"), ("sm_80", "sm_80", "for_8")])
def test_a_selector_is_listed_for_the_gpu_that_it_says(device: str, gpu: str, first: str) -> None:
    found = asked(PICKY, device, None)
    assert found.device == gpu
    assert [each.path for each in found.of("attention")] == [first, "any"]


@pytest.mark.parametrize(
    ("engine", "device", "cell", "fault"),
    [
        ("reference", "sm_77", None, "--device sm_77: how many SMs it has is not known here; name one of sm_80, "),
        ("reference", "tpu", None, "--device tpu: names no GPU; write sm_90, say, or auto"),
        ("reference", "cpu", "decode", '--cell: cell "decode" has 1 parts, needs phase/'),
        ("reference", "cpu", "", '--cell: cell "" has 1 parts, needs phase/'),
        ("sdpa", "cpu", "", "--cell: sdpa does not state what its paths need; "),
        ("os.path:join", "cpu", None, "builtins:str: has no name, refusals, "),
        ("sdpa", "cpu", DECODE, "--cell: sdpa does not state what its paths need; "),
        ("sdpa", "sm_90", None, "--device sm_90: only an engine that predicts takes a GPU's name"),
        ("none", "cpu", None, '--engine: no engine "none"; name one of '),
        (PICKY, "cpu", None, "--device cpu: names no GPU; write sm_90, say, or auto"),
    ],
)
def test_what_cannot_be_asked_is_one_line(engine: str, device: str, cell: str | None, fault: str) -> None:
    with pytest.raises(UserError) as error:
        asked(engine, device, cell)
    (line,) = error.value.faults
    assert line.startswith(fault)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (DECODE.replace("b8q1k4096", "b8q2k1"), "decode sees its own tokens"),
        (DECODE.replace("kv-bf16", "kv-fp32"), "kv_dtype=fp32 is neither"),
        (DECODE.replace("causal", "tree"), "the tree mask and the feature speculative_tree"),
        (DECODE.replace("plain", "vacant").replace("b8", "b1"), "vacant needs another request"),
        (DECODE.replace("plain", "preempted").replace("paged16", "contiguous"), "preempted is told of pages"),
    ],
)
def test_a_cell_that_no_sweep_runs_is_served_by_nothing(cell: str, why: str) -> None:
    with pytest.raises(UserError) as error:
        asked("reference", "sm_90", cell)
    (line,) = error.value.faults
    assert line.startswith(f"--cell {cell}: no sweep runs it: {why}")
    assert line.endswith("; name another cell")
