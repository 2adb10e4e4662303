"""How the shipped tool packs read their settings: `TOOLFLEET_<PACK>_…`, once, when a worker imports the pack.

Knows no pack. What a pack may do is decided here and by its own class of settings, never by a model.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from toolfleet.errors import InvalidSettings

S = TypeVar("S", bound="PackSettings")

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def _listed(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
"""Several words, separated by commas in the environment."""


class PackSettings(BaseSettings):
    """The settings of one pack; a subclass gives the prefix of its variables."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")


def for_pack(name: str) -> SettingsConfigDict:
    """The configuration of a pack's class of settings."""
    return SettingsConfigDict(env_prefix=f"{_PREFIX}{name.upper()}_", frozen=True, extra="ignore")


def read_pack_settings(settings: type[S]) -> S:
    """The settings in the environment. Raises InvalidSettings, which names the variables and never their values."""
    try:
        return settings()
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        problems = (_one_line(prefix, problem) for problem in error.errors())
        raise InvalidSettings(f"{'; '.join(problems)} (a setting of {settings.__module__})") from None


def _one_line(prefix: str, problem: ErrorDetails) -> str:
    variable = f"{prefix}{str(problem['loc'][0]).upper()}" if problem["loc"] else ""
    if problem["type"] == "missing":
        return f"{variable} is required, and not set"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{variable}: {message}" if variable else message


_PREFIX: Final = "TOOLFLEET_"
