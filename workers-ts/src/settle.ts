/** Results into Redis: stored, told and acknowledged in one step, and only by who still owns the call. */

import type { Call, Delivery } from "./call.ts";
import { untilTaken } from "./contract.ts";
import type { Argument, Keys, Store } from "./contract.ts";
import type { Result, ReturnedRecord, Submitted } from "./execute.ts";
import { stringify } from "./json.ts";
import { PURPOSE } from "./seal.ts";
import type { Seal } from "./seal.ts";
import type { Settings } from "./settings.ts";
import { digest } from "./tool.ts";

const MAX_BATCH = 200;
const PIECE_BYTES = 256 * 1024;
const MAX_PREVIEW_BYTES = 8192;
const ALREADY = 2;
const SETTLED = 1;
const JOB_KEPT_S = 86_400;

interface Waiting { delivery: Delivery; call: Call; sealed: Buffer; done: (outcome: number) => void }

export class Settler {
  private waiting: Waiting[] = [];
  private readonly store: Store;
  private readonly keys: Keys;
  private readonly seal: Seal;
  private readonly settings: Settings;
  private readonly worker: string;
  private readonly consumer: string;

  constructor(store: Store, keys: Keys, seal: Seal, settings: Settings, worker: string, consumer: string) {
    [this.store, this.keys, this.seal, this.settings] = [store, keys, seal, settings];
    [this.worker, this.consumer] = [worker, consumer];
  }

  /** Settle a call with this result, however long Redis is away. Returns whether it was still ours. */
  async settle(delivery: Delivery, call: Call, result: Result): Promise<boolean> {
    const fitting = result.type === "returned" ? await this.fit(result, call) : result;
    const endedS = Math.max(delivery.cameS, Date.now() / 1000);
    const attempt = { worker: this.worker, number: delivery.deliveries, began_unix_s: delivery.cameS, ended_unix_s: endedS };
    const sealed = this.seal.close(PURPOSE.result(call.call_id), stringify({ ...fitting, attempt })!);
    const outcome = await new Promise<number>((done) => {
      // What ends in one turn of the loop goes together.
      if (this.waiting.push({ delivery, call, sealed, done }) === 1) setImmediate(() => void this.flush());
    });
    if (outcome === 0) console.error(`toolfleet: late_result_dropped ${call.call_id}`);
    return outcome !== 0;
  }

  /** Put a job in another system in the place of a call: who ends it there tells the fleet over HTTP. */
  async submit(delivery: Delivery, call: Call, { externalId, message, askAfterS }: Submitted): Promise<void> {
    const { keys, seal, store } = this;
    const { call_id, deadline_unix_s, reply_to, tool } = call;
    const [submittedS, attempt] = [Date.now() / 1000, delivery.deliveries];
    const about = {
      v: 1, external_id: externalId, poll_after_s: askAfterS, submitted_unix_s: submittedS, attempt,
      message: message.toWellFormed(), polled: false, cancellable: false,
    };
    const record = `{"call":${delivery.text},${JSON.stringify(about).slice(1)}`; // the call digit for digit
    const told = { type: "submitted", poll_after_s: askAfterS, message: message.toWellFormed() }; // the id is nobody's business
    const asked = {
      stream: delivery.entry.stream, consumer: this.consumer, entry: delivery.entry.id, gates: delivery.gates, call: call_id, tool,
      reply_to, name: `${attempt} ${Math.floor(submittedS * 1000)}`, is_scheduled: false, first_wait_ms: 0,
      deadline_ms: Math.floor(deadline_unix_s * 1000), ends_ms: Math.floor((deadline_unix_s + JOB_KEPT_S) * 1000),
    };
    const places = [keys.result(call_id), keys.job(call_id), keys.jobs(tool), keys.cancelled(call_id), keys.replies(reply_to), keys.jobEnded(call_id)];
    const args = [JSON.stringify(asked), seal.close(PURPOSE.job(call_id), record), seal.close(PURPOSE.result(call_id), JSON.stringify(told))];
    await untilTaken(() => store.run("submit_job", places, args));
  }

  private async flush(): Promise<void> {
    const [all, at] = [this.waiting, MAX_BATCH];
    this.waiting = [];
    for (let from = 0; from < all.length; from += at) await this.send(all.slice(from, from + at));
  }

  private async send(batch: Waiting[]): Promise<void> {
    const { keys } = this;
    const args: Argument[] = [keys.job("")];
    for (const { delivery, call, sealed } of batch) {
      const places = delivery.places;
      args.push(delivery.entry.stream, this.consumer, keys.result(""), keys.replies(call.reply_to), 1);
      args.push(delivery.entry.id, call.call_id, sealed, delivery.gates ? places.length : "", ...(delivery.gates ? places : []));
    }
    const outcomes = (await untilTaken(() => this.store.run("settle", [], args))) as number[];
    for (const [at, each] of batch.entries()) {
      each.done(outcomes[at] === ALREADY ? await this.unlessForged(each) : outcomes[at]!);
    }
  }

  /** A result that nobody of the fleet has sealed is none: ours takes its place. */
  private async unlessForged({ call, sealed }: Waiting): Promise<number> {
    const { keys, store } = this;
    const found = await untilTaken(() => store.redis.getBuffer(keys.result(call.call_id)));
    if (!found || this.believes(call.call_id, found)) return ALREADY;
    await untilTaken(() => store.redis.hincrby(keys.counters, "forged_results", 1));
    const args = [keys.result(""), call.call_id, found, sealed, keys.replies(call.reply_to)];
    return (await untilTaken(() => store.run("replace_result", [], args))) as number;
  }

  /** Whether a stored result is one that the fleet has sealed. */
  believes(callId: string, sealed: Buffer): boolean {
    try {
      return !this.seal.open(PURPOSE.result(callId), sealed).startsWith('{"type":"submitted"');
    } catch {
      return false;
    }
  }

  /** Keep what is too large to travel as an artifact of the call's run, and have the result show its ends. */
  private async fit(result: ReturnedRecord, call: Call): Promise<ReturnedRecord> {
    const { maxResultBytes, maxArtifactBytes } = this.settings;
    const data = Buffer.from(result.content);
    if (data.length <= maxResultBytes) return result;
    if (data.length > maxArtifactBytes || !(await this.keep(data, call))) {
      const kept = new TextDecoder().decode(data.subarray(0, maxResultBytes)).replace(/\ufffd+$/, "");
      return { ...result, content: `${kept}\n[cut: the result has ${data.length} bytes, the first ${Buffer.byteLength(kept)} are shown]` };
    }
    const artifact = digest(data);
    return { ...result, artifact, content: preview(result.content, artifact, maxResultBytes) };
  }

  private async keep(data: Buffer, call: Call): Promise<boolean> {
    const { keys, settings } = this;
    const [artifact, tenant, run] = [digest(data), call.tenant ?? "", call.run_id];
    const pieces = [];
    for (let from = 0; from < data.length; from += PIECE_BYTES) pieces.push(digest(data.subarray(from, from + PIECE_BYTES)));
    const grant = { v: 1, tenant, media_type: "text/plain; charset=utf-8", name: "", size_bytes: data.length, pieces };
    const sealed = this.seal.close(PURPOSE.grant(run, artifact), JSON.stringify(grant));
    const places = [keys.artifact(tenant, artifact), keys.artifactGrant(run, artifact), keys.artifactRuns(tenant, artifact), keys.artifactsOf(run)];
    const args = [artifact, run, keys.deleted(run), sealed, settings.keepArtifactS, data];
    try {
      return (await this.store.run("keep_artifact", places, args)) === SETTLED;
    } catch (error) {
      console.error(`toolfleet: artifact_not_kept ${call.call_id}: ${String(error)}`);
      return false;
    }
  }
}

/** The beginning and the end of a text, and how the model reads on; in characters as every language counts them. */
function preview(text: string, artifact: string, maxBytes: number): string {
  const characters = [...text];
  const lines = text.split("\n").length;
  const size = `${characters.length} characters in ${lines} line${lines > 1 ? "s" : ""}`;
  const how = `[the whole result has ${size}; read on with read_result(artifact="${artifact}", offset=…), or find something in it with search="…"]`;
  const room = Math.max(64, Math.min(MAX_PREVIEW_BYTES, maxBytes) - Buffer.byteLength(how) - 80);
  const within = (from: string[], bytes: number) => {
    let end = 0;
    for (let left = bytes; end < from.length && (left -= Buffer.byteLength(from[end]!)) >= 0; ) end += 1;
    return from.slice(0, end);
  };
  const head = within(characters, Math.floor((room * 3) / 4));
  const tail = within(characters.slice(-room).reverse(), Math.floor(room / 4)).reverse();
  const left = characters.length - head.length - tail.length;
  return `${head.join("")}\n[… ${left} characters left out …]\n${tail.join("")}\n${how}`;
}
