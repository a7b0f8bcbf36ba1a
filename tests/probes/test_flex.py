"""The adapter of flex_attention. Compiling takes seconds even on a CPU, so one test alone does."""

import logging
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from attention_for_tests import assert_textbook, outcomes
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.matrix import expand, load
from kaudit.observation import Kernel, Ran, Skipped, Unmet
from kaudit_probes.engines import Path
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flex import FlexEngine, decode_unmet, is_main
from kaudit_probes.engines.flex_call import Attend, ScoreMod, arguments, compiled
from kaudit_probes.engines.torch_attention import SHORT_QUERY
from kaudit_probes.rows import Words, ran


def uncompiled(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    gqa: bool,
) -> torch.Tensor:
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=gqa)


class UncompiledEngine(FlexEngine):
    """As those call it who forget torch.compile."""

    def attend(self) -> Attend:
        return uncompiled


def cell(phase: str, heads: str, mask: str, shape: str, features: str = "plain") -> Cell:
    return Cell.parse(f"{phase}/fp32/kv-fp32/{heads}/contiguous/{mask}/none/{features}/{shape}")


@pytest.mark.parametrize(
    "tried",
    [
        cell("prefill", "h4x2x64", "causal", "b2q12k12"),
        cell("decode", "h4x1x64x32", "window4", "b2q3k16"),
        cell("decode", "h4x2x64", "window4", "b3q3k16skew"),
        cell("decode", "h4x2x64", "causal", "b3q1k16skew"),
        cell("prefill", "h4x4x64", "none", "b3q12k12skew"),
        cell("decode", "h4x4x64", "custom", "b2q4k16skew"),
        cell("decode", "h4x4x64", "tree", "b2q7k16", "speculative_tree"),
        cell("decode", "h4x4x64", "causal", "b2q1k16"),
    ],
    ids=lambda tried: tried.id,
)
def test_masks_are_what_the_cell_says(tried: Cell) -> None:
    inputs = arguments(tried, "cpu")
    assert_textbook(tried, inputs.run(uncompiled), inputs.q, inputs.k, inputs.v)


def test_an_uncompiled_call_is_unfused_and_says_so_in_each_cell() -> None:
    tried = [cell("decode", "h4x2x64", mask, "b2q2k16", "softcap") for mask in ("causal", "window4")]
    found = outcomes(UncompiledEngine("cpu"), [one.id for one in tried])
    for outcome in found.values():
        assert isinstance(outcome, Ran)
        assert (outcome.path, outcome.explains("flex:main")) == ("flex:unfused", True)
        assert "materializes the full scores matrix" in str(outcome.rejections[0].reasons[0])


def test_a_compiled_call_is_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._inductor.config.cpp, "vec_isa_ok", True)  # finding out takes ten seconds
    tried = cell("prefill", "h4x2x64", "causal", "b2q16k16")
    outcome = outcomes(FlexEngine("cpu"), [tried.id])[tried.id, SHORT_QUERY]
    assert isinstance(outcome, Ran)
    assert (outcome.path, outcome.launches) == ("flex:main", 1)


def test_each_cell_is_compiled_for_its_own_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        batches.append(inputs[0].shape[0])
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    for _ in range(2):
        calls = [arguments(cell("decode", "h4x2x64", "causal", shape), "cpu") for shape in ("b2q1k16", "b3q1k16")]
        attends = [compiled(), compiled()]
        for _ in range(2):
            for call, attend in zip(calls, attends, strict=True):
                call.run(attend)
    assert [int(batch) for batch in batches] == [2, 3, 2, 3]
    assert all(type(batch) is int for batch in batches)


def kernel(name: str, x: int, y: int, z: int, role: str = "attention") -> Kernel:
    return Kernel(name, "any", role, 1, grid=(x, y, z))


TEMPLATE, COMBINE = "triton_tem_fused_flex_attention_0", "triton_per_fused_flex_attention_1"
MAKES_MASK = "triton_poi_fused_zeros_1"
UNFUSED = [kernel("nvjet", 1, 1, 1, "matmul"), kernel("softmax_warp_forward", 1, 1, 1, "softmax")]


@pytest.mark.parametrize(
    ("heads", "shape", "kernels", "path"),
    [
        ("h32x8x128", "b2q1024k1024", [kernel(TEMPLATE, 8, 2, 32)], "flex:main"),
        ("h32x8x128", "b8q1k4096", [kernel(TEMPLATE, 1, 64, 4), kernel(COMBINE, 256, 1, 1)], "flex:decode"),
        ("h24x8x128", "b8q1k4096", [kernel(TEMPLATE, 1, 8, 24)], "flex:main"),
        # torch 2.9 has no q blocks in the grid of decode.
        ("h32x8x128", "b8q1k4096", [kernel(TEMPLATE, 64, 4, 1), kernel(COMBINE, 256, 1, 1)], "flex:decode"),
        # One KV head: as many splits as query heads make the grids equal.
        ("h32x1x128", "b8q1k4096", [kernel(TEMPLATE, 1, 8, 32), kernel(COMBINE, 256, 1, 1)], "flex:decode"),
        ("h32x1x128", "b8q1k4096", [kernel(TEMPLATE, 1, 8, 32)], "flex:main"),
        # On an H200, without a mask: what stands before the template combines nothing.
        ("h8x1x128", "b2q1024k1024", [kernel(MAKES_MASK, 1, 1, 1), kernel(TEMPLATE, 8, 2, 8)], "flex:main"),
        ("h32x8x128", "b8q1k4096", UNFUSED, "flex:unfused"),
        # Neither a template nor an unfused attention: nobody knows what that is.
        ("h32x8x128", "b8q1k4096", [kernel("new_attention", 1, 1, 1, "unknown")], None),
    ],
)
def test_the_grid_tells_the_templates_apart(heads: str, shape: str, kernels: list[Kernel], path: str | None) -> None:
    paths: tuple[Path, ...] = FlexEngine("cuda").paths()[SHORT_QUERY]
    tried = cell("decode", heads, "causal", shape)
    outcome = ran(tried, SHORT_QUERY, tuple(kernels), paths, Words({}, {}, {}))
    assert outcome.path == path
    if path in ("flex:main", "flex:decode"):
        assert is_main(tried, kernels) == (path == "flex:main")


@pytest.mark.parametrize(("q_len", "op"), [(127, SHORT_QUERY), (128, "attention")])
def test_the_main_template_is_no_fallback_for_a_long_query(q_len: int, op: str) -> None:
    paths = FlexEngine("cuda").paths()
    assert [path.name for path in paths["attention"]] == ["flex:main", "flex:unfused"]
    assert [path.name for path in paths[SHORT_QUERY]] == ["flex:decode", "flex:main", "flex:unfused"]
    tried = cell("prefill", "h4x2x64", "causal", f"b1q{q_len}k{q_len}")
    spans: list[str] = []

    def span(named: str) -> nullcontext[None]:
        spans.append(named)
        return nullcontext()

    UncompiledEngine("cpu").prepare(tried).run(span)
    assert spans == [op]


def test_a_torch_whose_grids_do_not_tell_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaudit_probes.engines.flex.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"install 2\.9 or later where --python points"):
        FlexEngine("cuda")
    assert FlexEngine("cpu").name == "flex"


def test_what_the_decode_template_misses() -> None:
    assert decode_unmet(cell("decode", "h32x8x128", "causal", "b8q1k4096")) == ()
    (ours,) = decode_unmet(cell("decode", "h24x8x128", "causal", "b8q1k4096"))
    assert ours == Unmet("gqa_ratio", "3", "a power of 2", mirrored=True)
    assert str(ours) == "kaudit: gqa_ratio=3, needs a power of 2"


def test_the_lowering_says_which_template_it_takes() -> None:
    class Lowering(FlexEngine):
        def attend(self) -> Attend:
            def lower(*inputs: object) -> torch.Tensor:  # noqa: ARG001
                logger = logging.getLogger("torch._inductor.kernel.flex.flex_decoding")
                logger.debug("Use flex decoding %s, force_flex_attention=%s", False, False)
                return torch.zeros(1)

            return lower

    tried = cell("decode", "h24x8x128", "causal", "b1q1k16")
    call = Lowering("cpu").prepare(tried)
    call.run(lambda _: nullcontext())
    assert call.claimed() == {SHORT_QUERY: "flex:main"}


def test_a_cell_that_was_compiled_twice_is_explained_by_the_last_time() -> None:
    call = FlexEngine("cuda").prepare if torch.cuda.is_available() else FlexEngine("cpu").prepare
    made = call(cell("decode", "h32x8x128", "causal", "b1q1k16"))
    made._on_gpu, made._said = True, ["flex:decode", "flex:decode"]
    assert made.explain() == {}
    made._said = []  # torch 2.9 logs nothing
    assert made.explain() == {}
    made._said = ["flex:decode", "flex:main"]
    assert [rejection.path for rejection in made.explain()[SHORT_QUERY]] == ["flex:decode"]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ("LoweringException: NotImplementedError: NYI: dims must be at least 16\n  target: flex_attention", Declined),
        ("No valid triton configs. OutOfMemoryError: out of resource: triton_tem", RuntimeError),
    ],
)
def test_a_refusal_is_found_inside_inductors_error(error: str, raised: type[Exception]) -> None:
    class Failing(FlexEngine):
        def attend(self) -> Attend:
            def fail(*inputs: object) -> torch.Tensor:  # noqa: ARG001
                raise RuntimeError(error)

            return fail

    call = Failing("cpu").prepare(cell("decode", "h4x2x64", "causal", "b1q1k16"))
    with pytest.raises((Declined, RuntimeError)) as caught:
        call.run(lambda _: nullcontext())
    assert caught.type is raised
    if raised is Declined:
        assert str(caught.value) == "NYI: dims must be at least 16"


def test_the_shipped_matrix_can_be_expressed() -> None:
    cells = expand(load("flex")).cells
    assert len(cells) >= 40
    assert [one.id for one in cells if FlexEngine("cuda").supports(one)] == []


def test_paged_and_sinks_are_skipped_with_the_reason() -> None:
    engine = FlexEngine("cpu")
    paged = "decode/bf16/kv-bf16/h8x8x64/paged16/causal/none/plain/b2q1k64"
    assert engine.supports(Cell.parse(paged)) == Skipped("flex_attention takes contiguous k and v, not paged16")
    sinks = cell("decode", "h8x8x64", "causal", "b2q1k64", "sinks+softcap")
    assert engine.supports(sinks) == Skipped("flex_attention has no argument for sinks")
    assert engine.supports(cell("decode", "h8x8x64", "causal", "b2q1k64", "softcap")) is None
