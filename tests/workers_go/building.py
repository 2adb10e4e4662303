"""Builds Go programs for tests: compiler from the package index, modules from Debian's packages of their source.

So no module proxy need be reachable, but apt-get must be there. Each program is built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from filelock import FileLock

REPOSITORY: Final = Path(__file__).parents[2]
BUILT: Final = Path(sys.prefix) / "go"
WITHIN_S: Final = 600

MODULES: Final = {
    "github.com/gomodule/redigo": "golang-github-gomodule-redigo-dev",
    "github.com/xeipuuv/gojsonschema": "golang-github-xeipuuv-gojsonschema-dev",
    "github.com/xeipuuv/gojsonpointer": "golang-github-xeipuuv-gojsonpointer-dev",
    "github.com/xeipuuv/gojsonreference": "golang-github-xeipuuv-gojsonreference-dev",
}
"""The modules that the worker needs, and the package that has the sources of each."""

OURS: Final = {
    "github.com/toolfleet/toolfleet/wire": REPOSITORY / "wire",
    "github.com/toolfleet/toolfleet/workers-go": REPOSITORY / "workers-go",
}


def built(source: Path) -> Path:
    """Return the program that this file of Go is. Raises AssertionError with the compiler's words."""
    BUILT.mkdir(exist_ok=True)
    with FileLock(BUILT / "lock", timeout=WITHIN_S):
        sources = _sources()
        program = BUILT / f"{source.stem}-{_digest(source)}"
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as folder:
                _build(Path(folder), source, sources)
                Path(folder, "program").replace(program)
    return program


def check() -> None:
    """Run our module's own tests, and all of `go vet`. Raises AssertionError with what they say."""
    with FileLock(BUILT / "lock", timeout=WITHIN_S), tempfile.TemporaryDirectory(dir=BUILT) as folder:
        modfile = Path(folder, "go.mod")
        modfile.write_text(_module(_sources(), (REPOSITORY / "workers-go" / "go.mod").read_text().split("// In a")[0]))
        _go("test", "-vet=all", f"-modfile={modfile}", "./...", at=REPOSITORY / "workers-go")


def _build(folder: Path, source: Path, sources: Path) -> None:
    shutil.copy(source, folder / "main.go")
    required = "".join(f"require {module} v0.0.0\n" for module in OURS)
    (folder / "go.mod").write_text(_module(sources, f"module program\n\ngo 1.22\n\n{required}"))
    _go("build", "-o", "program", ".", at=folder)


def _module(sources: Path, begin: str) -> str:
    places = {**{module: sources / module for module in MODULES}, **OURS}
    required = "".join(f"require {module} v0.0.0\n" for module in MODULES if module not in begin)
    return f"{begin}\n{required}" + "".join(f"replace {module} => {place}\n" for module, place in places.items())


def _digest(source: Path) -> str:
    files = [source, Path(__file__)]
    files += [file for place in OURS.values() for file in sorted(place.rglob("*")) if file.is_file()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _sources() -> Path:
    """Return the folder with the modules' sources."""
    folder = BUILT / "sources"
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory(dir=BUILT) as temporary:
        _run(str(REPOSITORY / ".ci" / "debian"), temporary, *MODULES.values(), at=REPOSITORY)
        sources = Path(temporary, "usr", "share", "gocode", "src")
        for module in MODULES:
            # Theirs name what only their own tests need.
            (sources / module / "go.mod").write_text(f"module {module}\n\ngo 1.14\n")
            for test in (sources / module).rglob("*_test.go"):
                test.unlink()
        sources.replace(folder)
    return folder


def _go(*arguments: str, at: Path) -> None:
    # Nothing is asked of the network, and nothing is written into anybody's home.
    own = {"GOPROXY": "off", "GOSUMDB": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    own |= {"GOCACHE": str(BUILT / "cache"), "GOPATH": str(BUILT / "path")}
    _run(str(Path(sys.executable).with_name("go")), *arguments, at=at, environment=own)


def _run(*command: str, at: Path, environment: dict[str, str] | None = None) -> None:
    ended = subprocess.run(
        command,
        cwd=at,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
