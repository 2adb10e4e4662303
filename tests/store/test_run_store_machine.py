"""Two orchestrators and a bystander at one stored run, in any order: Redis against a model of it."""

import asyncio
import itertools

import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.orchestrator.errors import LostRun, Overtaken, RunIsOver, RunNotFound
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.journal import Journal, adopt, write_from_outside
from toolfleet.orchestrator.store.leases import Leases
from toolfleet.orchestrator.store.packing import Packing
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.seen import SeenRuns
from toolfleet.settings import Settings
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

NAMES = ("a", "b")
numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def server():
    with EmbeddedServer(temporary=True) as running:  # it is flushed: a user's own must not be
        StoreMachine.redis_url = running.url
        yield running


async def none(suspicion):
    raise AssertionError(suspicion)


class StoreMachine(RuleBasedStateMachine):
    """The model is the list of events that were accepted, and who owns the run."""

    redis_url = ""

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.settings = Settings(
            redis_url=self.redis_url, namespace=f"machine{next(numbers)}", lease_s=2, heartbeat_s=0.3
        )
        self.runner.run(self.open())

    async def open(self):
        self.client: redis.asyncio.Redis = connect_async(self.settings)
        self.store = RunStore(self.client, self.settings, Seal(self.settings))
        self.seen = SeenRuns(self.store)
        self.adopted = {name: [] for name in NAMES}
        self.leases = {
            name: Leases(
                self.client,
                self.settings,
                name,
                model="m",
                on_adopted=self.adopted[name].extend,
                on_older_store=none,
                supervisor=Supervisor(),
            )
            for name in NAMES
        }
        stored = await self.store.begin(machine.STARTED, owner="a")
        assert stored is not None
        self.accepted = [machine.STARTED]
        self.owner = "a"
        self.journals = {"a": Journal(self.store, stored, "a")}
        await self.leases["a"]._renew()

    def teardown(self):
        async def close():
            await self.client.flushall()
            await self.client.aclose()

        self.runner.run(close())
        self.runner.close()

    @property
    def run(self):
        run = Run.start(self.accepted[0])
        for event in self.accepted[1:]:
            run = run.on(event)
        return run

    def next_event(self, run, choice):
        """Something that its owner could do with the run as that owner sees it."""
        match run.state:
            case State.THINKING:
                return machine.reply(choice, run.turn)
            case State.CALLING | State.PARKED:
                return machine.back(run, [call.call_id for call in run.calls_owed], "returned")
            case State.WAITING:
                return machine.delivered(run)
            case _:
                return machine.RESUMED

    # --- who writes -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.journals)
    @rule(data=st.data(), choice=st.integers(0, 2))
    def an_owner_past_or_present_writes(self, data, choice):
        name = data.draw(st.sampled_from(sorted(self.journals)))
        journal = self.journals[name]
        event = self.next_event(journal.run, choice)
        is_current = journal.run == self.run and name == self.owner and not journal.run.state.is_terminal
        try:
            self.runner.run(journal.append(event))
        except (LostRun, RunIsOver, Overtaken):
            assert not is_current
            del self.journals[name]
        else:
            self.accepted.append(event)
            if self.accepted[-1] == machine.RESUMED:
                self.owner = None

    @rule(how=st.sampled_from(sorted(machine.STOPS)))
    def a_bystander_stops_it(self, how):
        if not self.run.state.is_terminal:
            self.runner.run(write_from_outside(self.store, "m", machine.STOPS[how]))
            self.accepted.append(machine.STOPS[how])
            self.owner = None

    @rule()
    def a_bystander_resumes_it(self):
        if self.run.state.is_terminal:
            self.runner.run(write_from_outside(self.store, "m", machine.RESUMED))
            self.accepted.append(machine.RESUMED)
            self.owner = None

    @rule(name=st.sampled_from(NAMES))
    def its_owner_gives_it_up(self, name):
        async def given_up():
            while await self.leases[name]._release_next_runs(name, is_given_up=True):
                pass

        self.runner.run(given_up())
        if self.owner == name:
            self.owner = None

    @rule(name=st.sampled_from(NAMES))
    def somebody_adopts(self, name):
        self.runner.run(self.leases[name]._adopt_all())
        took = self.adopted[name][:]
        self.adopted[name].clear()
        if self.owner is None and not self.run.state.is_terminal:
            assert took == ["m"]
            self.accepted.append(machine.ADOPTED.model_copy(update={"orchestrator_id": name}))
            self.owner = name
            self.journals[name] = Journal(self.store, self.runner.run(adopt(self.store, "m", name)), name)
        else:
            assert took == []

    @rule()
    def its_first_event_is_written_again(self):
        assert self.runner.run(self.store.begin(machine.STARTED, owner="b")) is None

    @rule()
    def its_history_is_packed(self):
        async def packed():
            packing = Packing(self.client, self.settings.keys)
            packing.has_ended("m", (await self.store.load("m")).link.seal)
            await packing.aclose()

        self.runner.run(packed())

    # --- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def redis_tells_the_models_story(self):
        entries = self.runner.run(self.store.entries("m"))
        assert [entry.event for entry in entries] == self.accepted
        assert self.runner.run(self.store.load("m")).run == self.run

    @invariant()
    def whoever_has_read_it_before_reads_the_same(self):
        assert self.runner.run(self.seen.read("m")) == self.runner.run(SeenRuns(self.store).read("m"))
        assert self.runner.run(self.seen.load("m")) == self.runner.run(self.store.load("m"))

    @invariant()
    def its_head_says_the_same(self):
        [head] = self.runner.run(self.store.heads())
        assert (head.state, head.owner or None) == (
            self.run.state,
            self.owner if not self.run.state.is_terminal else None,
        )

    @invariant()
    def every_key_of_it_has_an_end(self):
        async def endless():
            names = [self.settings.keys.run("m"), self.settings.keys.head("m")]
            return [name for name in names if await self.client.ttl(name) <= 0]

        assert self.runner.run(endless()) == []


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_deleted_run_is_lost_to_whoever_works_on_it():
    async def lived():
        settings_ = Settings(redis_url=StoreMachine.redis_url, namespace="deleted")
        async with connect_async(settings_) as client:
            store = RunStore(client, settings_, Seal(settings_))
            journal = Journal(store, await store.begin(machine.STARTED, owner="a"), "a")
            assert await store.delete("m")
            with pytest.raises(LostRun):
                await journal.append(machine.reply(0, 0))
            with pytest.raises(RunNotFound):
                await store.load("m")

    asyncio.run(lived())
