"""`GET /v1/models`: the models that can be asked here, in OpenAI's format."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through

router = APIRouter(prefix="/v1/models", tags=["openai"])


class Model(BaseModel):
    """One model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "toolfleet"


class ModelList(BaseModel):
    """Every model."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("")
async def list_models(_grant: Reader, door: Through) -> ModelList:
    """List the model of this server."""
    return ModelList(data=[Model(id=door.model)] if door.model else [])


@router.get("/{model:path}")
async def show(model: str, _grant: Reader, door: Through) -> Model:
    """Show one model."""
    must_be_asked_here(door, model)
    return Model(id=model)


def must_be_asked_here(door: Door, model: str) -> None:
    """Raise Problem for a model that this server does not have."""
    if not door.model or model != door.model:
        here = f"this server has {door.model}" if door.model else "this server has none"
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no model {model!r}: {here}", code="model-not-found")
