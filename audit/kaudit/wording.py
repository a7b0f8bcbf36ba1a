"""Words for numbers."""


def count(number: int, thing: str) -> str:
    """`1 cell`, `2 cells`, `0 launches`."""
    return f"{number} {thing}{'' if number == 1 else 'es' if thing.endswith('ch') else 's'}"
