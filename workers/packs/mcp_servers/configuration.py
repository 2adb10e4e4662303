"""Which MCP servers there are, in the file that other MCP clients read too, and how long they may take."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolfleet.errors import InvalidSettings
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, for_pack

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpSettings(PackSettings):
    """Which servers, and how long they may take."""

    model_config = for_pack("mcp")

    config: Path
    """A JSON file of the form {"mcpServers": {name: {"command": …} or {"url": …}}}, as other MCP clients read it."""

    connect_timeout_s: Seconds = 30.0
    """How long a server may take to start, shake hands and list its tools."""

    call_timeout_s: Seconds = 120.0
    """How long one call may take, unless the server's entry has a `timeout_s` of its own."""

    look_again_s: Seconds = 60.0
    """How often a server is listed again that has told of no change: it may be one that does not tell."""


class Server(BaseModel):
    """One entry of the configuration. What other clients write there besides is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Path | None = None

    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)

    disabled: bool = False
    prefix: str | None = None
    """What its tools' names begin with; None: the server's name and an underscore. "" for none."""

    include: tuple[str, ...] = ("*",)
    """Patterns of the names, as the server gives them, that are offered."""

    exclude: tuple[str, ...] = ()
    """Patterns of those that are not."""

    resources: bool | tuple[str, ...] = True
    """Whether there are tools to list and to read its resources, if it has any; or patterns of URIs that may be read
    besides those that it names."""

    follow: bool = True
    """Whether its tools are listed again when they change while the worker runs."""

    queue: str | None = None
    """The queue of its tools: a server that keeps state between calls belongs to one worker with a queue of its own."""

    timeout_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _has_one_transport(self) -> Server:
        if (self.command is None) == (self.url is None):
            raise ValueError('either "command" (stdio) or "url" (Streamable HTTP) is needed')
        return self

    def offers(self, tool: str) -> bool:
        """Whether a tool is to be imported."""
        return any(fnmatchcase(tool, pattern) for pattern in self.include) and not any(
            fnmatchcase(tool, pattern) for pattern in self.exclude
        )


def servers_in(path: Path) -> dict[str, Server]:
    """The servers that a configuration file enables; `${NAME}` stands for a variable. Raises InvalidSettings."""
    try:
        entries = json.loads(path.read_bytes())["mcpServers"]
        servers = {name: Server.model_validate(_filled_in(entry, path)) for name, entry in entries.items()}
    except OSError as error:
        raise InvalidSettings(f"TOOLFLEET_MCP_CONFIG: {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidSettings(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}".replace(": :", ":")
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSettings(f'{path} is not of the form {{"mcpServers": {{name: {{…}}}}}}') from None
    return {name: server for name, server in servers.items() if not server.disabled}


def _filled_in(value: Any, path: Path) -> Any:
    match value:
        case str():
            return VARIABLE.sub(lambda found: _variable(found.group(1), path), value)
        case list():
            return [_filled_in(item, path) for item in value]
        case dict():
            return {key: _filled_in(item, path) for key, item in value.items()}
    return value


def _variable(name: str, path: Path) -> str:
    if name not in os.environ:
        raise InvalidSettings(f"{path} uses ${{{name}}}, and there is no such variable")
    return os.environ[name]
