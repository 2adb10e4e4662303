"""The Celery application of a worker: `celery --app toolfleet.workers.app worker`, or `python -m toolfleet.workers`.

Reads settings and tool modules once, when it is imported, and registers one Celery task for each tool.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from celery import Celery

from toolfleet.broker import celery_app, tool_queue
from toolfleet.changing_tools import ChangingTools, changing_in
from toolfleet.errors import InvalidSettings
from toolfleet.interceptors import ToolInterceptor
from toolfleet.metrics.exposition import must_be_served
from toolfleet.settings import Settings, read_settings
from toolfleet.supervision import Supervisor
from toolfleet.tool import Tool
from toolfleet.toolbox import load_tools
from toolfleet.wire import Seal
from toolfleet.workers.celery.announce import AnnounceTools
from toolfleet.workers.celery.cancel_marks import HeedCancelMarks
from toolfleet.workers.celery.follow_tools import FollowTools
from toolfleet.workers.celery.intake import TakeIn, UnknownToolTask
from toolfleet.workers.celery.living_tools import LivingTools
from toolfleet.workers.celery.measured import ServeMetrics
from toolfleet.workers.celery.poll_jobs import PollJobs
from toolfleet.workers.celery.reading_lanes import ReadLanes
from toolfleet.workers.celery.reconnecting import PatientConnection
from toolfleet.workers.celery.stacks import PrintStacks
from toolfleet.workers.celery.stopping import LetCallsEnd, ReadNoMore
from toolfleet.workers.celery.task import tool_task
from toolfleet.workers.celery.task_events import BatchingDispatcher
from toolfleet.workers.pool_presets import PREFORK
from toolfleet.workers.tool.interceptors import interceptors_of

MODULES_VARIABLE: Final = "TOOLFLEET_TOOLS"
"""Comma-separated names of the modules whose tools a worker serves."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a worker's parts find at `app.toolfleet`."""

    settings: Settings
    seal: Seal
    living: LivingTools
    interceptors: tuple[ToolInterceptor, ...] = ()
    supervisor: Supervisor = field(default_factory=Supervisor)

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The tools that there are now, by name. Always the same mapping."""
        return self.living.tools


def worker_app(
    settings: Settings,
    tools: Mapping[str, Tool[..., Any]],
    interceptors: tuple[ToolInterceptor, ...] = (),
    changing: tuple[ChangingTools, ...] = (),
) -> Celery:
    """Return a Celery app that serves these tools, each call through these interceptors first.

    `changing`: those who follow some of the tools.
    """
    _must_be_kept(settings, tools)
    must_be_served(settings)
    # At debug level Celery's pools log the whole message of each call, and so a tool's secrets.
    logging.getLogger("celery.pool").setLevel(logging.INFO)
    app = celery_app(settings)
    app.amqp.Connection = PatientConnection
    living = LivingTools(dict(tools), sources=changing)
    app.toolfleet = Fleet(settings, Seal(settings), living, interceptors)
    app.conf.worker_pool = PREFORK  # for `celery --app … worker`, which would take Celery's own
    app.events.dispatcher_cls = BatchingDispatcher
    for tool in tools.values():
        living.tasks[tool.spec.name] = app.register_task(tool_task(tool))
        app.amqp.queues.add(tool_queue(tool.spec.queue))
    app.register_task(UnknownToolTask())
    app.steps["consumer"].update({AnnounceTools, FollowTools, HeedCancelMarks, LetCallsEnd})
    app.steps["consumer"].update({PollJobs, ReadLanes, ReadNoMore, TakeIn})
    app.steps["worker"].update({PrintStacks, ServeMetrics})
    return app


def _must_be_kept(settings: Settings, tools: Mapping[str, Tool[..., Any]]) -> None:
    """Raise InvalidSettings for tools whose limits nobody would keep."""
    limited = [name for name, tool in tools.items() if tool.spec.limits is not None]
    if settings.broker_url and limited:
        raise InvalidSettings(
            f"{', '.join(limited)}: rate and concurrency are kept by the built-in streams alone: unset "
            "TOOLFLEET_BROKER_URL, or take them out of @tool"
        )


def modules_from_environment() -> list[str]:
    """Return the names in TOOLFLEET_TOOLS."""
    return [name for name in os.environ.get(MODULES_VARIABLE, "").replace(" ", "").split(",") if name]


def __getattr__(name: str) -> Celery:
    """Build the app when Celery's command line asks for it, so that importing this module has no effects."""
    if name not in {"app", "celery"}:
        raise AttributeError(name)
    modules = modules_from_environment()
    settings = read_settings()
    interceptors = interceptors_of(settings.interceptor_names)
    app = worker_app(settings, load_tools(modules) if modules else {}, interceptors, changing_in(modules))
    globals()["app"] = globals()["celery"] = app
    return app
