"""Which `TOOLFLEET_…` variables there are besides the settings, and which are not meant for us. Pure.

A variable by any other name is most likely misspelt, and what it was to set would silently stay as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolfleet.misspelt import nearest

PREFIX: Final = "TOOLFLEET_"

READ_ELSEWHERE: Final = frozenset(
    {
        # every command that asks a model
        "MODEL",
        "MODEL_SEES",
        "PROVIDER_TOOLS",
        # `python -m toolfleet.workers`, and Celery's own command with `--app toolfleet.workers.app`
        "TOOLS",
        # `toolfleet worker --over`
        "WORKER_KEY",
        # `toolfleet flower` and `toolfleet up`
        "FLOWER_AUTH",
        # docker-compose.yml, whose .env may stand in the environment of any command
        "API_PORT",
        "FLOWER_PORT",
        "REDIS_MAXMEMORY",
        # toolfleet.testing.fates
        "TEST_CLOCK_OFFSET_S",
        "TEST_KILL",
        "TEST_STOP",
    }
)

OF_PACKS: Final = frozenset(
    {
        "CALCULATOR_MAX_CHARS",
        "CALCULATOR_MAX_DIGITS",
        "CALCULATOR_MAX_LIST",
        "CLOCK_TIMEZONE",
        "FILES_MAX_DEPTH",
        "FILES_MAX_ENTRIES",
        "FILES_MAX_FILE_BYTES",
        "FILES_MAX_READ_BYTES",
        "FILES_MAX_SEARCHED_BYTES",
        "FILES_MAX_WRITE_BYTES",
        "FILES_ROOT",
        "FILES_WRITABLE",
        "HTTP_ALLOW",
        "HTTP_MAX_BYTES",
        "HTTP_MAX_CHARS",
        "HTTP_MAX_REDIRECTS",
        "HTTP_TIMEOUT_S",
        "HTTP_WRITING_METHODS",
        "MCP_CALL_TIMEOUT_S",
        "MCP_CONFIG",
        "MCP_CONNECT_TIMEOUT_S",
        "MCP_LOOK_AGAIN_S",
        "SQL_MAX_BYTES",
        "SQL_MAX_ROWS",
        "SQL_TIMEOUT_S",
        "SQL_URL",
        "TRANSLATE_APP_ID",
        "TRANSLATE_KEY",
        "TRANSLATE_MAX_BYTES",
        "TRANSLATE_MAX_TEXT_BYTES",
        "TRANSLATE_TIMEOUT_S",
        "TRANSLATE_URL",
        "WEATHER_BASE_URL",
        "WEATHER_KEY",
        "WEATHER_LANGUAGE",
        "WEATHER_MAX_BYTES",
        "WEATHER_MAX_DAYS",
        "WEATHER_TIMEOUT_S",
    }
)
"""The settings of the shipped tool packs, which are read in workers and not known here in any other way."""

OF_KUBERNETES: Final = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""What every container gets for a Service named toolfleet, toolfleet-redis, …: nobody asked for it."""

PORT_OF_KUBERNETES: Final = re.compile(r"(tcp|udp|sctp)://.+")
"""The value of a Service's TOOLFLEET_REDIS_PORT, whose name alone could be one of a misspelt variable."""


def misspelt(environment: Mapping[str, str], settings: Iterable[str]) -> list[str]:
    """What is to be said of each variable of ours that nobody reads; `settings` names the fields of the settings."""
    legal = READ_ELSEWHERE | OF_PACKS | {name.upper() for name in settings}
    return [
        _complaint(name, legal)
        for name, value in sorted(environment.items())
        # As the settings are read: in small letters, too.
        if name.upper().startswith(PREFIX) and not _is_known(name.upper().removeprefix(PREFIX), value, legal)
    ]


def _is_known(name: str, value: str, legal: frozenset[str]) -> bool:
    if name in legal or OF_KUBERNETES.fullmatch(name):
        return True
    return (name == "PORT" or name.endswith("_PORT")) and PORT_OF_KUBERNETES.fullmatch(value) is not None


def _complaint(variable: str, legal: frozenset[str]) -> str:
    close = nearest(variable.upper().removeprefix(PREFIX), legal)
    hint = f"did you mean {PREFIX}{close[0]}?" if close else f"variables of your own must not begin with {PREFIX}"
    return f"{variable} is no setting: {hint}"
