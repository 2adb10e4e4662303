"""What the image has is pinned by version and hash, and fits what the package asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^(\S+?)==(\S+)(?: ; .+?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
IN_THE_IMAGE = ("flower", "serve")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(name):
    text = (ROOT / "deploy" / name).read_text()
    found = {canonicalize_name(name): version for name, version, _ in PINNED.findall(text)}
    entries = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert len(entries) == len(PINNED.findall(text)), "an entry has no hash"
    return found


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        *(("requirements.lock", PROJECT["project"]["optional-dependencies"][extra]) for extra in IN_THE_IMAGE),
        ("build.lock", PROJECT["build-system"]["requires"]),
    ],
)
def test_the_lock_has_what_is_asked_for_in_a_version_that_fits(lock, wanted):
    """After a change of pyproject.toml: `make lock`."""
    found = pinned(lock)
    for requirement in map(Requirement, wanted):
        version = found.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, but {version}: make lock"


def test_nothing_in_the_lock_comes_from_elsewhere():
    for lock in ("requirements.lock", "build.lock"):
        text = (ROOT / "deploy" / lock).read_text()
        assert not re.search(r"https?://|--index|--find-links|file:", text)
