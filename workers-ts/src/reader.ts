/** Reads a worker's streams: no more than it has slots for, in the order that the fetch script gives. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import type { Entry } from "./call.ts";
import { GROUP, LEVELS, RETURNED } from "./contract.ts";
import { handBack, Performance } from "./perform.ts";
import type { Parts } from "./perform.ts";

const WAIT_MS = 1000;
/** A reply later than this was waiting here; others may have what it brings. */
const LATE_MS = 500;
const FETCH_EVERY_MS = 1000;
/** Messages in a row of which the fetch script says once what is true of all; last, the id and the values of each in turn. */
type Alike = [position: number, deliveries: number, claimed: number, cancelled: number, returned: number, names: Buffer[], told: Buffer[]];
const SAY_SLOTS_EVERY_MS = 5000;
const LOST_REPLY_MS = 2500;
const LOOK_AT_ONCE = -2;

export class Reader {
  /** What this worker has, by entry. */
  readonly running = new Map<string, Performance>();
  readonly streams: string[];
  private readonly scheduled: string[];
  private readonly parts: Parts;
  private readonly slots: number;
  private readonly waiting: Redis;
  private stopping = false;
  private mustFetch = true;
  private nextDueMs = -1;
  private fetchedMs = -Infinity;
  private saidMs = -Infinity;
  private soughtMs = -Infinity;
  private clientId = 0;
  private freed: (() => void) | undefined;

  constructor(parts: Parts, queues: string[], lanes: string[], slots: number) {
    [this.parts, this.slots] = [parts, slots];
    // A read that waits needs a connection of its own.
    this.waiting = parts.store.redis.duplicate();
    this.waiting.on("error", () => undefined);
    this.streams = LEVELS.flatMap((level) => [...lanes, ...queues].map((queue) => parts.keys.queue(queue, level)));
    this.scheduled = queues.map(parts.keys.scheduled);
  }

  /** Read until `stop`; then nothing is read any more that is not handed back. */
  async read(): Promise<void> {
    while (!this.stopping) {
      try {
        for (const entry of await this.readOnce()) this.take(entry);
      } catch (error) {
        console.error(`toolfleet: reading goes on soon: ${String(error)}`);
        this.mustFetch = true;
        await sleep(WAIT_MS);
      }
    }
    await this.findLost(0);
    this.waiting.disconnect();
  }

  stop(): void {
    this.stopping = true;
    this.freed?.();
    void this.parts.store.redis.client("UNBLOCK", this.clientId).catch(() => undefined);
  }

  private async readOnce(): Promise<Entry[]> {
    const now = Date.now();
    const credit = this.slots - this.running.size;
    if (now - this.soughtMs >= this.parts.settings.heartbeatS * 1000) await this.findLost(LOST_REPLY_MS);
    if (credit <= 0) {
      this.mustFetch = true; // what came while all slots were taken is in the waiting room
      await new Promise<void>((free) => (this.freed = free));
      return [];
    }
    return this.mustFetch || now - this.fetchedMs >= FETCH_EVERY_MS ? this.fetch(credit, now) : this.wait(credit, now);
  }

  private async fetch(credit: number, now: number): Promise<Entry[]> {
    const { store, keys, consumer } = this.parts;
    this.fetchedMs = now;
    const slots = now - this.saidMs >= SAY_SLOTS_EVERY_MS ? this.slots : 0;
    const prefixes = [keys.claim(""), keys.cancelled(""), keys.result(""), keys.counters];
    const reply = await store.run("fetch", this.streams, [GROUP, consumer, RETURNED, credit, ...prefixes, slots, ...this.scheduled]);
    const [nextDueMs, found] = reply as [number, Alike[]];
    if (slots > 0) this.saidMs = now;
    this.nextDueMs = nextDueMs;
    const entries = found.flatMap((alike) => this.entriesOf(alike));
    this.mustFetch = entries.length >= credit || nextDueMs === LOOK_AT_ONCE;
    return entries;
  }

  private entriesOf([position, deliveries, claimed, cancelled, returned, names, told]: Alike): Entry[] {
    const width = 1 + names.length;
    return Array.from({ length: told.length / width }, (_, number) => ({
      stream: this.streams[position - 1]!, id: told[number * width]!.toString(), deliveries,
      fields: names.flatMap((name, at) => [name, told[number * width + 1 + at]!]),
      claimed: claimed === 1, cancelled: cancelled === 1, returned: returned === 1,
    }));
  }

  /** Wait for what is new: it arrives at once, and was delivered once, without a claim. */
  private async wait(credit: number, now: number): Promise<Entry[]> {
    const { streams, parts } = this;
    const count = Math.max(1, Math.floor(credit / streams.length));
    const waitMs = Math.max(1, Math.min(WAIT_MS, this.nextDueMs >= 0 ? this.nextDueMs : WAIT_MS));
    this.clientId = await this.waiting.client("ID");
    if (this.stopping) return [];
    const read = ["GROUP", GROUP, parts.consumer, "COUNT", count, "BLOCK", waitMs, "STREAMS", ...streams, ...streams.map(() => ">")];
    const reply = (await this.waiting.callBuffer("XREADGROUP", ...read)) as [Buffer, [Buffer, Buffer[]][]][] | null;
    this.mustFetch = !reply || reply.some(([, entries]) => entries.length >= count);
    const read_ = (reply ?? []).flatMap(([stream, entries]) => entries.map(([id, fields]) => ({
      stream: stream.toString(), id: id.toString(), fields, deliveries: 1, claimed: false, cancelled: false, returned: false,
    })));
    if (Date.now() - now <= waitMs + LATE_MS) return read_;
    const held = await Promise.all(read_.map(({ stream, id }) => parts.store.redis.xpending(stream, GROUP, id, id, 1, parts.consumer)));
    return read_.filter((_, at) => held[at]!.length > 0);
  }

  private take(entry: Entry): void {
    const place = `${entry.stream} ${entry.id}`;
    const performance = new Performance(entry, this.parts);
    if (this.stopping) return void performance.handBack();
    this.running.set(place, performance);
    void performance.perform()
      .catch((error: unknown) => console.error(`toolfleet: not performed, others will be given it: ${place}`, error))
      .finally(() => {
        this.running.delete(place);
        this.freed?.();
      });
  }

  /** Hand back what Redis has delivered to this worker, in a reply that was lost, and nobody here has seen. */
  private async findLost(idleMs: number): Promise<void> {
    const { store, consumer } = this.parts;
    this.soughtMs = Date.now();
    for (const stream of this.streams) {
      const pending = await store.redis.xpending(stream, GROUP, "IDLE", idleMs, "-", "+", 1000, consumer).catch(() => []);
      const ids = (pending as [string][]).map(([id]) => id).filter((id) => !this.running.has(`${stream} ${id}`));
      await handBack(this.parts, stream, ids);
    }
  }
}
