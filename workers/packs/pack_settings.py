"""How the shipped tool packs read their settings: `TOOLFLEET_<PACK>_…`, once, when a worker imports the pack.

Knows no pack. What a pack may do is decided here and by its own class of settings, never by a model.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
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
        problems = (_one_line(prefix, problem["loc"], problem["msg"]) for problem in error.errors())
        raise InvalidSettings("; ".join(problems)) from None


def _one_line(prefix: str, location: tuple[int | str, ...], message: str) -> str:
    where = f"{prefix}{str(location[0]).upper()}: " if location else ""
    return where + message.removeprefix("Value error, ")


_PREFIX: Final = "TOOLFLEET_"
