"""The figures of the reference engine's model, stated once more beside its own, so that a slip there does not pass."""

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.draws import Sampling
from kaudit_probes.oracle import lineage
from kaudit_probes.rotation import Frequencies

EPSILON = 1e-6  # Llama's
SOFTCAP = 50.0  # Gemma 2's, of attention
MODELS = {
    "none": Frequencies(1e4),
    "linear": Frequencies(1e4, 4),
    "llama3": Frequencies(1e4, 8, 1, 4, 8192),  # Llama 3.1's config.json, but for its base
    "yarn": Frequencies(1e4, 32, 1, 32, 4096),  # YaRN's paper
}
TEMPERATURE, TOP_K, TOP_P = 0.8, 50, 0.9
LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0}


def sampling(cell: Cell) -> Sampling | None:
    """How a token is drawn; None: it is the likeliest."""
    if "top_k" not in cell.features and "top_p" not in cell.features:
        return None
    top_k = TOP_K if "top_k" in cell.features else 0
    return Sampling(TEMPERATURE, top_k, TOP_P if "top_p" in cell.features else 1.0)


def positions(cell: Cell) -> Tensor:
    """[tokens]: where each new token stands; a token of a tree stands behind its prefix and its ancestors."""
    each = [
        cell.rope.offset + kv_len - q_len + (len(lineage(token)) - 1 if cell.mask.kind == "tree" else token)
        for q_len, kv_len in zip(q_lens(cell), kv_lens(cell), strict=True)
        for token in range(q_len)
    ]
    return torch.tensor(each)
