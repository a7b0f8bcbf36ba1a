"""The adapter of scaled_dot_product_attention: what it calls, what it sees, whose words it repeats."""

import pytest
import torch
from attention_for_tests import assert_textbook, outcomes

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit.observation import Ran, Rejection, Said, Skipped, is_silent_fallback
from kaudit_probes.engines import Heard
from kaudit_probes.engines.sdpa import SdpaEngine, _built
from kaudit_probes.engines.sdpa_call import EXPANDED_HEADS, EXPLICIT_MASK, OPS, Arguments, calls
from kaudit_probes.engines.sdpa_reasons import PATHS, rejections, turned_down

PATH_NUMBERS = {name: number for number, name in PATHS.items()}
ON_CPU = [PATH_NUMBERS["sdpa:flash"], PATH_NUMBERS["sdpa:math"]]


def cell(phase: str, heads: str, mask: str, shape: str, dtype: str = "fp32") -> Cell:
    features = "speculative_tree" if mask == "tree" else "plain"
    return Cell.parse(f"{phase}/{dtype}/kv-{dtype}/{heads}/contiguous/{mask}/none/{features}/{shape}")


def ran(found: object) -> Ran:
    assert isinstance(found, Ran), found
    return found


def test_paths_stand_in_the_order_in_which_torch_asks_and_the_stamp_has_it() -> None:
    engine = SdpaEngine("cpu")
    paths = engine.paths()
    assert tuple(paths) == OPS
    assert {tuple(path.name for path in listed) for listed in paths.values()} == {("sdpa:flash", "sdpa:math")}
    assert engine.switches()["sdpa.order"] == "sdpa:flash sdpa:math"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert engine.switches()["sdpa.enabled"] == "sdpa:math"


def test_a_back_end_that_was_not_built_is_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As flash in torch's wheels for Windows: there it is not turned down, but missing, and the header shows it."""
    assert _built("sdpa:efficient")
    for there in (True, False):
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda there=there: there)
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda there=there: 91900 if there else None)
        assert _built("sdpa:flash") is _built("sdpa:cudnn") is there


def test_a_causal_prefill_passes_no_mask_and_neither_does_a_decode_of_one_token() -> None:
    prefill = calls(cell("prefill", "h4x4x64", "causal", "b2q8k8"), "cpu")
    assert (prefill["attention"].causal, prefill["attention"].mask) == (True, None)
    for mask in ("causal", "none", "window8"):
        decode = calls(cell("decode", "h4x4x64", mask, "b2q1k8"), "cpu")["attention"]
        assert (decode.causal, decode.mask) == (False, None)
    for mask, shape in (("window4", "b2q1k8"), ("causal", "b2q1k8skew"), ("causal", "b2q2k8"), ("tree", "b2q3k8")):
        assert calls(cell("decode", "h4x4x64", mask, shape), "cpu")["attention"].mask is not None


@pytest.mark.parametrize(
    "tried",
    [
        cell("decode", "h4x4x64", "causal", "b1q2k5"),
        cell("chunked_prefill", "h4x2x64", "causal", "b2q8k9"),
        cell("decode", "h4x1x64", "causal", "b3q1k9skew"),
        cell("decode", "h4x4x128", "custom", "b2q8k16"),
        cell("decode", "h4x2x64x32", "window4", "b2q3k16skew"),
        cell("decode", "h4x2x64", "tree", "b2q7k16"),
        cell("prefill", "h4x2x64", "causal", "b3q12k12skew"),
    ],
    ids=lambda tried: tried.id,
)
def test_each_of_the_equal_calls_is_attention_as_the_cell_says(tried: Cell) -> None:
    made = calls(tried, "cpu")
    for arguments in made.values():
        assert_textbook(tried, arguments.run(), made["attention"].q, made["attention"].k, made["attention"].v)


def test_equal_calls_are_ops_of_their_own_with_their_kernels_and_claims() -> None:
    tried = cell("prefill", "h4x2x64", "causal", "b2q16k16")
    found = outcomes(SdpaEngine("cpu"), [tried.id])
    assert [op for _, op in found] == ["attention", EXPANDED_HEADS, EXPLICIT_MASK]
    for outcome in found.values():
        assert (ran(outcome).path, ran(outcome).claimed) == ("sdpa:flash", "sdpa:flash")


def test_math_is_silent_and_torch_says_why_when_asked() -> None:
    tried = cell("prefill", "h4x4x64x32", "none", "b2q16k16")
    outcome = ran(outcomes(SdpaEngine("cpu"), [tried.id])[tried.id, "attention"])
    assert outcome.path == outcome.claimed == "sdpa:math"
    assert is_silent_fallback(outcome, ("sdpa:flash", "sdpa:math"))
    (rejection,) = outcome.rejections
    (reason,) = rejection.reasons
    assert (rejection.path, rejection.source) == ("sdpa:flash", "asked")
    assert str(reason).startswith("Flash attention requires q,k,v to have the same last dimension.")
    assert "Triggered internally" not in str(reason)


def given(q: torch.Tensor, mask: torch.Tensor | None = None) -> Arguments:
    return Arguments(q, q, q, mask, causal=False, gqa=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            given(torch.zeros(1, 2, 4, 8), torch.zeros(4, 4, requires_grad=True)),
            "kaudit: attn_mask requires grad, needs one that does not",
        ),
        (
            given(torch.zeros(1, 2, 4, 8), torch.ones(2, 4, dtype=torch.bool)),
            "kaudit: attn_mask ends in (2, 4), needs (4, 4)",
        ),
    ],
    ids=["gradient", "shape"],
)
def test_what_torch_turns_down_without_a_word_is_found_out_and_marked_as_ours(
    arguments: Arguments, expected: str
) -> None:
    assert turned_down(arguments, ON_CPU) == (Rejection("sdpa:flash", "asked", (Said(expected),)),)


def test_q_without_a_batch_goes_to_math_and_torch_says_why_when_asked() -> None:
    arguments = given(torch.zeros(2, 4, 8))
    if arguments.choice() != PATH_NUMBERS["sdpa:math"]:
        pytest.skip("torch 2.14 takes it by flash")
    (rejection,) = turned_down(arguments, ON_CPU)
    assert "4 dimensional" in str(rejection.reasons[0])


def test_a_back_end_that_is_switched_off_is_turned_down_for_that() -> None:
    arguments = given(torch.zeros(1, 2, 4, 8))
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        (rejection,) = turned_down(arguments, ON_CPU)
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert rejection.reasons == (Said("kaudit: it is switched off in this process"),)


def test_texts_belong_to_the_back_end_of_the_header_before_them() -> None:
    origin = " (Triggered internally at /pytorch/aten/src/sdp_utils.cpp:123.)"
    found = rejections(
        [
            "Memory efficient kernel not used because:" + origin,
            "For dense inputs, both fused kernels require the same num_heads." + origin,
            "Flash attention kernel not used because:" + origin,
            "Expected query, key and value to all be of dtype: {Half, BFloat16}." + origin,
            "cuDNN attention kernel not used because:" + origin,
            "Expected query, key and value to all be of dtype: {Half, BFloat16}." + origin,
        ]
        * 3,  # as in three runs
        "asked",
    )
    assert {rejection.path: [str(reason)[:12] for reason in rejection.reasons] for rejection in found} == {
        "sdpa:efficient": ["For dense in"],
        "sdpa:flash": ["Expected que"],
        "sdpa:cudnn": ["Expected que"],
    }


def test_what_one_call_says_is_announced_for_it_alone() -> None:
    once = "attention=explicit_mask said: cudnn SDPA does not support key/value sequence length 1."
    heard = Heard((), (once, once, "attention said: torch.foo is deprecated", "anything else"), "")
    found = SdpaEngine("cpu").announced(heard)
    assert found["attention"] == ()
    (rejection,) = found[EXPLICIT_MASK]
    assert (rejection.path, rejection.source) == ("sdpa:cudnn", "announced")
    assert rejection.reasons == (Said("cudnn SDPA does not support key/value sequence length 1."),)


@pytest.mark.parametrize(
    ("tried", "word"),
    [
        ("decode/bf16/kv-bf16/h8x8x64/paged16/causal/none/plain/b2q1k64", "paged16"),
        ("decode/bf16/kv-bf16/h8x8x64/ragged/causal/none/plain/b2q1k64", "ragged"),
        ("decode/bf16/kv-fp8_e4m3/h8x8x64/contiguous/causal/none/plain/b2q1k64", "fp8_e4m3"),
        ("decode/bf16/kv-bf16/h8x8x64/contiguous/causal/neox/plain/b2q1k64", "RoPE"),
        ("decode/bf16/kv-bf16/h8x8x64/contiguous/causal/none/sinks+softcap/b2q1k64", "sinks and softcap"),
        ("decode/bf16/kv-bf16/h8x8x64/contiguous/causal/none/cuda_graph/b2q1k64", "CUDA graphs"),
        ("mixed/bf16/kv-bf16/h8x8x64/contiguous/causal/none/plain/b2q8k64", "mixed"),
    ],
)
def test_what_the_function_cannot_be_told_is_skipped_with_the_reason(tried: str, word: str) -> None:
    match SdpaEngine("cpu").supports(Cell.parse(tried)):
        case Skipped(reason):
            assert word in reason
        case other:
            pytest.fail(str(other))


def test_the_shipped_matrix_can_be_expressed() -> None:
    cells = expand(load("sdpa")).cells
    assert len(cells) >= 540
    assert [one.id for one in cells if SdpaEngine("cpu").supports(one)] == []


@pytest.mark.gpu
def test_what_torch_does_on_a_hopper_gpu() -> None:
    engine = SdpaEngine("cuda")
    order = tuple(path.name for path in engine.paths()["attention"])
    if torch.cuda.get_device_capability() != (9, 0) or order[0] != "sdpa:cudnn":
        pytest.skip("torch prefers cuDNN on Hopper with cuDNN newer than 9.15")
    shared = cell("prefill", "h8x2x64", "causal", "b2q128k128", "fp32")
    masked = cell("prefill", "h8x8x64", "custom", "b2q128k128", "bf16")
    single = cell("prefill", "h8x8x64", "causal", "b2q1k1", "bf16")
    decode = cell("decode", "h8x8x128", "causal", "b8q1k4096", "bf16")
    found = outcomes(engine, [tried.id for tried in (shared, masked, single, decode)], "cuda")
    for tried in (masked, decode):
        assert ran(found[tried.id, "attention"]).path == ran(found[tried.id, "attention"]).claimed == "sdpa:cudnn"
    unfused = ran(found[shared.id, "attention"])
    # Until torch 2.14 the efficient kernel takes no shared heads, and says nothing; expanded by the caller, it does.
    if unfused.path == "sdpa:math":
        assert is_silent_fallback(unfused, order)
        assert {rejection.path for rejection in unfused.rejections} == set(order) - {"sdpa:math"}
        assert all(rejection.reasons and rejection.source == "asked" for rejection in unfused.rejections)
    assert ran(found[shared.id, EXPANDED_HEADS]).path == "sdpa:efficient"
    short = ran(found[single.id, "attention"])
    assert short.path == "sdpa:flash"
    assert "length 1" in str(short.rejections[0].reasons[0])
    # cuDNN serves one query by a kernel that it made for the chip before: a family whose names do state their chip.
    attention = [kernel for kernel in ran(found[decode.id, "attention"]).kernels if kernel.role == "attention"]
    assert [(kernel.family, kernel.arch) for kernel in attention] == [("cudnn_sdpa", "sm80")]
    flash = turned_down(calls(masked, "cuda")["attention"], [PATH_NUMBERS["sdpa:flash"], PATH_NUMBERS["sdpa:cudnn"]])
    assert "attn_mask" in str(flash[0].reasons[0])
