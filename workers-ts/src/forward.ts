/** Who else is there: what live workers announce, and calls passed on to those who serve them. */

import type { Call, Delivery } from "./call.ts";
import { GROUP, homeOf, untilTaken } from "./contract.ts";
import type { Argument, Keys, Store } from "./contract.ts";
import { unsealedAnnouncement } from "./seal.ts";
import type { Seal } from "./seal.ts";

const ANNOUNCED_FOR_S = 30;
const LOOK_AGAIN_MS = 1000;
const PASS_AGAIN_MS = 200;
const UNSERVED_FOR_MS = 30_000;
const STILL_OURS = 3;

export interface Announcement {
  worker: string;
  concurrency: number;
  tools: { name: string; queue: string; digest?: string; version?: number }[];
  proofs: string[];
  lanes: Record<string, string>;
  reads?: number[];
}

/** The live workers whose announcement is sealed with our secret, and what the others show of theirs. */
export async function liveWorkers(store: Store, keys: Keys, seal: Seal): Promise<{ ours: Announcement[]; others: string[][] }> {
  const [nowS] = (await store.redis.time()) as unknown as [number];
  const names = await store.redis.zrangebyscore(keys.workers, Number(nowS) - ANNOUNCED_FOR_S, "+inf", "LIMIT", 0, 10_000);
  const texts = names.length > 0 ? await store.redis.mgetBuffer(...names.map(keys.worker)) : [];
  const ours: Announcement[] = [];
  const others: string[][] = [];
  for (const [at, sealed] of texts.entries()) {
    if (!sealed) continue;
    try {
      ours.push(JSON.parse(seal.openAnnouncement(names[at]!, sealed)[1]) as Announcement);
    } catch {
      others.push(proofsIn(unsealedAnnouncement(sealed)));
    }
  }
  return { ours, others: others.filter((proofs) => proofs.length > 0) };
}

function proofsIn(text: string): string[] {
  try {
    const { proofs } = JSON.parse(text) as { proofs?: unknown };
    return Array.isArray(proofs) ? proofs.map(String) : [];
  } catch {
    return [];
  }
}

/** Passes calls on that this worker should not run: the delivery does not count, and a claim stays with the message. */
export class Forwarder {
  private workers: Announcement[] = [];
  private lookedMs = -Infinity;
  private readonly store: Store;
  private readonly keys: Keys;
  private readonly seal: Seal;
  private readonly consumer: string;

  constructor(store: Store, keys: Keys, seal: Seal, consumer: string) {
    [this.store, this.keys, this.seal, this.consumer] = [store, keys, seal, consumer];
  }

  /** Returns whether the message is out of our hands. With `canRun`, only to who serves the very version it was offered with. */
  passOn(delivery: Delivery, call: Call, canRun: boolean): Promise<boolean> {
    return untilTaken(async () => {
      let lanes = await this.lanesWith(call, delivery.contract);
      if (lanes.length === 0 && canRun) return false;
      if (lanes.length === 0) lanes = await this.lanesWith(call, "");
      const [queue, level] = this.keys.placeOf(delivery.entry.stream);
      const home = homeOf(queue);
      const keys: Argument[] = [delivery.entry.stream, this.keys.scheduled(home)];
      for (const lane of lanes) keys.push(this.keys.lane(lane), this.keys.queue(lane, level));
      const pauseMs = canRun ? 0 : lanes.length > 0 ? PASS_AGAIN_MS : LOOK_AGAIN_MS;
      const args = [GROUP, this.consumer, delivery.entry.id, this.keys.queue(home, level), pauseMs];
      args.push(lanes.length > 0 ? -1 : UNSERVED_FOR_MS, Math.floor(call.deadline_unix_s * 1000), this.keys.claim(""));
      return (await this.store.run("forward", keys, args)) !== STILL_OURS;
    });
  }

  /** The lanes whose readers serve the call, in an order by chance; `contract`: only under this one. */
  private async lanesWith(call: Call, contract: string): Promise<string[]> {
    if (Date.now() - this.lookedMs >= LOOK_AGAIN_MS) {
      this.workers = (await liveWorkers(this.store, this.keys, this.seal)).ours;
      this.lookedMs = Date.now();
    }
    const lanes = new Map<string, number>();
    for (const { tools, concurrency, lanes: read, reads } of this.workers) {
      const served = tools.find(({ name, digest, version }) =>
        name === call.tool && (!contract || !digest || digest === contract) && (!call.version || call.version === version));
      const lane = served && (reads ?? [1]).includes(call.v) ? read[served.queue] : undefined;
      if (lane) lanes.set(lane, Math.random() ** (1 / Math.max(1, concurrency)));
    }
    return [...lanes.entries()].sort(([, one], [, other]) => other - one).map(([lane]) => lane);
  }
}
