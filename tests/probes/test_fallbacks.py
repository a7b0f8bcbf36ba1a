import pytest

from kaudit.observation import Kernel, Ran, Rejection, Said, Unmet
from kaudit_probes.fallbacks import Fallback, fallbacks
from kaudit_probes.families import classify

CUDNN_OF_AMPERE = "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64_4x1x1_kernel0_0"
MEMORY_EFFICIENT = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...>::Params)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, false>(float*)"
PRODUCT = "nvjet_tst_128x64_64x8_2x1_v_bz_TNT"
PATHS = ("fast", "middle", "slow")


def kernels(*names: str) -> tuple[Kernel, ...]:
    found = [(name, classify(name)) for name in names]
    return tuple(Kernel(name, family.name, family.role, 1, family.arch) for name, family in found)


@pytest.mark.parametrize(
    ("names", "signs"),
    [
        ([MEMORY_EFFICIENT], []),
        ([CUDNN_OF_AMPERE], ["made for a chip before sm_90: cudnn_generated"]),
        ([PRODUCT, SOFTMAX], ["unfused attention: softmax_warp_forward beside nvjet_tst"]),
        ([SOFTMAX], []),  # a sampler's
        ([PRODUCT], []),
        (["my_attention"], ["unclassified, so it cannot be judged without paths=: my_attention"]),
        (["## Call CompiledFxGraph f7 ##"], ["compiled as one piece"]),
        ([], ["no kernel ran on the GPU"]),
    ],
)
def test_without_paths_signs_tell_a_fallback(names: list[str], signs: list[str]) -> None:
    found = [fallback.why for fallback in fallbacks(Ran(None, kernels(*names)), (), "sm_90")]
    assert len(found) == len(signs)
    assert all(why.startswith(sign) for why, sign in zip(found, signs, strict=True))


def test_a_kernel_of_the_gpus_own_generation_is_no_older_one() -> None:
    assert not fallbacks(Ran(None, kernels(CUDNN_OF_AMPERE)), (), "sm_89")


def test_with_paths_each_faster_one_is_a_fallback_with_its_own_announced_reasons() -> None:
    rejections = (
        Rejection("fast", "announced", (Unmet("page_size", "8", "a multiple of 16"), Said("and so"))),
        Rejection("middle", "asked", (Said("nobody asked the engine in a test"),)),
    )
    assert fallbacks(Ran("slow", kernels("k"), rejections=rejections), PATHS, "") == (
        Fallback("slow ran, not fast", ("page_size=8, needs a multiple of 16; and so",)),
        Fallback("slow ran, not middle"),
    )


@pytest.mark.parametrize(("path", "lost"), [("fast", 0), ("middle", 1), (None, 3)])
def test_with_paths_only_their_order_counts(path: str | None, lost: int) -> None:
    assert len(fallbacks(Ran(path, kernels(PRODUCT, SOFTMAX, "own")), PATHS, "sm_90")) == lost


def test_no_kernel_is_no_path() -> None:
    assert fallbacks(Ran(None, ()), PATHS, "") == (Fallback("no kernel ran on the CPU"),)
