from importlib.resources import files

import pytest
import yaml

from kaudit.observation import UNCLASSIFIED
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_probes.families import classify


@pytest.mark.parametrize(
    ("name", "family", "role", "arch"),
    [
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", "fa2", "attention", ""),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", "fa2_splitkv", "attention", ""),
        ("void flash::flash_fwd_splitkv_combine_kernel<x>", "fa2_combine", "merge", ""),
        ("cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<x>>>", "fa3", "attention", "sm90"),
        ("cutlass::device_kernel<flash::FlashAttnFwdCombine<x>>", "fa3_combine", "merge", ""),
        (
            "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0",
            "cudnn_sdpa", "attention", "sm80",
        ),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "cutlass_memeff",
         "attention", ""),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<x>", "flashinfer_fa2", "attention", ""),
        ("void flashinfer::PrefillWithKVCacheKernel<x>", "flashinfer_fa3", "attention", ""),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64", "trtllm_gen", "attention", ""),
        ("triton_tem_fused_flex_attention_0", "flex", "attention", ""),
        ("triton_red_fused_add_rms_norm_0", "inductor", "elementwise", ""),
        ("nvjet_sm90_tst_128x96_64x7_4x1_v_bz_bias_TNT", "gemm", "matmul", "sm90"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>", "unfused_softmax",
         "softmax", ""),
        ("void at::native::index_elementwise_kernel<128, 4, index_copy_kernel_impl<x>>", "index", "index", ""),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", "sort", "sort", ""),
        ("void at::native::elementwise_kernel<set_property>", "elementwise", "elementwise", ""),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "cpu_flash", "attention", ""),
        ("aten::_softmax", "unfused_softmax", "softmax", ""),
        ("aten::view", "view", "none", ""),
        ("split_kv_merge_kernel", "reference_merge", "merge", ""),
        ("cascade_prefix_kernel", "reference_cascade", "attention", ""),
        ("void warp_decode_kernel<Half, Bytes<E4M3>, 128>(char const*)", "reference_warp_decode", "attention", ""),
        ("rope_kv_write_kernel", "reference_rope", "kv_write", ""),
        ("skinny_gemm_kernel", "reference_skinny_gemm", "matmul", ""),
        ("quantise_rows_kernel", "reference_quantise", "quantise", ""),
        ("void silu_mul_kernel<BFloat16, 2>(const uint4 *, uint4 *)", "reference_activation", "activation", ""),
        ("sample_kernel", "reference_sample", "sample", ""),
        ("logits_mask_kernel(float4 const*, unsigned int const*, float4*)", "reference_logits_mask", "mask", ""),
        ("void cudnn::fusion::lean_reduction_kernel<false, false, false>(void*)", "cudnn_combine", "merge", ""),
        ("somebody's new kernel", UNCLASSIFIED, "unknown", ""),
    ],
)  # fmt: skip
def test_names_are_classified(name: str, family: str, role: str, arch: str) -> None:
    found = classify(name)
    assert (found.name, found.role, found.arch) == (family, role, arch)


ROLES = {
    **dict.fromkeys(("rms_norm", "add_rms_norm"), ("norm",)),
    **dict.fromkeys(("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), ("quantise", "matmul")),
    "rope_kv_write": ("kv_write",),
    "attention": ("attention", "merge"),
    "silu_mul": ("activation",),
    "logits_mask": ("mask",),
    "sample": ("sample",),
}
"""What the functions of an op's kernels may do in it."""


@pytest.mark.parametrize(
    ("op", "function"),
    sorted(
        {(op, name) for op, kernels in CATALOGUE.items() for each in kernels for name in each.functions + each.also}
    ),
)
def test_each_function_of_the_reference_engine_has_a_family_whose_role_fits_its_op(op: str, function: str) -> None:
    found = classify(function.strip("^$"))
    assert found.role in ROLES[op], (
        f"{function}: {found.name}, whose role is {found.role}; give it a line in families.yaml"
    )


def test_one_family_has_one_role() -> None:
    entries = yaml.safe_load(files("kaudit_probes").joinpath("families.yaml").read_text())
    roles: dict[str, set[str]] = {}
    for entry in entries:
        roles.setdefault(entry["family"], set()).add(entry["role"])
    assert not {family: found for family, found in roles.items() if len(found) > 1}
