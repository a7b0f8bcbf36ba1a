"""How many heads of which size."""

from kaudit.cell import Heads
from kaudit.hf_config.facts import HEAD_DIM
from kaudit.hf_config.source import Config, count, kind, whole

_Q = ("num_attention_heads", "n_head", "n_heads")
_KV = ("num_key_value_heads", "num_attention_groups", "num_kv_heads", "kv_n_heads", "n_head_kv")
_WIDTH = ("hidden_size", "n_embd", "d_model")
_DIM = ("head_dim", "attention_head_dim", "kv_channels")


def heads_of(config: Config) -> Heads:
    """Raises ValueError, one line, where the config does not say. With latent attention (MLA), its expanded form."""
    q = count(config, *_Q)
    kv = _kv_heads(config, q)
    if q % kv:
        raise ValueError(f"{kv} KV heads do not divide {q} query heads")
    nope, rotated = whole(config, "qk_nope_head_dim"), whole(config, "qk_rope_head_dim")
    if nope and rotated:
        return Heads(q, kv, nope + rotated, _latent_v_dim(config, q))
    dim = _head_dim(config, q)
    # DeepSeek's configs for attention without latents say 0.
    v_dim = dim if config.get("v_head_dim") in (None, 0) else count(config, "v_head_dim")
    return Heads(q, kv, dim, v_dim)


def absorbed(config: Config) -> Heads | None:
    """The heads over the latent itself, as MLA decodes: one KV head of latent and rotated part, V the latent alone."""
    rank, rotated = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
    if rank is None or rotated is None or config.get("use_mla") is False:
        return None
    return Heads(count(config, *_Q), 1, rank + rotated, rank)


def _kv_heads(config: Config, q: int) -> int:
    """Left out, the heads are as many as the queries'. A null is no absence: models whose layers differ have it."""
    if config.get("multi_query_attention") is True:
        return count(config, "multi_query_group_num")
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    name = next((name for name in _KV if name in config), None)
    if name is None:
        return q if config.get("multi_query_attention") is False else whole(config, "multi_query_group_num") or q
    # Phi's own code has null for "as many as queries".
    return q if name == "n_head_kv" and config[name] is None else count(config, name)


def _head_dim(config: Config, q: int) -> int:
    name = next((name for name in _DIM if config.get(name) is not None), None)
    if name is not None:
        return count(config, name)
    default = HEAD_DIM.get(kind(config))
    return default if default is not None else _share(config, q)


def _share(config: Config, q: int) -> int:
    width = count(config, *_WIDTH)
    if width % q:
        raise ValueError(f"no head_dim, and hidden_size={width} is not a multiple of {q} heads")
    return width // q


def _latent_v_dim(config: Config, q: int) -> int:
    if kind(config) == "minicpm3" and config.get("v_head_dim") is None:
        return _share(config, q)
    return count(config, "v_head_dim")


def default_dim_note(config: Config) -> str | None:
    """Says so where the head dim is the class's, not the file's."""
    if any(config.get(name) is not None for name in _DIM) or whole(config, "qk_nope_head_dim"):
        return None
    dim = HEAD_DIM.get(kind(config))
    return f"head_dim is not in the file: {dim}, {kind(config)}'s default" if dim else None
