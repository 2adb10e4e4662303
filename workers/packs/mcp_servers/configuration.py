"""Which MCP servers there are: the file that other MCP clients read too. Knows no connection and no tool."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolfleet.errors import InvalidSettings

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


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
