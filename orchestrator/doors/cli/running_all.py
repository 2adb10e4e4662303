"""Everything that `toolfleet up` runs: started in order, told about, kept alive, stopped in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

from rich.console import Console

from toolfleet.connections import address
from toolfleet.local.fleet import SHARED_GRACE_MARGIN_S, LocalFleet, where_processes_join
from toolfleet.local.local_key import LocalKey
from toolfleet.local.supervisor import Supervisor
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.orchestrator.doors.cli.choosing_model import rehearsal_note
from toolfleet.orchestrator.doors.cli.reloading import Reloader, watching
from toolfleet.orchestrator.doors.cli.running_api import RunningApi, api_port_at, running_api
from toolfleet.orchestrator.doors.cli.running_fleet import FleetLock, FleetRecord
from toolfleet.orchestrator.doors.cli.running_flower import RunningFlower, door_at, flower_is_installed, running_flower
from toolfleet.orchestrator.doors.cli.running_orchestrators import POOL, RunningOrchestrators, running_orchestrators
from toolfleet.orchestrator.models.environment import MODEL_VARIABLE
from toolfleet.orchestrator.models.rehearsal import REHEARSAL_MODEL
from toolfleet.settings import Settings
from toolfleet.terminal import harmless

LOOK_EVERY_S: Final = 0.5


DEFAULT_NAMESPACE: Final = Settings.model_fields["namespace"].default


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run. `model` is what the orchestrators call theirs, `named_model` what was asked for."""

    tools: tuple[str, ...]
    pools: Mapping[str, int]
    orchestrators: int
    model: str
    named_model: str | None
    flower_port: int | None
    api_port: int | None
    reloads: bool
    are_examples: bool = False

    def serving(self, otherwise: tuple[str, ...]) -> Self:
        """Return the same plan with tools to serve: those of the plan, if it has any."""
        return self if self.tools else replace(self, tools=otherwise, are_examples=True)

    @property
    def record(self) -> dict[str, object]:
        """Return what others may know of the plan."""
        return {"tools": self.tools, "pools": dict(self.pools)}


def run_all(plan: Plan, settings: Settings, console: Console, lock: FleetLock) -> None:
    """Run a plan until Ctrl-C. Raises PortInUse, and WorkerNotReady for what cannot be kept alive."""
    lock.write(FleetRecord.of_this_process(settings, **plan.record))
    door = None
    if plan.flower_port is not None and flower_is_installed():
        door = door_at("127.0.0.1", plan.flower_port, remedy="choose another --flower-port (0 takes a free one)")
    api_port = None if plan.api_port is None else api_port_at(plan.api_port)
    environment = _environment(plan)
    with ExitStack() as stack:
        # Before the workers import what is watched: no save between the two is missed.
        changed = stack.enter_context(watching(plan.tools)) if plan.reloads else None
        flower = stack.enter_context(running_flower(door, settings)) if door else None
        fleet = _fleet(plan, settings, environment, events=flower is not None)
        with console.status("starting workers …"):
            running = stack.enter_context(running_orchestrators(plan.orchestrators, settings, environment))
            stack.enter_context(fleet)
            # Started with the workers, stopped before them: what an orchestrator is at needs workers to end.
            stack.callback(running.stop)
            api = None
            if api_port is not None:
                api = stack.enter_context(running_api(api_port, settings, environment))
            running.wait_until_ready()
            unserved = fleet.serve_own_queues()
            if api:
                api.wait_until_it_listens()
            if flower:
                flower.wait_until_it_listens()
        addresses = {"api": api.url if api else "", "flower": f"http://{door.address}:{door.port}" if door else ""}
        lock.write(FleetRecord.of_this_process(settings, **plan.record, **addresses))
        _describe(plan, fleet, running, flower, console)
        _describe_api(plan, api, console)
        _describe_unserved(unserved, console)
        _invite(plan, settings, console)
        supervisors = [Supervisor(fleet), Supervisor(running), *([Supervisor(api)] if api else [])]
        _keep(fleet, supervisors, console, changed=changed, flower=flower)


def run_workers(plan: Plan, settings: Settings, console: Console, *, events: bool) -> None:
    """Run only the plan's workers until Ctrl-C, in a fleet whose other parts run elsewhere."""
    with ExitStack() as stack:
        changed = stack.enter_context(watching(plan.tools)) if plan.reloads else None
        fleet = _fleet(plan, settings, _environment(plan), events=events)
        with console.status("starting workers …"):
            stack.enter_context(fleet)
            fleet.serve_own_queues()
        for worker in fleet.workers:
            console.print(_line(worker))
        console.print("\nReady: joined. Ctrl-C stops these workers; the fleet goes on.")
        _keep(fleet, [Supervisor(fleet)], console, changed=changed)


def _environment(plan: Plan) -> dict[str, str]:
    environment = where_processes_join()
    return environment if plan.named_model is None else {**environment, MODEL_VARIABLE: plan.named_model}


def _fleet(plan: Plan, settings: Settings, environment: Mapping[str, str], *, events: bool) -> LocalFleet:
    return LocalFleet(
        plan.tools,
        pools=plan.pools,
        redis_url=settings.redis_url,
        worker_options=["--events"] if events else [],
        environment=environment,
        namespace=settings.namespace,
    )


def _describe(
    plan: Plan, fleet: LocalFleet, running: RunningOrchestrators, flower: RunningFlower | None, console: Console
) -> None:
    console.print(f"Redis:   {address(fleet.settings.redis_url)}")
    for worker in fleet.workers:
        console.print(_line(worker))
    for orchestrator in running.workers:
        console.print(_line(orchestrator))
    if running.workers:
        is_rehearsal = plan.model == REHEARSAL_MODEL
        note = rehearsal_note(plan.named_model) if is_rehearsal else f"model:   {plan.model}"
        console.print(note, soft_wrap=not console.is_terminal)
    if flower:
        console.print(f"Flower:  {flower.door}")
    elif plan.flower_port is not None:
        console.print("Flower:  none; it needs `pip install 'toolfleet[flower]'`", markup=False)


def _describe_api(plan: Plan, api: RunningApi | None, console: Console) -> None:
    if api:
        console.print(f"API:     {api.url}  (OpenAI's clients: {api.url}/v1)", markup=False)
        console.print(f"Page:    {api.url}/  (sign in with the key below)", markup=False)
        console.print(f"Key:     `toolfleet keys local` prints it (in {LocalKey().path})", markup=False)
    elif plan.api_port is not None:
        console.print("API:     none; it needs `pip install 'toolfleet[serve]'`", markup=False)


def _describe_unserved(unserved: Mapping[str, Sequence[str]], console: Console) -> None:
    for queue, names in unserved.items():
        console.print(f"Nobody serves {', '.join(names)}: start again without --{queue} 0.", markup=False)


def _invite(plan: Plan, settings: Settings, console: Console) -> None:
    prefix = "" if settings.namespace == DEFAULT_NAMESPACE else f"TOOLFLEET_NAMESPACE={settings.namespace} "
    if plan.are_examples:
        console.print(
            f'Try, in another terminal: {prefix}toolfleet run "What is the square root of 475695037565?"', markup=False
        )
    elif prefix:
        console.print(f'In another terminal: {prefix}toolfleet run "…"', markup=False)
    console.print("\nReady. Ctrl-C stops everything.")


def _line(process: WorkerProcess) -> str:
    kind = "orchestrator" if process.pool == POOL else "worker"
    return f"{kind}:  {process.name} (pid {process.pid})"


def _keep(
    fleet: LocalFleet,
    supervisors: Sequence[Supervisor],
    console: Console,
    *,
    changed: threading.Event | None,
    flower: RunningFlower | None = None,
) -> None:
    """Keep the processes alive, and exchange the workers whenever `changed` is set, until Ctrl-C."""
    with ExitStack() as stack:
        reloader = Reloader(fleet, grace_s=fleet.settings.shutdown_grace_s + SHARED_GRACE_MARGIN_S)
        stack.callback(reloader.stop)
        stack.callback(console.print, "Stopping; running calls may end first. Ctrl-C again stops at once.")
        while True:
            _supervise(supervisors, flower, console)
            if changed is None:
                time.sleep(LOOK_EVERY_S)
            elif changed.wait(LOOK_EVERY_S):
                changed.clear()
                console.print("The tools' files have changed.")
                reloader.reload(lambda text: console.print(harmless(text), markup=False))


def _supervise(supervisors: Sequence[Supervisor], flower: RunningFlower | None, console: Console) -> None:
    """Start again what has died. Raises the error of what cannot be kept alive."""
    for supervisor in supervisors:
        ended, started = supervisor.look()
        for process in ended:
            console.print(f"{harmless(process.ending())}\nIt will be started again.", markup=False)
        for process in started:
            console.print(f"{_line(process)}, started again")
    if flower:
        flower.check()
