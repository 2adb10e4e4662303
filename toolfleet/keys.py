"""Every Redis key, and what ends it: a TTL or a trim rule. No other file may spell a key.

A test holds this file against a live server: each key found there must be made here and have its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RESULT_TTL_S: Final = 24 * 3600
"""How long a result waits for an orchestrator to come back. One that has recorded it drops it within seconds."""

CLAIM_GRACE_S: Final = 600
"""A claim outlives its call's deadline by this much, for clocks that differ; then the envelope itself is refused."""

CLOCKS_APART_S: Final = 300
"""How far the clocks of two workers may be apart. A claim that might end sooner after the deadline is made anew."""

REPLIES_TTL_S: Final = 24 * 3600
"""A reply stream whose orchestrator is gone ends after this; the stored results are the truth."""

ANNOUNCEMENT_TTL_S: Final = 30
"""The tools of a worker that vanished are offered for this long; live workers renew at a third of it."""

NODE_TTL_S: Final = 15
"""The name of a worker that was killed is free again after this."""

APPROVED_TTL_S: Final = 1200
"""Longer than an MCP client may take to bring an approval (ten minutes), whatever the servers' clocks say."""

IDEMPOTENCY_TTL_S: Final = 24 * 3600
"""How long a repeated POST gets the answer of the first one."""

ASIDE_TTL_S: Final = 30 * 24 * 3600
"""How long people can look at what was cut off a run's history."""

DELETED_TTL_S: Final = 3600
"""Longer than any orchestrator remembers what it wrote."""

BEAT_TTL_S: Final = 24 * 3600
"""After so long without a word an orchestrator takes it that the store may have lost all that it remembers."""

REVOKED: Final = "revoked"
"""The field of the API keys' hash with those that were revoked; the other fields are digests, and none reads so."""

DEAD_LETTERS_MAX: Final = 10_000
"""The dead-letter stream keeps about this many of the newest messages."""

VERSION_COUNTS_TTL_S: Final = 30 * 24 * 3600
"""How long it is kept what came of the calls of versions after the last of them."""

LIMITS_AUDIT_MAX: Final = 1000
"""The stream of what people have said of limits keeps about this many of the newest entries."""

WEBHOOKS_DEAD_MAX: Final = 1000
"""So many of a tenant's webhooks that were given up are kept, the newest."""

WEBHOOK_ATTEMPTS_MAX: Final = 100
"""So many attempts at each endpoint are shown, the newest."""

REPLIES_MAX: Final = 200_000
"""A reply stream that nobody reads keeps about this many of the newest entries; the stored results are the truth."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace. Two fleets on one server differ in their namespace only."""

    namespace: str = "toolfleet"

    def result(self, call_id: str) -> str:
        """String: the signed result of a settled call. With an empty id, what all of them begin with."""
        return f"{self.namespace}:result:{call_id}"

    def claim(self, call_id: str) -> str:
        """String: the delivery that may cause the call's effect."""
        return f"{self.namespace}:claim:{call_id}"

    def replies(self, orchestrator_id: str) -> str:
        """Stream: results and progress for one orchestrator, in the order of arrival."""
        return f"{self.namespace}:replies:{orchestrator_id}"

    def workers(self) -> str:
        """Sorted set: the workers that announce tools, scored by when they last did."""
        return f"{self.namespace}:workers"

    def worker(self, worker: str) -> str:
        """String: what one worker is and the specs of its tools."""
        return f"{self.namespace}:worker:{worker}"

    def node(self, node: str) -> str:
        """Which process has this worker's name, as `worker@host`. TTL: NODE_TTL_S, renewed."""
        return f"{self.namespace}:node:{node}"

    def spec(self, tool: str) -> str:
        """Sorted set: digest and source of what live workers serve under a name, scored by when that was last said."""
        return f"{self.namespace}:spec:{tool}"

    def progress(self, call_id: str) -> str:
        """String: the newest progress of a running call."""
        return f"{self.namespace}:progress:{call_id}"

    def checkpoint(self, call_id: str) -> str:
        """String: where a call goes on whose worker is lost. Ends with the call, or soon after its deadline."""
        return f"{self.namespace}:checkpoint:{call_id}"

    def questions(self, call_id: str) -> str:
        """Hash: what a call asks, what was said, its message while it waits. Ends soon after the call's deadline."""
        return f"{self.namespace}:questions:{call_id}"

    def questions_of(self, tenant: str) -> str:
        """Sorted set: a tenant's calls that ask a person, scored by since when (ms). Ends as the last of these does.

        Those where nothing waits any more leave it when it is read.
        """
        return f"{self.namespace}:questions-of:{tenant}"

    def attempt(self, call_id: str) -> str:
        """String: where in its trace an attempt at a call is that goes on. Ends soon after the call's deadline."""
        return f"{self.namespace}:attempt:{call_id}"

    def call_log(self, call_id: str) -> str:
        """Sorted set: what a call's tool has logged, by attempt. Ends a while after the call, or after its deadline."""
        return f"{self.namespace}:call-log:{call_id}"

    def handle(self, handle: str) -> str:
        """String: which call a handle stands for, and who may ask."""
        return f"{self.namespace}:handle:{handle}"

    def arguments(self, call_id: str) -> str:
        """String: the arguments of a call that hold secrets, until it is back."""
        return f"{self.namespace}:arguments:{call_id}"

    def cancelled(self, call_id: str) -> str:
        """String: a mark that a call must not start."""
        return f"{self.namespace}:cancelled:{call_id}"

    def artifact(self, tenant: str, digest: str) -> str:
        """String: what was too large for a result, by its SHA-256, until nobody has looked at it for a while."""
        return f"{self.namespace}:artifact:{tenant}:{digest}"

    def artifact_grant(self, run_id: str, digest: str) -> str:
        """String: that a run may read an artifact, whose it is, and what it is; as long as that."""
        return f"{self.namespace}:artifact-grant:{run_id}:{digest}"

    def artifact_runs(self, tenant: str, digest: str) -> str:
        """Sorted set: the runs of a tenant that were given an artifact, scored by when that ends; as long as that."""
        return f"{self.namespace}:artifact-runs:{tenant}:{digest}"

    def artifacts_of(self, run_id: str) -> str:
        """Set: the artifacts that a run was given, to be forgotten with it; as long as they are kept."""
        return f"{self.namespace}:artifacts-of:{run_id}"

    def cached(self, digest: str) -> str:
        """String: the result of a read-only call that is given again, for as long as its tool or interceptor says."""
        return f"{self.namespace}:cached:{digest}"

    def finder(self, digest: str) -> str:
        """Hash: the one call that is finding the answer to a question. Ends with it, or an hour after its deadline."""
        return f"{self.namespace}:finder:{digest}"

    def waiting_for_answer(self, digest: str) -> str:
        """Set: scheduled messages of calls that ask the same. Ends with their answer, or an hour after a deadline."""
        return f"{self.namespace}:waiting-for-answer:{digest}"

    def job(self, call_id: str) -> str:
        """Hash: the job in another system that a call waits for. With an empty id, what all of them begin with."""
        return f"{self.namespace}:job:{call_id}"

    def job_ended(self, call_id: str) -> str:
        """String: which job of a call has ended, kept as long after its deadline as a job is."""
        return f"{self.namespace}:job-ended:{call_id}"

    def jobs(self, tool: str) -> str:
        """Sorted set: the call ids of a tool's jobs, scored by when they are to be asked about (ms)."""
        return f"{self.namespace}:jobs:{tool}"

    def run(self, run_id: str) -> str:
        """Stream: the events of one run, the only record of it."""
        return f"{self.namespace}:run:{run_id}"

    def packing(self, run_id: str) -> str:
        """Stream: a run's history in another form, within the script that puts it in the run's place."""
        return f"{self.namespace}:packing:{run_id}"

    def head(self, run_id: str) -> str:
        """Hash: where a run stands and who owns it, so that this can be asked without reading its events."""
        return f"{self.namespace}:head:{run_id}"

    def aside(self, run_id: str) -> str:
        """Stream: entries of a run that could not be believed, kept for people. TTL: ASIDE_TTL_S after the last one."""
        return f"{self.namespace}:aside:{run_id}"

    def deleted(self, run_id: str) -> str:
        """String: that a run was deleted, and not lost by the store. TTL: DELETED_TTL_S."""
        return f"{self.namespace}:deleted:{run_id}"

    def shard(self) -> str:
        """Hash: which shard this Redis is, and whether it is drained. One; kept."""
        return f"{self.namespace}:shard"

    def runs(self) -> str:
        """Sorted set: every stored run, scored by when it began; those whose record has ended are removed."""
        return f"{self.namespace}:runs"

    def runs_of(self, tenant: str) -> str:
        """Sorted set: the stored runs of one tenant, likewise. Lives as long as the longest kept of them.

        With an empty name, what all of them begin with.
        """
        return f"{self.namespace}:runs-of:{tenant}"

    def runs_ending(self) -> str:
        """Sorted set: the same runs with their tenants, scored by when their record ends (ms); removed then."""
        return f"{self.namespace}:runs-ending"

    def run_names(self) -> str:
        """Sorted set: the same runs with their tenants, in the order of their ids; removed likewise."""
        return f"{self.namespace}:run-names"

    def run_states(self) -> str:
        """Sorted set: the same runs, scored by state, whether they wait for a person, and tenant; removed likewise."""
        return f"{self.namespace}:run-states"

    def requested(self, digest: str) -> str:
        """String: the call that a model has asked for by an id of its own, for as long as what is done is kept."""
        return f"{self.namespace}:requested:{digest}"

    def approvals(self, tenant: str) -> str:
        """Sorted set: the runs of a tenant with calls that wait for a person, scored by since when (ms).

        Those where none waits any more leave it when it is read. Lives as long as the longest kept of them.
        """
        return f"{self.namespace}:approvals:{tenant}"

    def handles_of(self, tenant: str) -> str:
        """Sorted set: the handles of a tenant, scored by when their records end (ms); removed then."""
        return f"{self.namespace}:handles-of:{tenant}"

    def conversation(self, digest: str) -> str:
        """String: which run is about the newest of an assistant's conversation. Outlives what it names."""
        return f"{self.namespace}:conversation:{digest}"

    def a2a_context(self, digest: str) -> str:
        """Sorted set: the runs of an A2A context, scored by when they were begun (ms). Outlives what it names."""
        return f"{self.namespace}:a2a-context:{digest}"

    def orchestrators(self) -> str:
        """Sorted set: the orchestrators that own runs, scored by when their lease ends."""
        return f"{self.namespace}:orchestrators"

    def orchestrator(self, orchestrator_id: str) -> str:
        """String: an orchestrator's lease on its runs; while it lives, results are pushed to its reply stream."""
        return f"{self.namespace}:orchestrator:{orchestrator_id}"

    def orchestrator_proofs(self, orchestrator_id: str) -> str:
        """String: what a living orchestrator shows of its secret, as JSON. Ends with its lease."""
        return f"{self.namespace}:orchestrator-proofs:{orchestrator_id}"

    def batch_output(self, place: str) -> str:
        """String: the orchestrator that last had this output of a batch open."""
        return f"{self.namespace}:batch_output:{place}"

    def batch(self, batch_id: str) -> str:
        """String: how a batch stands, sealed. As long as a run in the same state is kept."""
        return f"{self.namespace}:batch:{batch_id}"

    def batches_of(self, tenant: str) -> str:
        """Sorted set: the batches of a tenant, scored by when their records end (ms); removed then."""
        return f"{self.namespace}:batches-of:{tenant}"

    def batch_cancel(self, batch_id: str) -> str:
        """String: who wants a batch cancelled, sealed; for as long as it may go on."""
        return f"{self.namespace}:batch-cancel:{batch_id}"

    def schedule(self, schedule_id: str) -> str:
        """String: a schedule, sealed, and how far it has come; until somebody removes it.

        With an empty id, what all of them begin with.
        """
        return f"{self.namespace}:schedule:{schedule_id}"

    def schedules_of(self, tenant: str) -> str:
        """Sorted set: the schedules of a tenant, scored by when they were made (ms); one goes when it is removed."""
        return f"{self.namespace}:schedules-of:{tenant}"

    def schedules_due(self) -> str:
        """Sorted set: the schedules that are not paused, scored by their next ticks (ms); one goes when removed."""
        return f"{self.namespace}:schedules-due"

    def beat(self, orchestrator_id: str) -> str:
        """String: how often an orchestrator has renewed its lease, by which it sees that the store came back older."""
        return f"{self.namespace}:beat:{orchestrator_id}"

    def owned(self, orchestrator_id: str) -> str:
        """Set: the unfinished runs of one orchestrator."""
        return f"{self.namespace}:owned:{orchestrator_id}"

    def unowned(self, model: str) -> str:
        """Set: the unfinished runs of one model that any orchestrator with this model may take over."""
        return f"{self.namespace}:unowned:{model}"

    def api_keys(self) -> str:
        """Hash: the keys that HTTP clients present, by their digest; only people add to it."""
        return f"{self.namespace}:api-keys"

    def rate(self, key_id: str) -> str:
        """Hash: the token bucket of one API key, until it would be full again."""
        return f"{self.namespace}:rate:{key_id}"

    def running(self, account: str) -> str:
        """Sorted set: the heads of a key's or a tenant's runs that go on, scored by when they were looked at last."""
        return f"{self.namespace}:running:{account}"

    def stored(self, account: str) -> str:
        """Sorted set: what is stored for a key or a tenant, likewise. Lives as long as what it names."""
        return f"{self.namespace}:stored:{account}"

    def sizes(self, account: str) -> str:
        """Hash: how many bytes each of them has, and under the empty name their sum."""
        return f"{self.namespace}:sizes:{account}"

    def idempotent(self, digest: str) -> str:
        """String: what a POST with an Idempotency-Key was answered, sealed."""
        return f"{self.namespace}:idempotent:{digest}"

    def approved(self, round_id: str) -> str:
        """String: that an MCP client's approval was used. TTL: APPROVED_TTL_S."""
        return f"{self.namespace}:approved:{round_id}"

    def asked(self, digest: str) -> str:
        """Hash: the runs that requests alike have begun, and how many clients attend to each."""
        return f"{self.namespace}:asked:{digest}"

    def budgets(self) -> str:
        """Hash: what tenants may use up, as people have set it; they remove it."""
        return f"{self.namespace}:budgets"

    def budget(self, account: str) -> str:
        """Hash: what an account of a budget has used and holds. Ends a while after what it counts.

        With an empty name, what all of them begin with.
        """
        return f"{self.namespace}:budget:{account}"

    def reserved(self, orchestrator_id: str) -> str:
        """Hash: what an orchestrator holds of budgets for the replies it waits for, by run. Ends with its lease.

        With an empty id, what all of them begin with.
        """
        return f"{self.namespace}:reserved:{orchestrator_id}"

    def reserving(self) -> str:
        """Set: the orchestrators that hold anything of a budget; those whose lease has lapsed are removed."""
        return f"{self.namespace}:reserving"

    def unbooked(self) -> str:
        """Set: runs whose orchestrator was lost while it held something for them, until what they used is booked."""
        return f"{self.namespace}:unbooked"

    def booked(self, run_id: str) -> str:
        """Hash: how much of what a run has used is in the accounts. As long as the run is kept."""
        return f"{self.namespace}:booked:{run_id}"

    def spent_by_tools(self) -> str:
        """Hash: what tools have spent elsewhere, by name, in billionths of a US dollar; one field a tool, for good."""
        return f"{self.namespace}:spent-by-tools"

    def reply_costs(self, model: str) -> str:
        """Hash: what replies of a model have come to lately. TTL: 30 days after the last one under a budget."""
        return f"{self.namespace}:reply-costs:{model}"

    def webhooks(self) -> str:
        """Hash: the endpoints of webhooks, sealed, by their ids; only people add to it."""
        return f"{self.namespace}:webhooks"

    def webhooks_due(self) -> str:
        """Sorted set: the webhooks that are owed, scored by when (ms) they are due, or due again if their sender dies.

        One goes when it is delivered or given up.
        """
        return f"{self.namespace}:webhooks-due"

    def webhook(self, delivery_id: str) -> str:
        """Hash: a webhook that is owed to an endpoint, or was given up, and how often it was sent.

        With an empty id, what all of them begin with. Ends a while after it was to be sent next, or was given up.
        """
        return f"{self.namespace}:webhook:{delivery_id}"

    def webhooks_dead(self, tenant: str) -> str:
        """Sorted set: a tenant's webhooks that were given up, scored by when (ms). The newest WEBHOOKS_DEAD_MAX."""
        return f"{self.namespace}:webhooks-dead:{tenant}"

    def webhook_attempts(self, endpoint_id: str) -> str:
        """List: what came of the newest WEBHOOK_ATTEMPTS_MAX attempts at an endpoint. Ends a while after the last."""
        return f"{self.namespace}:webhook-attempts:{endpoint_id}"

    def webhooks_asked(self, tenant: str) -> str:
        """Sorted set: the questions that webhooks were made of, scored by when they expire (ms); each goes then."""
        return f"{self.namespace}:webhooks-asked:{tenant}"

    def pushes(self, run_id: str) -> str:
        """Hash: where a run is told of as an A2A task, sealed, by the configurations' ids. As long as the run is kept.

        With an empty id, what all of them begin with.
        """
        return f"{self.namespace}:pushes:{run_id}"

    def pushing(self, tenant: str) -> str:
        """Sorted set: a tenant's runs that go on and have such configurations, scored by when those end (ms)."""
        return f"{self.namespace}:pushing:{tenant}"

    def push_tenants(self) -> str:
        """Sorted set: the tenants that have such runs, scored by when the last of their configurations ends (ms)."""
        return f"{self.namespace}:push-tenants"

    def pushes_due(self) -> str:
        """Sorted set: such runs that have ended or may ask a person, scored by when (ms) somebody is to look at them.

        One goes when all that it has to tell is owed.
        """
        return f"{self.namespace}:pushes-due"

    def dead_letters(self) -> str:
        """Stream: messages that could not be handled, with the reason."""
        return f"{self.namespace}:dead"

    def handling_dead(self) -> str:
        """String: that somebody puts dead letters back or drops them, over HTTP. TTL: two minutes."""
        return f"{self.namespace}:handling-dead"

    def counters(self) -> str:
        """Hash: how often each rare thing happened (refused envelopes, dropped results, …)."""
        return f"{self.namespace}:counters"

    def calls_settled(self) -> str:
        """Hash: how many calls have ended, by outcome; one field for each kind of end, for good."""
        return f"{self.namespace}:calls-settled"

    # --- owned by the transport (toolfleet.streams) -------------------------------------------------------------

    def queue(self, queue: str, priority: int) -> str:
        """Stream: the waiting and running messages of one queue at one priority."""
        return f"{self.namespace}:queue:{queue}:{priority}"

    def scheduled(self, queue: str) -> str:
        """Sorted set: messages of a queue that are not due yet, scored by their due time."""
        return f"{self.namespace}:scheduled:{queue}"

    def lanes(self, queue: str) -> str:
        """Set: the lanes of a queue. A sweep removes those that nobody reads, once they are empty."""
        return f"{self.namespace}:lanes:{queue}"

    def lane(self, lane: str) -> str:
        """Sorted set: the consumers that read a lane, scored by how long their word holds (ms)."""
        return f"{self.namespace}:lane:{lane}"

    def lease(self, consumer: str) -> str:
        """String: a worker's lease on all that it has been delivered."""
        return f"{self.namespace}:lease:{consumer}"

    def work_queues(self) -> str:
        """Sorted set: the queues that workers over HTTPS have served, by when last (s). Ends a week after the last."""
        return f"{self.namespace}:work-queues"

    def work_result(self, attempt: str) -> str:
        """String: the digest of what an attempt over HTTPS came to, and whether that counts. Ends as its claim does."""
        return f"{self.namespace}:work-result:{attempt}"

    def room(self, queue: str) -> str:
        """Hash: how many calls a queue's workers take at once, and how far its waiting room has come. One per queue."""
        return f"{self.namespace}:room:{queue}"

    def room_workers(self, queue: str) -> str:
        """Hash: how many calls each live worker of a queue takes at once. Ends with their words."""
        return f"{self.namespace}:room-workers:{queue}"

    def room_calls(self, queue: str) -> str:
        """Hash: the messages in a queue's waiting room that are not plain, by call id; each goes when it moves on."""
        return f"{self.namespace}:room-calls:{queue}"

    def room_plain(self, queue: str) -> str:
        """Sorted set: the runs of plain messages in a waiting room, each with its flow; one goes with its last call."""
        return f"{self.namespace}:room-plain:{queue}"

    def room_plain_runs(self, queue: str, flow: str) -> str:
        """Sorted set: the runs of a flow of plain messages, scored by when they last moved on; one goes when empty."""
        return f"{self.namespace}:room-plain-runs:{queue}:{flow}"

    def room_plain_line(self, queue: str, line: str) -> str:
        """List: the plain messages of a run in a flow (`flow~run`), six parts of each; each goes when it moves on."""
        return f"{self.namespace}:room-plain-line:{queue}:{line}"

    def room_turns(self, queue: str, level: int) -> str:
        """Sorted set: the tenants whose turn may come, scored by their virtual start; one goes with its last call."""
        return f"{self.namespace}:room-turns:{queue}:{level}"

    def room_shares(self, queue: str, level: int) -> str:
        """Sorted set: how far ahead of the others each tenant is; trimmed as they catch up, and when all have left."""
        return f"{self.namespace}:room-shares:{queue}:{level}"

    def room_flows(self, queue: str, level: int, tenant: str) -> str:
        """Sorted set: the flows of a tenant that may move on, scored by when they last did; a flow goes when empty."""
        return f"{self.namespace}:room-flows:{queue}:{level}:{tenant}"

    def room_line(self, queue: str, flow: str) -> str:
        """Sorted set: the waiting calls of a flow in their order; each goes when it moves on."""
        return f"{self.namespace}:room-line:{queue}:{flow}"

    def room_runs(self, queue: str) -> str:
        """Hash: how far each run is in its flow; a run goes with its last waiting call."""
        return f"{self.namespace}:room-runs:{queue}"

    def room_aside(self, queue: str, gate: str) -> str:
        """Sorted set: the flows that wait until a gate opens; each goes when it may move on."""
        return f"{self.namespace}:room-aside:{queue}:{gate}"

    def room_openings(self, queue: str) -> str:
        """Sorted set: the gates that flows wait at, scored by when to look again (ms); one goes with its last flow."""
        return f"{self.namespace}:room-openings:{queue}"

    def room_ends(self, queue: str) -> str:
        """Sorted set: the calls in a waiting room, and each line of plain ones, scored by their deadlines (ms)."""
        return f"{self.namespace}:room-ends:{queue}"

    def room_told(self, queue: str) -> str:
        """Sorted set: the workers that come back to a waiting room, scored by when (ms). Ends soon after the last."""
        return f"{self.namespace}:room-told:{queue}"

    def gate(self, gate: str) -> str:
        """Hash: what a gate remembers of its rate and its pause. Ends a day after that means nothing, or a minute.

        With `passed|` and a call, a string: where the message is that has passed a rate. Ends after a minute.
        """
        return f"{self.namespace}:gate:{gate}"

    def holders(self, gate: str) -> str:
        """Hash: the calls that have a place of a concurrency limit; each goes as it ends, all a day after they must."""
        return f"{self.namespace}:gate-holders:{gate}"

    def limits(self) -> str:
        """Hash: what people have said of limits, by tool or `tool|key`, as JSON; only people add to it."""
        return f"{self.namespace}:limits"

    def tenants(self) -> str:
        """Hash: what people have said of a tenant's share, as JSON; only people add to it."""
        return f"{self.namespace}:tenants"

    def limits_said(self) -> str:
        """String: how often people have said something of limits or shares, one number."""
        return f"{self.namespace}:limits-said"

    def limits_audit(self) -> str:
        """Stream: who has said what of limits and shares, and when; the newest LIMITS_AUDIT_MAX."""
        return f"{self.namespace}:limits-audit"

    def version_shares(self) -> str:
        """Hash: which share of new runs gets a version of a tool, by tool, as sealed JSON; only people add to it."""
        return f"{self.namespace}:version-shares"

    def version_counts(self, tool: str, since_ms: int) -> str:
        """Hash: how calls of a tool's versions have ended since one is tried. Ends VERSION_COUNTS_TTL_S later."""
        return f"{self.namespace}:version-counts:{since_ms}:{tool}"

    def sweeper(self, queue: str) -> str:
        """String: which worker looks after the dead ones of a queue, for a few heartbeats."""
        return f"{self.namespace}:sweeper:{queue}"

    def binding(self, exchange: str) -> str:
        """Set (kombu's own): the queues bound to an exchange, a few bytes each; unbinding or a sweep removes them."""
        return f"{self.namespace}:binding:{exchange}"

    def permanent_binding(self, exchange: str) -> str:
        """Set (kombu's own): the part of `binding` that no sweep may remove."""
        return f"{self.namespace}:binding-permanent:{exchange}"

    def binding_deadlines(self) -> str:
        """Sorted set (kombu's own): when the bindings of expiring queues are swept."""
        return f"{self.namespace}:binding-deadlines"
