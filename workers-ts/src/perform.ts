/** One delivery from its entry to its end: believed, passed on or claimed, run, settled. */

import { cancelledUnstarted, Delivery, failed, inDoubt, Malformed, OtherVersion } from "./call.ts";
import type { Call, Entry } from "./call.ts";
import { Context } from "./context.ts";
import { GROUP, homeOf, RETURNED, untilTaken } from "./contract.ts";
import type { Keys, Store } from "./contract.ts";
import { execute, RetryAfter, Submitted } from "./execute.ts";
import type { Interruption } from "./execute.ts";
import type { Forwarder } from "./forward.ts";
import { parse, stringify } from "./json.ts";
import { PURPOSE, Refused } from "./seal.ts";
import type { Seal } from "./seal.ts";
import type { Settings } from "./settings.ts";
import type { Settler } from "./settle.ts";
import type { Tool } from "./tool.ts";

const KEPT_S = 86_400;
const REPLIES_MAX = 200_000;
const PROGRESS_EVERY_MS = 200;
const MAX_CHECKPOINT_BYTES = 65_536;
const CLAIM_GRACE_S = 600;
const DEAD_LETTERS_MAX = 10_000;
const DEAD_FIELD_BYTES = 65_536;

export interface Parts {
  store: Store; keys: Keys; seal: Seal; settings: Settings; settler: Settler; forwarder: Forwarder;
  tools: ReadonlyMap<string, Tool>; consumer: string;
}

/** A call that has been handed to this worker, until its message is out of its hands. */
export class Performance {
  readonly entry: Entry;
  callId = "";
  private readonly parts: Parts;
  private readonly abort = new AbortController();
  private readonly interrupted: Promise<Interruption>;
  private interrupting!: (why: Interruption) => void;

  constructor(entry: Entry, parts: Parts) {
    this.entry = entry;
    this.parts = parts;
    this.interrupted = new Promise((interrupt) => (this.interrupting = interrupt));
  }

  /** Have nobody wait for the tool any more. */
  interrupt(why: Interruption): void {
    this.interrupting(why);
    this.abort.abort(new Error(why));
  }

  async perform(): Promise<void> {
    const { settings, seal, settler, tools } = this.parts;
    let delivery: Delivery;
    let call: Call;
    try {
      delivery = new Delivery(this.entry, settings.maxMessageBytes, settings.maxDeliveries);
      call = delivery.opened(seal);
    } catch (error) {
      if (error instanceof OtherVersion) return this.passOn(error.delivery, error.call, undefined);
      if (error instanceof Malformed || error instanceof Refused) return this.bury(error.message);
      throw error;
    }
    const tool = tools.get(call.tool);
    const isOfAnotherVersion = tool !== undefined && call.version !== undefined && call.version !== tool.version;
    if (isOfAnotherVersion) return this.passOn(delivery, call, undefined);
    if (!tool || (delivery.contract && delivery.contract !== tool.contract)) return this.passOn(delivery, call, tool);
    await this.run(delivery, call, tool, settler);
  }

  private async run(delivery: Delivery, call: Call, tool: Tool, settler: Settler): Promise<void> {
    const { settings } = this.parts;
    const repeatable = tool.repeatable && !delivery.sentOnce;
    const refusal = delivery.refusal(call, repeatable, settings.maxDeliveries);
    if (refusal) {
      await settler.settle(delivery, call, refusal);
      return;
    }
    if (!repeatable && !delivery.isClaimedFor(call) && !(await this.claim(call))) return this.drop();
    this.callId = call.call_id;
    const [mark, sealed] = delivery.isNew ? [] : await this.leftovers(call);
    if (mark) {
      await settler.settle(delivery, call, cancelledUnstarted(call.tool));
      return;
    }
    const reports = new Reporter(this.parts, call, sealed !== null && sealed !== undefined);
    const context = new Context(call, delivery.deliveries, this.abort.signal, this.opened(sealed, call), reports);
    if (tool.longRunning) context.progress(0); // whoever asks with its handle learns that it runs
    const result = call.undoes === undefined
      ? await execute(tool, call, context, settings.maxArgumentBytes, repeatable, this.interrupted, (why) => this.interrupt(why))
      : failed("error", `${call.tool} cannot take back what it has done`);
    if (result === "shutdown" && repeatable) return this.handBack();
    if (result instanceof Submitted) return settler.submit(delivery, call, result);
    if (result instanceof RetryAfter) return this.later(delivery, call, result);
    reports.tell(); // before the result, behind which nobody listens
    if (await settler.settle(delivery, call, result === "shutdown" ? inDoubt(call.tool) : result)) await reports.end();
  }

  /** Let the call wait for as long as its tool wants; the model is told where that cannot be. */
  private async later(delivery: Delivery, call: Call, wanted: RetryAfter): Promise<void> {
    const { store, keys, consumer, settler } = this.parts;
    const isInTime = Date.now() / 1000 + wanted.seconds < call.deadline_unix_s;
    if (wanted.tellModel || !isInTime) {
      const why = isInTime ? "" : ", which is after the call's deadline";
      await settler.settle(delivery, call, failed("limit", `${call.tool} is ${wanted.message}${why}.`));
      return;
    }
    const { stream, id } = this.entry;
    const [queue, level] = keys.placeOf(stream);
    const place = [GROUP, consumer, id, keys.queue(homeOf(queue), level), Math.round(wanted.seconds * 1000), keys.claim("")];
    const whose = [call.call_id, call.tenant ?? "", call.run_id, Math.floor(call.deadline_unix_s * 1000)];
    await untilTaken(() => store.run("postpone", [stream, keys.scheduled(homeOf(queue))], [...place, ...whose]));
  }

  /** Claim a call whose effect must happen once. Returns whether no other message of it may have begun. */
  private async claim(call: Call): Promise<boolean> {
    const { store: { redis }, keys, settler } = this.parts;
    const key = keys.claim(call.call_id);
    const ttlS = Math.max(1, Math.floor(call.deadline_unix_s - Date.now() / 1000)) + CLAIM_GRACE_S;
    const [holder, result] = await untilTaken(() => Promise.all([
      redis.call("SET", key, this.entry.id, "NX", "GET", "EX", ttlS),
      redis.getBuffer(keys.result(call.call_id)),
      redis.call("EXPIRE", key, ttlS, "GT"), // the one that is there may be a shorter one
    ]));
    return (holder === null || holder === this.entry.id) && !(result && settler.believes(call.call_id, result));
  }

  /** What an earlier attempt has left: whether the call was cancelled since, and its checkpoint. */
  private leftovers(call: Call): Promise<(Buffer | null)[]> {
    const { store, keys } = this.parts;
    return untilTaken(() => store.redis.mgetBuffer(keys.cancelled(call.call_id), keys.checkpoint(call.call_id)));
  }

  private opened(sealed: Buffer | null | undefined, call: Call): unknown {
    try {
      return sealed ? parse(this.parts.seal.open(PURPOSE.checkpoint(call.call_id), sealed)) : undefined;
    } catch {
      return undefined; // nobody of the fleet has written it
    }
  }

  private async passOn(delivery: Delivery, call: Call, tool: Tool | undefined): Promise<void> {
    const { forwarder, settler, tools } = this.parts;
    if (await forwarder.passOn(delivery, call, tool !== undefined)) return;
    if (tool) return this.run(delivery, call, tool, settler);
    if (delivery.sentOnce && delivery.deliveries > 1) {
      await settler.settle(delivery, call, inDoubt(call.tool));
      return;
    }
    const known = [...tools.keys()].join(", ");
    const wanted = call.version === undefined ? call.tool : `version ${call.version} of ${call.tool}`;
    const why = `no live worker serves ${wanted}, and none came in time. The worker that gave it up has: ${known}`;
    await settler.settle(delivery, call, failed("unknown_tool", why));
  }

  /** Give the message to another worker, as if this one had never had it. */
  handBack(): Promise<void> {
    const { stream, id } = this.entry;
    return handBack(this.parts, stream, [id]);
  }

  /** It is a copy of a call that another message has claimed: nothing is owed. */
  private async drop(): Promise<void> {
    const { store: { redis }, keys } = this.parts;
    const { stream, id } = this.entry;
    await untilTaken(() => redis.multi().xack(stream, GROUP, id).xdel(stream, id).hincrby(keys.counters, "duplicate_messages", 1).exec());
  }

  private async bury(reason: string): Promise<void> {
    const { store, keys } = this.parts;
    const { stream, id } = this.entry;
    const [queue] = keys.placeOf(stream);
    const args = [GROUP, DEAD_LETTERS_MAX, queue, DEAD_FIELD_BYTES, id, reason];
    await untilTaken(() => store.run("bury", [stream, keys.dead, keys.counters], args));
    console.error(`toolfleet: dead_letter ${stream} ${id}: ${reason}`);
  }
}

/** Give messages that never came to a start to other workers: these deliveries do not count. */
export async function handBack({ store, consumer }: Parts, stream: string, ids: string[]): Promise<void> {
  if (ids.length > 0) await untilTaken(() => store.run("park", [stream], [GROUP, consumer, RETURNED, 1, ...ids]));
}

/** What one call tells while it runs: the newest progress a few times a second, and each checkpoint. */
class Reporter {
  private newest: [number, string] | undefined;
  private clock: NodeJS.Timeout | undefined;
  private written: Promise<unknown> = Promise.resolve();
  private hasCheckpoint: boolean;
  private readonly parts: Parts;
  private readonly call: Call;

  constructor(parts: Parts, call: Call, hasCheckpoint: boolean) {
    [this.parts, this.call, this.hasCheckpoint] = [parts, call, hasCheckpoint];
  }

  progress(fraction: number, message: string): void {
    this.newest = [fraction, message.toWellFormed()];
    if (!this.clock) this.tell();
  }

  /** Tell the newest now, unless it is told already. */
  tell(): void {
    const { store, keys, seal } = this.parts;
    const { call_id, reply_to } = this.call;
    clearTimeout(this.clock);
    this.clock = undefined;
    if (!this.newest) return;
    const [fraction, message] = this.newest;
    this.newest = undefined;
    const sealed = seal.close(PURPOSE.progress(call_id), JSON.stringify({ type: "progress", fraction, message }));
    const replies = keys.replies(reply_to);
    const sent = store.redis.pipeline().set(keys.progress(call_id), sealed, "EX", KEPT_S)
      .xadd(replies, "MAXLEN", "~", REPLIES_MAX, "*", "c", call_id, "p", sealed).expire(replies, KEPT_S).exec();
    sent.catch(() => undefined); // the next one says more
    this.clock = setTimeout(() => this.tell(), PROGRESS_EVERY_MS);
    this.clock.unref();
  }

  callbackUrl(): string {
    const { settings: { publicUrl }, seal } = this.parts;
    const { call_id, deadline_unix_s } = this.call;
    if (!publicUrl) throw new Error("no address of the HTTP API is known: set TOOLFLEET_PUBLIC_URL where the workers run");
    const expires = Math.floor(deadline_unix_s);
    const query = new URLSearchParams({ expires: String(expires), signature: seal.sign(PURPOSE.callback(call_id), String(expires)) });
    return `${publicUrl}/v1/handles/${encodeURIComponent(call_id)}/complete?${query}`;
  }

  async checkpoint(data: unknown): Promise<void> {
    const { store, keys, seal } = this.parts;
    const { call_id, deadline_unix_s } = this.call;
    const text = stringify(data);
    if (text === undefined || Buffer.byteLength(text) > MAX_CHECKPOINT_BYTES) {
      throw new Error(`a checkpoint is JSON of at most ${MAX_CHECKPOINT_BYTES} bytes: keep the work itself elsewhere`);
    }
    const ttlS = Math.max(1, Math.floor(deadline_unix_s - Date.now() / 1000)) + CLAIM_GRACE_S;
    this.hasCheckpoint = true;
    this.written = untilTaken(() => store.redis.set(keys.checkpoint(call_id), seal.close(PURPOSE.checkpoint(call_id), text), "EX", ttlS));
    await this.written;
  }

  /** The call is settled: nothing goes on from its checkpoint. */
  async end(): Promise<void> {
    clearTimeout(this.clock);
    this.newest = undefined;
    if (!this.hasCheckpoint) return;
    await this.written;
    await untilTaken(() => this.parts.store.redis.del(this.parts.keys.checkpoint(this.call.call_id)));
  }
}
