"""`ShardedOrchestrator`: an orchestrator of each shard behind the methods of one.

Says on which shard a thing is or begins; what is done with it there, its own orchestrator does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, Unpack

from toolfleet.artifacts import Artifact
from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.connections import address
from toolfleet.errors import ArtifactNotFound, InvalidSettings, StoreUnreachable
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.calls.kept_media import MAX_SHOWN_BYTES, Result
from toolfleet.orchestrator.errors import NotOpen
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import BatchOptions, RunOptions
from toolfleet.orchestrator.replay.export import Export
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import RunUpdate
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.shards.listing import HeadsOfShards, merged
from toolfleet.orchestrator.shards.member import Member
from toolfleet.orchestrator.shards.members import Members
from toolfleet.orchestrator.shards.schedules import ShardedSchedules
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.sync import run_sync
from toolfleet.questions import Question
from toolfleet.settings import Settings, read_settings


class ShardedOrchestrator:
    """Does what `Orchestrator` does, with the runs spread over several Redis servers (`shards`, TOOLFLEET_SHARDS).

    A new run goes to a shard that answers and is not drained; its id says which. One that is away keeps its own runs
    waiting and nobody else's: what asks for them raises StoreUnreachable, and they go on once it is back. Limits and
    budgets hold on each shard by itself.

    `options` are the keywords of `Orchestrator`. Raises on entry what an Orchestrator raises, StoreUnreachable only
    where no shard answers.
    """

    def __init__(self, model: ChatModel | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        """Raises InvalidSettings without shards, and what `Orchestrator` raises."""
        self._settings = settings or read_settings()
        if not self._settings.all_shards:
            raise InvalidSettings("a ShardedOrchestrator needs TOOLFLEET_SHARDS, which names several Redis servers")
        self._model = model
        self._agents = options.get("agents", ())
        names = [self._settings.shard] if self._settings.shard else self._settings.all_shards.names
        self._orchestrators = {
            name: Orchestrator(model, settings=self._settings.of_shard(name), closes_models=False, **options)
            for name in names
        }
        self._opened: Members[Orchestrator] | None = None

    async def __aenter__(self) -> Self:
        """Connect to the shards that are there, and to the others once they are."""
        known = self._settings.all_shards
        members = Members(
            [
                Member(shard, self._settings.of_shard(shard.name), self._orchestrators[shard.name])
                for shard in known
                if shard.name in self._orchestrators
            ],
            known,
        )
        try:
            await members.open()
        except BaseException:
            await members.aclose()
            raise
        self._opened = members
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Hand over what is going on, disconnect, and close the model."""
        members, self._opened = self._shards, None
        try:
            await members.aclose()
        finally:
            for model in {id(each): each for each in (*self._agents_models(), self._model) if each}.values():
                await model.aclose()

    def _agents_models(self) -> list[ChatModel]:
        return [agent.model for agent in self._agents if agent.model is not None and not isinstance(agent.model, str)]

    @property
    def _shards(self) -> Members[Orchestrator]:
        if self._opened is None:
            raise NotOpen("this ShardedOrchestrator is not open: use it inside `async with`, or with `toolfleet.sync`")
        return self._opened

    # --- how it stands ------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it has been entered and not been left."""
        return self._opened is not None

    @property
    def settings(self) -> Settings:
        """The settings of all shards."""
        return self._settings

    @property
    def address(self) -> str:
        """Where the shards are, without passwords."""
        return ", ".join(f"{name} at {address(each.settings.redis_url)}" for name, each in self._orchestrators.items())

    @property
    def orchestrator_id(self) -> str:
        """Its names on the shards that were reached. Raises NotOpen."""
        return ", ".join(each.orchestrator_id for each in self._shards.open_ones)

    @property
    def missing(self) -> Mapping[str, str]:
        """The shards that cannot be asked now, and why. Raises NotOpen."""
        return self._shards.missing

    @property
    def ailing(self) -> Mapping[str, str]:
        """Which listeners are down now, by shard, and why: see `Orchestrator.ailing`. Raises NotOpen."""
        return {
            f"{name} of shard {each.settings.shard}": why
            for each in self._shards.open_ones
            for name, why in each.ailing.items()
        }

    @property
    def dispatched(self) -> int:
        """How many calls it has put into the queues. Raises NotOpen."""
        return sum(each.dispatched for each in self._shards.open_ones)

    @property
    def adopted(self) -> int:
        """How many runs of others it has taken over. Raises NotOpen."""
        return sum(each.adopted for each in self._shards.open_ones)

    @property
    def working(self) -> int:
        """How many runs it works on now. Raises NotOpen."""
        return sum(each.working for each in self._shards.open_ones)

    @property
    def schedules(self) -> ShardedSchedules:
        """Runs that begin by the clock: see `Orchestrator.schedules`. A schedule is on one shard. Raises NotOpen."""
        return ShardedSchedules(self._shards)

    def shard_of(self, id_: str) -> Orchestrator:
        """Return the orchestrator of the shard that a run, a call or a handle is on, for all that this one has not.

        Raises NoSuchShard, StoreUnreachable, NotOpen.
        """
        return self._shards.of(id_)

    # --- runs ---------------------------------------------------------------------------------------------------

    @exact(RunOptions)
    async def run(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """Run one conversation to its end, on one shard: see `Orchestrator.run`."""
        return await (await self._for_new(options)).run(question, **options)

    @exact(RunOptions)
    def run_sync(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """Do as `run`, for callers without an event loop."""
        return run_sync(self, question, **options)

    @exact(RunOptions)
    def stream(
        self, question: str | Sequence[Message], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunUpdate, None]:
        """Do as `run`, and yield everything that happens on the way: see `Orchestrator.stream`."""
        return self._streamed(question, options)

    async def _streamed(
        self, question: str | Sequence[Message], options: RunOptions
    ) -> AsyncGenerator[RunUpdate, None]:
        fleet = await self._for_new(options)
        async with aclosing(fleet.stream(question, **options)) as updates:
            async for update in updates:
                yield update

    @exact(RunOptions)
    async def start(
        self,
        question: str | Sequence[Message],
        *,
        on_event: Callable[[RunUpdate], None] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Begin a run and return its id at once: see `Orchestrator.start`."""
        return await (await self._for_new(options)).start(question, on_event=on_event, **options)

    @exact(RunOptions)
    async def submit(self, question: str | Sequence[Message], *, model: str, **options: Unpack[RunOptions]) -> str:
        """Store a run for whichever orchestrator has this model: see `Orchestrator.submit`."""
        return await (await self._for_new(options)).submit(question, model=model, **options)

    async def _for_new(self, options: RunOptions) -> Orchestrator:
        return await self._shards.for_new(options.get("run_id"))

    async def wait(self, run_id: str) -> Run:
        """Wait until a run has ended, and return it. Raises RunNotFound, StoreUnreachable."""
        return await self._shards.of(run_id).wait(run_id)

    async def get(self, run_id: str) -> Run:
        """Return any run as it stands. Raises RunNotFound, StoreUnreachable."""
        return await self._shards.of(run_id).get(run_id)

    @exact()
    async def runs(
        self, *, limit: int = 50, offset: int = 0, states: Collection[State] = (), tenant: str | None = None
    ) -> HeadsOfShards:
        """List runs of all shards by their heads, newest first; `missing` names the shards that gave no answer.

        Raises StoreUnreachable where none gave any.
        """
        heads, missing = await self._shards.each(
            lambda shard: shard.runs(limit=limit + offset, states=states, tenant=tenant)
        )
        if not heads:
            raise StoreUnreachable("; ".join(f"shard {name}: {why}" for name, why in missing.items()))
        return merged(heads.values(), missing, limit=limit, offset=offset)

    async def tenant_of(self, run_id: str) -> str:
        """Return whose run it is, "" for nobody's. Raises RunNotFound, StoreUnreachable."""
        return await self._shards.of(run_id).tenant_of(run_id)

    async def cancel(self, run_id: str, reason: str = "cancelled by request", *, by: str = "") -> Run:
        """End a run now. Raises RunNotOpen for a run that has ended, RunNotFound, StoreUnreachable."""
        return await self._shards.of(run_id).cancel(run_id, reason, by=by)

    async def resume(
        self, run_id: str, messages: str | Sequence[Message] = (), *, subject: str | None = None, by: str = ""
    ) -> Run:
        """Let a run that has ended go on, on its shard: see `Orchestrator.resume`."""
        return await self._shards.of(run_id).resume(run_id, messages, subject=subject, by=by)

    @exact()
    async def say(
        self,
        run_id: str,
        message: str | Sequence[Message],
        *,
        interrupt: bool = False,
        idempotency_key: str = "",
        by: str = "",
    ) -> Run:
        """Say something to a run that goes on, on its shard: see `Orchestrator.say`."""
        shard = self._shards.of(run_id)
        return await shard.say(run_id, message, interrupt=interrupt, idempotency_key=idempotency_key, by=by)

    async def approve(self, call_id_: str, approval: Approval) -> Run:
        """Decide about a call that waits for approval: see `Orchestrator.approve`."""
        return await self._shards.of(call_id_).approve(call_id_, approval)

    async def question(self, question_id: str) -> Question:
        """Return what a tool has asked: see `Orchestrator.question`."""
        return await self._shards.of(question_id).question(question_id)

    async def answer(self, question_id: str, answer: Any, *, by: str = "") -> Question:
        """Answer what a tool asks: see `Orchestrator.answer`."""
        return await self._shards.of(question_id).answer(question_id, answer, by=by)

    async def decline(self, question_id: str, reason: str = "", *, by: str = "") -> Question:
        """Say that nobody will answer what a tool asks: see `Orchestrator.decline`."""
        return await self._shards.of(question_id).decline(question_id, reason, by=by)

    async def export(self, run_id: str) -> Export:
        """Return a run with all that was written down of it: see `Orchestrator.export`."""
        return await self._shards.of(run_id).export(run_id)

    async def delete(self, run_id: str) -> bool:
        """Delete a run; False when there was none. Raises StoreUnreachable."""
        return await self._shards.of(run_id).delete(run_id)

    # --- calls --------------------------------------------------------------------------------------------------

    async def calls(self, run_id: str) -> Sequence[CallStanding]:
        """Return how each call of a run stands. Raises RunNotFound, StoreUnreachable."""
        return await self._shards.of(run_id).calls(run_id)

    async def cancel_call(self, call_id_: str, *, by: str = "") -> CallStanding:
        """Cancel one call: see `Orchestrator.cancel_call`."""
        return await self._shards.of(call_id_).cancel_call(call_id_, by=by)

    @exact(RunOptions)
    async def fork(
        self,
        source_id: str,
        question: str | Sequence[Message] = (),
        *,
        at: int,
        model: str | None = None,
        messages: Sequence[Message] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Begin a run with what another one had come to, on its shard: see `Orchestrator.fork`."""
        shard = self._shards.of(source_id)
        return await shard.fork(source_id, question, at=at, model=model, messages=messages, **options)

    @exact(RunOptions)
    async def retry_call(self, call_id_: str, *, force: bool = False, **options: Unpack[RunOptions]) -> str:
        """Make a call that has failed again, in a new run on its shard: see `Orchestrator.retry_call`."""
        return await self._shards.of(call_id_).retry_call(call_id_, force=force, **options)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | str, **options: Any
    ) -> Returned | Failed | Submitted:
        """Call a tool once, with the options of `Orchestrator.call`; a handle says by itself on which shard."""
        return await (await self._shards.for_new(None)).call(tool, arguments, **options)

    @exact()
    async def task(self, handle: str, *, wait_s: float = 0.0, tenant: str | None = None) -> Status:
        """Return how a handle's call stands. Raises HandleNotFound, StoreUnreachable."""
        return await self._shards.of(handle).task(handle, wait_s=wait_s, tenant=tenant)

    @exact()
    async def cancel_task(self, handle: str, *, tenant: str | None = None, by: str = "") -> Status:
        """Cancel a handle's call. Raises HandleNotFound, StoreUnreachable."""
        return await self._shards.of(handle).cancel_task(handle, tenant=tenant, by=by)

    @exact(BatchOptions)
    async def execute(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[ToolMessage]:
        """Make the calls of one assistant message, all on one shard: see `Orchestrator.execute`."""
        return await (await self._shards.for_new(None)).execute(message, history=history, **options)

    @exact(BatchOptions)
    async def execute_results(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[Returned | Failed | Submitted]:
        """Do as `execute`, and return the results themselves."""
        return await (await self._shards.for_new(None)).execute_results(message, history=history, **options)

    @exact(BatchOptions)
    async def complete(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> tuple[Message, ...]:
        """Return the conversation with an answer behind each call of its last reply."""
        return await (await self._shards.for_new(None)).complete(messages, **options)

    # --- what is too large for a result -------------------------------------------------------------------------

    @exact()
    async def artifact(self, artifact: str, *, tenant: str = "") -> Artifact:
        """Return what was too large for a result of this tenant, wherever it is kept.

        Raises ArtifactNotFound where all shards say so, StoreUnreachable where one of them cannot.
        """
        said: list[ArtifactNotFound | StoreUnreachable] = []
        for member in self._shards.all:
            try:
                return await member.opened().artifact(artifact, tenant=tenant)
            except (ArtifactNotFound, StoreUnreachable) as error:
                said.append(error)
        # One that cannot be asked may have it.
        raise next((error for error in said if isinstance(error, StoreUnreachable)), said[0])

    @exact()
    async def with_media(self, result: Result, *, tenant: str = "", max_bytes: int = MAX_SHOWN_BYTES) -> Result:
        """Return a result with those of its media put back that are kept. Raises StoreUnreachable."""
        for member in self._shards.all:
            result = await member.opened().with_media(result, tenant=tenant, max_bytes=max_bytes)
        return result
