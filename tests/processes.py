"""Processes that tests start and others must end."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie: a container may have nobody who buries orphans."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
