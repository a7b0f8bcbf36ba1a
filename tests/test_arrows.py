"""Who may import whom. The audit side must run without torch; the engine must know nothing of its auditor."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    "kaudit": ROOT / "audit/kaudit",
    "kaudit_probes": ROOT / "probes/kaudit_probes",
    "kaudit_kernels": ROOT / "kernels/kaudit_kernels",
    "kaudit_matrices": ROOT / "matrices/kaudit_matrices",
}
OURS = set(SOURCES)


def imports(path: Path) -> set[str]:
    """Top-level packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                found |= {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.split(".")[0])
    return found


def imported_by(package: str) -> dict[str, set[str]]:
    return {str(path.relative_to(ROOT)): imports(path) for path in SOURCES[package].rglob("*.py")}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [("kaudit", set()), ("kaudit_kernels", set()), ("kaudit_matrices", set()), ("kaudit_probes", {"kaudit"})],
)
def test_packages_import_only_what_the_design_allows(package: str, allowed: set[str]) -> None:
    exempt = {"probes/kaudit_probes/engines/reference.py": {"kaudit_kernels"}}
    wrong = {
        path: found & (OURS - {package} - allowed - exempt.get(path, set()))
        for path, found in imported_by(package).items()
        if found & (OURS - {package} - allowed - exempt.get(path, set()))
    }
    assert not wrong


def test_the_audit_side_never_imports_torch() -> None:
    assert not [path for path, found in imported_by("kaudit").items() if found & {"torch", "triton", "pynvml"}]


def test_listing_the_engines_imports_none_of_them() -> None:
    code = "import sys, kaudit_probes.engines; print(sorted({'torch', 'triton', 'kaudit_kernels'} & set(sys.modules)))"
    listed = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.strip() == "[]"


def test_no_file_is_longer_than_300_lines() -> None:
    paths = [path for root in (*SOURCES.values(), ROOT / "tests") for path in root.rglob("*.py")]
    assert not {str(path): length for path in paths if (length := len(path.read_text().splitlines())) > 300}
