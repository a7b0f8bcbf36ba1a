"""Faults that users met in the field, B45 to B75 of the reports: each planted where an engine here can express it, and
caught; or its cell run, and right. Through the reference engine, or torch's own attention."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from numerics_for_tests import checked
from planted_faults import NARROW, PLAIN, Fault, Launch, a_row_left, of_cache, of_problem, planted
from test_numerics_features import launched
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kaudit.cell import Cell, Mask
from kaudit.diff import changes
from kaudit.observation import Crashed, Kernel, Ran, Row
from kaudit.table import Device, Header, Stamp, Table
from kaudit_kernels import masks
from kaudit_kernels.admission import Inadmissible
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.masks import Masks
from kaudit_kernels.rope import angles
from kaudit_probes.capture import Capture
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.engines.sdpa import SdpaEngine
from kaudit_probes.numerics import Checked, Computed, compare
from kaudit_probes.observe import Observer
from kaudit_probes.oracle import Attention, Request, Rules

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CHUNK = "chunked_prefill/bf16/kv-bf16/h4x2x64/paged16/window32/neox/plain/b2q16k100"


def caught(monkeypatch: pytest.MonkeyPatch, cell: str, plant: Callable[..., Tensor], verdict: str = "wrong") -> Checked:
    planted(monkeypatch, Fault(cell, plant, verdict, ""))
    found = checked(cell)["attention"]
    assert found.verdict == verdict
    return found


def right(cell: str, device: str = "cpu", engine: Any = ReferenceEngine) -> None:
    assert {one.verdict for one in checked(cell, device, engine).values()} == {"ok"}


@pytest.mark.parametrize(("window", "said"), [(33, "the window were one key wider"), (65, "")])
def test_b45_a_window_of_one_more_key_or_of_twice_as_many(
    monkeypatch: pytest.MonkeyPatch, window: int, said: str
) -> None:
    hint = caught(monkeypatch, CHUNK, of_problem(window=window)).numbers.hint
    assert hint == (f"as if {said}" if said else "")


def test_b46_a_window_without_the_query_s_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def before(mask: Any, window: int, q_len: int, kv_len: int, seed: int) -> Tensor:
        return visible(mask, window, q_len, kv_len, seed).roll(-1, 1)

    visible = masks.visible
    monkeypatch.setattr(masks, "visible", before)
    assert checked(CHUNK)["attention"].numbers.hint == "as if a query did not see its own key"


def test_b47_a_fallback_that_drops_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(monkeypatch, CHUNK, of_problem(mask="causal", window=0)).ignored == "window"


@pytest.mark.parametrize("features", ["plain", "stale_branch"])
def test_b49_a_page_too_many_where_the_last_one_is_full(monkeypatch: pytest.MonkeyPatch, features: str) -> None:
    """It is another request's, or that of a dropped branch: then it has its name."""

    def sixteen_more(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        cache, problem = inputs.cache, replace(inputs.problem, kv_len=inputs.problem.kv_len + 16)
        # Behind the last page of a table stands what the table names next, or the next request's first.
        seventh = torch.cat((cache.page_table, cache.page_table.roll(-1, 0)), 1)[:, 6]
        rows = tuple(
            torch.cat((own, page * 16 + torch.arange(16))) for own, page in zip(cache.rows, seventh, strict=True)
        )
        longer = replace(cache, rows=rows, kv_lens=cache.kv_lens + 16)
        return launch(q, replace(inputs, cache=longer, problem=problem, masks=Masks(problem, "cpu", 0)))

    found = caught(monkeypatch, PLAIN.replace("plain", features).replace("k100", "k96"), sixteen_more)
    if features == "stale_branch":
        assert found.numbers.hint == "as if the request went on, with the stale keys up to the end of a page"


@pytest.mark.parametrize("page", [1, 8, 16, 64, 128, 256, 512])
def test_b50_every_page_size_is_right(page: int) -> None:
    right(PLAIN.replace("paged16", f"paged{page}").replace("k100", f"k{page + 1}"))


def test_b50_a_last_page_that_holds_more_than_a_page_is_refused() -> None:
    with pytest.raises(Inadmissible, match="last_page_len=17, needs at most page_size=16"):
        checked(PLAIN.replace("plain", "bad_last_page"))


def test_b51_one_row_of_one_head(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        out = launch(q, inputs)
        out[11, 2, 5] += 0.8
        return out

    cell = "decode/bf16/kv-fp8_e4m3/h8x4x64/paged16/window64/neox/plain/b2q8k200"
    numbers = caught(monkeypatch, cell, off).numbers
    assert (numbers.row, numbers.head) == (11, 2)
    assert (numbers.cosine or 0) > 0.99


def test_b53_one_head_dim_that_is_wrong_among_others_that_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        return launch(q if inputs.problem.head_dim != 256 else 2**0.5 * q, inputs)

    planted(monkeypatch, Fault(PLAIN, off, "wrong", ""))
    verdicts = {dim: checked(PLAIN.replace("x64", f"x{dim}"))["attention"].verdict for dim in (64, 128, 256)}
    assert verdicts == {64: "ok", 128: "ok", 256: "wrong"}


@pytest.mark.parametrize("ratio", [1, 2, 3, 5, 6, 7, 8, 12, 16, 24, 32, 48])
def test_b54_every_ratio_of_heads_is_served_and_right(ratio: int) -> None:
    right(PLAIN.replace("h4x2x64", f"h{ratio}x1x16"))


def test_b54_a_ratio_that_divides_by_zero_costs_its_own_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def dividing(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        return launch(q / (1 // (inputs.problem.group % 3)), inputs)

    planted(monkeypatch, Fault(PLAIN, dividing, "", ""))
    cells = [Cell.parse(PLAIN.replace("h4x2x64", f"h{ratio}x1x16")) for ratio in (3, 1)]
    seen = Observer(ReferenceEngine("cpu"), Capture("cpu"), lambda _: None).observe(cells)
    outcomes = {row.cell: row.outcome for row in seen.rows}
    assert isinstance(outcomes[cells[0].id], Crashed)
    assert isinstance(outcomes[cells[1].id], Ran)


@pytest.mark.parametrize(("heads", "why"), [("h33x2x64", "33"), ("h3x2x64", "3")])
def test_b55_heads_that_do_not_divide_are_refused(heads: str, why: str) -> None:
    with pytest.raises(Inadmissible, match=f"^kv_heads=2, needs a divisor of q_heads={why}$"):
        checked(PLAIN.replace("h4x2x64", heads))


def test_b55_a_kernel_that_maps_heads_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def modulo(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        order = torch.tensor([0, 2, 1, 3])  # KV head h serves queries h and h + 2
        return launch(q[:, order], inputs)[:, order]

    hint = caught(monkeypatch, PLAIN, modulo).numbers.hint
    assert hint == "as if query head h were served by KV head h modulo their number"


def test_b57_a_row_that_a_split_leaves_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = caught(monkeypatch, PLAIN, a_row_left, "unwritten").numbers
    assert (numbers.row, numbers.unwritten) == (1, 1)


def test_b58_rows_and_heads_that_change_places_in_a_contiguous_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed_up(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        out = launch(q, inputs)
        return out.transpose(0, 1).contiguous().view(out.shape)

    assert caught(monkeypatch, PLAIN.replace("paged16", "contiguous"), mixed_up).numbers.hint == ""


@pytest.mark.gpu
def test_b59_offsets_beyond_two_to_the_31() -> None:
    """K and V of 2^31 elements each: 4 GiB, and 16 more of each in the textbook."""
    right("decode/bf16/kv-bf16/h64x64x128/paged16/causal/neox/plain/b1q1k262160", "cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("phase", ["decode/{}/b3q1k112", "mixed/{}/b4q17k129skew"])
@pytest.mark.parametrize("feature", ["idle", "vacant"])
def test_b61_a_request_without_tokens_beside_others(feature: str, phase: str, device: str) -> None:
    middle = f"bf16/kv-bf16/h8x2x64/paged16/causal/neox/{feature}"
    right(phase.format(middle), device)


def test_b61_a_query_that_sees_nothing_comes_to_nothing() -> None:
    q, k = torch.randn(2, 4, 8), torch.randn(5, 2, 8)
    blind = Request(q, k, k, torch.zeros(2, 5, dtype=torch.bool))
    out, lse = Attention(lambda: [blind], Rules(Mask("custom"), 8**-0.5)).compute()
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mask", ["custom", "causal", "none"])
@pytest.mark.parametrize("tokens", [33, 65, 129, 34])
def test_b62_broadcast_kv_behind_a_mask_and_one_key_past_a_tile(tokens: int, mask: str, device: str) -> None:
    cell = f"prefill/bf16/kv-bf16/h8x2x64/contiguous/{mask}/none/broadcast/b2q{tokens}k{tokens}skew"
    right(cell, device, SdpaEngine)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
def test_b63_what_torch_takes_by_itself_is_right_with_few_kv_heads(kv_heads: int, device: str) -> None:
    cell = f"{{}}/bf16/kv-bf16/h8x{kv_heads}x128/contiguous/causal/none/plain/{{}}"
    for phase, shape in (("prefill", "b2q128k128"), ("decode", "b4q1k300"), ("decode", "b1q1k300")):
        right(cell.format(phase, shape), device, SdpaEngine)


def test_b65_a_log_sum_exp_of_the_first_head_of_a_group_alone() -> None:
    q, k = torch.randn(1, 8, 16), torch.randn(9, 2, 16)
    asked = Attention(lambda: [Request(q, k, k)], Rules(Mask("causal"), 0.25))
    out, lse = asked.compute()
    lse[:, [1, 2, 3, 5, 6, 7]] = 0
    found = compare(Computed("attention", out.float(), asked, lse.float()))
    assert (found.verdict, found.numbers.hint) == ("wrong", "the output is right, its log-sum-exp is not")


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_b66_each_backend_is_judged_by_its_own_values(backend: SDPBackend) -> None:
    with sdpa_kernel(backend):
        right("prefill/bf16/kv-bf16/h8x8x64/contiguous/causal/none/plain/b2q23k23", engine=SdpaEngine)


@pytest.mark.parametrize("kv_dtype", ["fp8_e4m3", "fp8_e5m2", "int8"])
def test_b67_scales_that_are_loaded_and_not_used(monkeypatch: pytest.MonkeyPatch, kv_dtype: str) -> None:
    def ones(cache: Any) -> dict[str, Any]:
        return {"k_scale": torch.ones_like(cache.k_scale), "v_scale": torch.ones_like(cache.v_scale)}

    cell = NARROW.replace("fp8_e4m3", kv_dtype)
    assert caught(monkeypatch, cell, of_cache(ones)).ignored == "scales of K and V"


def of_angles(monkeypatch: pytest.MonkeyPatch, cell: str, positions: Callable[[Tensor], Tensor]) -> Checked:
    """Rotation by the angles of other positions: those of the cell are 0, 1, 2… from its offset."""
    asked = Cell.parse(cell)

    def others(qkv: Tensor, inputs: Inputs) -> tuple[Any, ...]:
        first = asked.rope.offset + asked.shape.kv_len - asked.shape.q_len
        each = positions(first + torch.arange(asked.shape.q_len)).repeat(asked.shape.batch)
        cosines, sines = angles(each, asked.heads.dim, "none")
        return qkv, replace(inputs, cosines=cosines, sines=sines)

    assert checked(cell)["rope_kv_write"].verdict == "ok"
    launched(monkeypatch, "rope_kv_write", others)
    return checked(cell)["rope_kv_write"]


@pytest.mark.parametrize(("offset", "verdict"), [(4094 - 8, "ok"), (4096 - 8, "wrong"), (40959, "wrong")])
def test_b69_positions_at_the_end_of_a_table_of_angles(
    monkeypatch: pytest.MonkeyPatch, offset: int, verdict: str
) -> None:
    """A table of 4096 that is read at its last row beyond it."""
    cell = f"chunked_prefill/bf16/kv-bf16/h4x2x64/paged16/causal/neox@{offset}/plain/b2q2k10"
    assert of_angles(monkeypatch, cell, lambda positions: positions.clamp(max=4095)).verdict == verdict


def test_b70_positions_that_are_not_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branches of a tree stand side by side; a kernel that counts tokens puts them behind one another."""
    cell = "decode/bf16/kv-bf16/h4x2x64/paged16/tree/neox/speculative_tree/b2q7k40"
    assert of_angles(monkeypatch, cell, lambda positions: positions).verdict == "wrong"


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 40), (2, 5), (39, 40)])
def test_b71_torch_s_is_causal_where_queries_are_fewer(q_len: int, kv_len: int) -> None:
    """It is aligned top-left, a cell bottom-right: an adapter that passed it on would be told."""
    cell = Cell.parse(f"decode/fp32/kv-fp32/h4x2x64/contiguous/causal/none/plain/b1q{q_len}k{kv_len}")
    call = SdpaEngine("cpu").prepare(cell)
    call._calls = {"attention": replace(call._calls["attention"], mask=None, causal=True)}
    (computed,) = call.numbers()
    found = compare(computed)
    assert found.verdict == "wrong"
    assert found.numbers.hint == "as if the mask were aligned top-left"


@pytest.mark.parametrize("device", DEVICES)
def test_b73_a_mixed_batch_under_a_graph_mode(device: str) -> None:
    for cell in ("mixed/{}/b4q17k129skew", "decode/{}/b3q1k100", "decode/{}/b65q1k17"):
        right(cell.format("bf16/kv-bf16/h4x2x64/paged16/causal/neox/cuda_graph"), device)


def test_b74_a_fused_kernel_that_is_gained_and_wrong_is_both() -> None:
    device = Device("cpu", "AVX2", 0, "none")
    header = Header(1, "0", Stamp("e", "r", device, {}, {}, "m", "d"), {"attention": ("fused", "eager")}, numerics=True)
    before, after = (
        Table.of(header, [Row(PLAIN, "attention", Ran(path, (Kernel(path, path, "attention", 1),), numerics=numerics))])
        for path, numerics in (("eager", "ok"), ("fused", "wrong"))
    )
    assert [change.kind for change in changes(before, after)] == ["wrong_result", "improved"]


def test_b74_k_in_another_order_is_right_and_k_taken_for_another_order_is_not() -> None:
    cell = "prefill/bf16/kv-bf16/h8x8x64/contiguous/causal/none/transposed/b2q64k64"
    right(cell, engine=SdpaEngine)
    call = SdpaEngine("cpu").prepare(Cell.parse(cell))
    own = call._calls["attention"]
    asked = call.numbers()[0].textbook
    confused = replace(own, k=own.k.transpose(2, 3).contiguous())  # 64 tokens of 64: the shape fits all the same
    call._calls = {"attention": confused}
    assert compare(replace(call.numbers()[0], textbook=asked)).verdict == "wrong"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_b75_other_numbers_of_queries_than_of_keys_behind_a_mask(dtype: str, device: str) -> None:
    right(f"chunked_prefill/{dtype}/kv-{dtype}/h4x4x128/contiguous/custom/none/plain/b2q8k16", device, SdpaEngine)
