/** A worker's life: it joins, announces its tools, reads until it is asked to stop, and ends what it has. */

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { basename, extname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Worker as Thread } from "node:worker_threads";
import { VERSION } from "./call.ts";
import type { Orders as CompanionOrders } from "./companion.ts";
import { GONE_MS, GROUP, homeOf, keysOf, LEVELS, RETURNED, Store, untilTaken } from "./contract.ts";
import type { Keys } from "./contract.ts";
import { Forwarder, liveWorkers } from "./forward.ts";
import type { Orders } from "./lease_thread.ts";
import { Reader } from "./reader.ts";
import { Seal } from "./seal.ts";
import { Misconfigured, readSettings } from "./settings.ts";
import type { Settings } from "./settings.ts";
import { Settler } from "./settle.ts";
import { digest, laneOf } from "./tool.ts";
import type { Tool } from "./tool.ts";

const ANNOUNCED_FOR_S = 30;
const CANCEL_LOOK_MS = 250;
const LANE_AT_ONCE = 500;
const EXIT_CONFIGURATION = 78;
/** What Redis says where asking again will not help. */
const REFUSALS = /^(WRONGPASS|NOAUTH|NOPERM|ERR DB index)/;
/** How long a worker may take, once nothing may run any more, before it goes without a word to Redis. */
const GOES_WITHIN_MS = 10_000;

export interface Options {
  tools: Tool[];
  /** Calls at the same time; those of tools that only wait cost little. */
  concurrency?: number;
  /** The name that others see, without the host; one is made up unless it is given. */
  name?: string;
  /** Where the tools are declared: another worker may serve a tool of the same name only from the same place. */
  source?: string;
}

/** Serve tools until SIGTERM or SIGINT; then the process ends. What it is set up with cannot be used: status 78. */
export async function serve(options: Options): Promise<never> {
  // What a tool throws past its call, in a timer or a promise that nobody awaits, must not take the other calls along.
  for (const stray of ["unhandledRejection", "uncaughtException"]) {
    process.on(stray, (error: unknown) => console.error("toolfleet: a tool has thrown past its call", error));
  }
  try {
    const worker = new Worker(options, readSettings());
    await worker.start();
    const asked = Promise.withResolvers<void>();
    let signals = 0;
    const hear = () => (signals++ === 0 ? asked.resolve() : worker.endGrace());
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, hear);
    await asked.promise;
    await worker.drain();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const isRefused = REFUSALS.test(why);
    console.error(`toolfleet worker: ${isRefused ? "Redis refuses us: " : ""}${why}`);
    process.exit(isRefused || error instanceof Misconfigured ? EXIT_CONFIGURATION : 1);
  }
  process.exit(0);
}

/** Another program of this package, whether it was compiled or is run as it is written. */
const beside = (name: string) => new URL(`./${name}${extname(import.meta.url)}`, import.meta.url);

class Worker {
  private readonly options: Options;
  private readonly settings: Settings;
  private readonly keys: Keys;
  private readonly seal: Seal;
  private readonly store: Store;
  private readonly name: string;
  private readonly consumer = `${hostname()}-${process.pid}-${randomBytes(4).toString("hex")}`;
  private readonly startedS = Date.now() / 1000;
  private readonly slots: number;
  private readonly queues: string[];
  private readonly lanes: Record<string, string>;
  private readonly reader: Reader;
  private readonly graceEnds = new AbortController();
  private readonly timers: NodeJS.Timeout[] = [];
  private reading!: Promise<void>;
  private thread!: Thread;
  private companion: ChildProcess | undefined;
  private saidMs = 0;

  constructor(options: Options, settings: Settings) {
    const { tools } = options;
    if (tools.length === 0) throw new Misconfigured("a worker needs a tool: pass tools: [...]");
    if (new Set(tools.map(({ name }) => name)).size < tools.length) throw new Misconfigured("two tools have one name");
    this.options = options;
    this.settings = settings;
    this.slots = options.concurrency ?? 100;
    this.keys = keysOf(settings.namespace);
    this.seal = new Seal(settings.secrets);
    this.store = new Store(settings.redis);
    this.name = `${options.name ?? `node-${process.pid}-${randomBytes(2).toString("hex")}`}@${hostname()}`;
    this.queues = [...new Set(tools.map(({ queue }) => queue))].sort();
    this.lanes = Object.fromEntries(this.queues.map((queue) => [queue, laneOf(queue, tools)]));
    const { store, keys, seal, consumer } = this;
    const settler = new Settler(store, keys, seal, settings, this.name, consumer);
    const forwarder = new Forwarder(store, keys, seal, consumer);
    const byName = new Map(tools.map((tool) => [tool.name, tool]));
    const parts = { store, keys, seal, settings, settler, forwarder, tools: byName, consumer };
    this.reader = new Reader(parts, this.queues, Object.values(this.lanes), this.slots);
  }

  /** Returns when its tools are announced and its calls are read. Throws Misconfigured. */
  async start(): Promise<void> {
    // The client would go on in another database than one that is not there.
    await this.store.redis.select(this.settings.redis.db ?? 0);
    await this.join();
    await this.takeLease();
    await this.announce();
    this.accompany();
    this.reading = this.reader.read();
    this.timers.push(setInterval(() => void this.lookForCancels(), CANCEL_LOOK_MS));
    this.timers.push(setInterval(() => void this.announceAgain(), (ANNOUNCED_FOR_S / 3) * 1000));
  }

  /** Read no more, let running calls end within the grace, give the rest to others, and let go of everything. */
  async drain(): Promise<void> {
    for (const timer of this.timers.slice(1)) clearInterval(timer);
    setTimeout(() => process.exit(1), this.settings.graceS * 1000 + GOES_WITHIN_MS).unref();
    await untilTaken(() => this.store.redis.multi().del(this.keys.worker(this.name)).zrem(this.keys.workers, this.name).exec());
    this.reader.stop();
    await this.reading;
    const late = AbortSignal.any([this.graceEnds.signal, AbortSignal.timeout(this.settings.graceS * 1000)]);
    while (this.reader.running.size > 0 && !late.aborted) await sleep(20);
    for (const performance of this.reader.running.values()) performance.interrupt("shutdown");
    while (this.reader.running.size > 0) await sleep(5);
    await this.thread.terminate();
    for (const queue of [...this.queues, ...Object.values(this.lanes)]) await this.leave(queue);
    this.companion?.kill("SIGKILL");
  }

  /** A second signal: nothing is waited for any more. */
  endGrace(): void {
    this.graceEnds.abort();
    setTimeout(() => process.exit(1), GOES_WITHIN_MS).unref();
  }

  /** Refuse to take the calls of a fleet whose secret is another one: they would all be thrown away. */
  private async join(): Promise<void> {
    const { store, keys, seal } = this;
    const { ours, others } = await liveWorkers(store, keys, seal);
    const orchestrators = await store.redis.zrange(keys.orchestrators, "0", "-1");
    const shown = orchestrators.length > 0 ? await store.redis.mget(...orchestrators.map(keys.orchestratorProofs)) : [];
    const known = orchestrators.some((name, at) => {
      const own = seal.proofs(name);
      return own.some((proof) => shown[at]?.includes(proof));
    });
    if (ours.length > 0 || known || (others.length === 0 && shown.every((each) => !each))) return;
    throw new Misconfigured("all others of this fleet use another TOOLFLEET_SECRET than this process: set the same one everywhere");
  }

  private async takeLease(): Promise<void> {
    const { settings, consumer, queues } = this;
    await this.store.redis.set(this.keys.lease(consumer), "alive", "PX", settings.leaseS * 500);
    const turns = new SharedArrayBuffer(4);
    const counter = new Int32Array(turns);
    this.timers.push(setInterval(() => Atomics.add(counter, 0, 1), 1000));
    const orders: Orders = { settings, consumer, queues, lanes: Object.values(this.lanes), turns };
    this.thread = new Thread(beside("lease_thread"), { workerData: orders });
    this.thread.on("error", (error) => {
      console.error("toolfleet: the thread that keeps the lease has failed", error);
      process.exit(1); // without it others take our calls: better at once
    });
  }

  /** Start the process that tells at once when this one is killed. Without it nothing is lost but time. */
  private accompany(): void {
    const { settings, consumer, reader: { streams } } = this;
    // A group of its own: Ctrl-C is for the worker.
    this.companion = spawn(process.execPath, [fileURLToPath(beside("companion"))], { stdio: ["pipe", "ignore", "inherit"], detached: true });
    this.companion.on("error", (error) => console.error(`toolfleet: no companion: ${error.message}`));
    this.companion.stdin!.on("error", () => undefined);
    this.companion.stdin!.write(JSON.stringify({ settings, consumer, streams } satisfies CompanionOrders));
    this.companion.unref();
  }

  private async announce(): Promise<void> {
    const { tools } = this.options;
    const place = this.options.source ?? basename(process.argv[1] ?? "node").replace(/\.[cm]?[jt]s$/, "");
    const sources = Object.fromEntries(tools.map(({ name }) => [name, `${place}:${name}`]));
    const [seconds, microseconds] = ((await this.store.redis.time()) as unknown[]).map(Number) as [number, number];
    this.saidMs = Math.max(seconds * 1000 + Math.floor(microseconds / 1000), this.saidMs + 1);
    const announced = {
      v: 1, worker: this.name, pid: process.pid, pool: "node", concurrency: this.slots, queues: this.queues,
      started_unix_s: this.startedS, tools: tools.map(({ spec }) => spec), proofs: this.seal.proofs(this.name),
      sources, lanes: this.lanes, not_served: {}, ailing: [], reads: [VERSION],
    };
    const variants = tools.map(({ name, spec }) => `${digest(JSON.stringify(spec)).slice(0, 16)} ${sources[name]}`);
    const sealed = this.seal.closeAnnouncement(this.name, this.saidMs, JSON.stringify(announced));
    const keys = [this.keys.workers, this.keys.worker(this.name), ...tools.map(({ name }) => this.keys.spec(name))];
    const [position, variant] = (await this.store.run("announce", keys, [ANNOUNCED_FOR_S, this.name, sealed, ...variants])) as [number, Buffer];
    if (position < 0) return;
    const [clash, other] = [tools[position]!.name, String(variant).split(" ").slice(1).join(" ")];
    throw new Misconfigured(`live workers serve another tool as ${clash}, from ${other}: stop them first, or rename the tool`);
  }

  private async announceAgain(): Promise<void> {
    try {
      await this.announce();
    } catch (error) {
      console.error(`toolfleet: not_announced: ${String(error)}`);
      if (error instanceof Misconfigured) process.kill(process.pid, "SIGTERM"); // its calls would be meant for others
    }
  }

  private async lookForCancels(): Promise<void> {
    const running = [...this.reader.running.values()].filter(({ callId }) => callId);
    if (running.length === 0) return;
    try {
      const marks = await this.store.redis.mgetBuffer(...running.map(({ callId }) => this.keys.cancelled(callId)));
      for (const [at, each] of running.entries()) if (this.seal.isCancel(each.callId, marks[at]!)) each.interrupt("cancelled");
    } catch (error) {
      console.error(`toolfleet: cancels are looked for again soon: ${String(error)}`);
    }
  }

  private async leave(queue: string): Promise<void> {
    const { store, keys, consumer } = this;
    const streams = LEVELS.map((level) => keys.queue(queue, level));
    await untilTaken(() => store.run("leave", [keys.lease(consumer), ...streams], [GROUP, RETURNED, consumer, GONE_MS]));
    if (homeOf(queue) === queue) return;
    const places = [keys.lane(queue), keys.lanes(homeOf(queue)), ...LEVELS.flatMap((level) => [keys.queue(queue, level), keys.queue(homeOf(queue), level)])];
    const args = [GROUP, RETURNED, queue, consumer, LANE_AT_ONCE, keys.claim("")];
    while (((await untilTaken(() => store.run("retire_lane", places, args))) as number) >= LANE_AT_ONCE);
  }
}
