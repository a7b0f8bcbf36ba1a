"""Reading small text files that a user names."""

from pathlib import Path

from kaudit.files import reading

MOST_BYTES = 1 << 20
"""Such a file has some KB; a device or a checkpoint named by mistake shall not be read whole."""


def read_text(path: Path) -> str:
    """Raises ValueError, one line with the path, where it is no UTF-8 text of at most MOST_BYTES."""
    try:
        with reading(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"{path}: larger than {MOST_BYTES >> 20} MiB; name another file")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name another file") from None
