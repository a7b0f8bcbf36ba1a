"""Hugging Face configs: what a model's config.json says of its attention layers, and what cells cannot say of them."""

from kaudit.hf_config.model import Group, Model
from kaudit.hf_config.read import read_model
from kaudit.hf_config.source import name_of

__all__ = ["Group", "Model", "name_of", "read_model"]
