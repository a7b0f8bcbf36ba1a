"""Equal revisions are equal sources."""

import subprocess
from pathlib import Path

import pytest

from kaudit_kernels import revision


def test_digest_follows_contents_and_names_of_sources_alone(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "cuda" / "b.cu").write_text("y")
    before = revision.sources_digest(tmp_path)
    assert len(before) == 12
    (tmp_path / "notes.md").write_text("not a source")
    assert revision.sources_digest(tmp_path) == before
    (tmp_path / "cuda" / "b.cu").write_text("z")
    changed = revision.sources_digest(tmp_path)
    (tmp_path / "cuda" / "b.cu").rename(tmp_path / "c.cu")
    assert len({before, changed, revision.sources_digest(tmp_path)}) == 3


def test_commit_is_named_where_git_tracks_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "PACKAGE", tmp_path)
    (tmp_path / "revision.py").write_text("")
    digest = revision.sources_digest(tmp_path)
    assert revision.revision() == digest
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run((*git, "init", "--quiet"), check=True)
    assert revision.revision() == digest
    subprocess.run((*git, "add", "revision.py"), check=True)
    subprocess.run((*git, "commit", "--quiet", "-m", "t"), check=True)
    found, _, commit = revision.revision().partition(".g")
    assert found == digest
    assert len(commit) == 12


def test_no_git_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ".g" not in revision.revision()
