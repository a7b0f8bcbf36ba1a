"""YAML files that a user writes, to pydantic models; or all their faults at once, each at its line and column."""

from kaudit.strict_yaml.read import read_model

__all__ = ["read_model"]
