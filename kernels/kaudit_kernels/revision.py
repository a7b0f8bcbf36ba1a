"""Which engine this is: equal revisions are equal sources."""

import hashlib
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parent


def revision() -> str:
    """12 hexadecimal digits of the package's sources, and `.g<commit>` where they are tracked in a git work tree."""
    commit = _commit()
    return sources_digest(PACKAGE) + (f".g{commit}" if commit else "")


def sources_digest(package: Path) -> str:
    """12 hexadecimal digits of the SHA-256 over .py, .cu and .cuh files below a folder, and their relative paths."""
    digest = hashlib.sha256()
    sources = (path for path in package.rglob("*") if path.suffix in (".py", ".cu", ".cuh"))
    for name, path in sorted((path.relative_to(package).as_posix(), path) for path in sources):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _commit() -> str:
    """The commit checked out around the package; empty without git, a work tree, or where it tracks other files."""
    if not _git("ls-files", "--error-unmatch", Path(__file__).name):
        return ""
    return _git("rev-parse", "--short=12", "HEAD")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(("git", "-C", str(PACKAGE), *arguments), capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
