/** The thread that keeps a worker's lease, whatever blocks its event loop, and looks after lost workers. */

import { setTimeout as sleep } from "node:timers/promises";
import { workerData } from "node:worker_threads";
import { GROUP, homeOf, keysOf, LEVELS, RETURNED, Store } from "./contract.ts";
import type { Settings } from "./settings.ts";

export interface Orders {
  settings: Settings;
  consumer: string;
  queues: string[];
  lanes: string[];
  /** Counts the turns of the loop that tools run on: one that stands still for too long ends the process. */
  turns: SharedArrayBuffer;
}

const LANE_AT_ONCE = 500;
const { settings, consumer, queues, lanes, turns } = workerData as Orders;
const keys = keysOf(settings.namespace);
const store = new Store(settings.redis);
const leaseMs = settings.leaseS * 500;
const everyMs = Math.min(settings.heartbeatS, settings.leaseS / 6) * 1000;
const missingSince = new Map<string, [since: number, seen: number]>();
let [seenTurns, turnedMs] = [-1, performance.now()];

for (;;) {
  const began = performance.now();
  endIfBlocked(began);
  try {
    await store.redis.set(keys.lease(consumer), "alive", "PX", leaseMs);
    for (const lane of lanes) await store.run("keep_lane", [keys.lane(lane), keys.lanes(homeOf(lane))], [lane, consumer, leaseMs]);
    for (const queue of [...queues, ...lanes]) await sweep(queue);
    for (const lane of await lanesOfOthers()) {
      await sweep(lane);
      await retire(lane);
    }
  } catch (error) {
    console.error(`toolfleet: the lease is renewed again soon: ${String(error)}`);
  }
  await sleep(Math.max(50, everyMs - (performance.now() - began)));
}

function endIfBlocked(now: number): void {
  const counted = Atomics.load(new Int32Array(turns), 0);
  if (counted !== seenTurns) [seenTurns, turnedMs] = [counted, now];
  if (now - turnedMs < settings.blockedLoopS * 1000) return;
  console.error(`toolfleet: a tool has blocked the event loop for ${settings.blockedLoopS} s: this worker ends, others take its calls`);
  process.kill(process.pid, "SIGKILL");
}

/** Return what dead workers held. Only who was missing at each look for a third of a lease is condemned. */
async function sweep(queue: string): Promise<void> {
  const now = performance.now();
  for (const [name, [, seen]] of missingSince) if (now - seen > 3 * everyMs) missingSince.delete(name);
  const condemned = [...missingSince].filter(([, [since, seen]]) => seen - since >= (settings.leaseS * 1000) / 3).map(([name]) => name);
  const post = [consumer, keys.lease(""), keys.sweeper(queue), Math.round(2 * everyMs)];
  const missing = (await store.run("sweep", LEVELS.map((level) => keys.queue(queue, level)), [GROUP, RETURNED, ...post, ...condemned])) as Buffer[];
  for (const name of missing.map(String)) missingSince.set(name, [missingSince.get(name)?.[0] ?? now, now]);
}

async function lanesOfOthers(): Promise<string[]> {
  const known = await Promise.all(queues.map((queue) => store.redis.smembers(keys.lanes(queue))));
  return known.flat().filter((lane) => !lanes.includes(lane));
}

/** Send home what waits in a lane that nobody reads. */
async function retire(lane: string): Promise<void> {
  const streams = LEVELS.flatMap((level) => [keys.queue(lane, level), keys.queue(homeOf(lane), level)]);
  const args = [GROUP, RETURNED, lane, "", LANE_AT_ONCE, keys.claim("")];
  while (((await store.run("retire_lane", [keys.lane(lane), keys.lanes(homeOf(lane)), ...streams], args)) as number) >= LANE_AT_ONCE);
}
