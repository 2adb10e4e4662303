/** The keys of Redis and the scripts of the contract (`wire/v1`), each by its name. Knows what they are called, not why. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import type { RedisOptions } from "ioredis";

export const GROUP = "workers";
export const RETURNED = "@returned";
export const LEVELS = [0, 3, 6] as const;
/** How long a consumer that has ended is remembered as such. */
export const GONE_MS = 300_000;
const TRY_AGAIN_MS = 500;

export type Argument = string | number | Buffer;
type Part = string | { constants: string[] } | { library: string } | { function: string; of: Part[]; gives: string[] };
interface Manifest {
  constants: Record<string, string>;
  libraries: Record<string, Part[]>;
  scripts: Record<string, { made_of: Part[] }>;
}

const folder = new URL("../wire/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("scripts.json", folder), "utf8")) as Manifest;

/** The text of a script, made of its parts as the manifest says. */
export function script(name: string): string {
  return assembled(manifest.scripts[name]!.made_of);
}

function assembled(parts: Part[]): string {
  return parts.map(text).join("\n");
}

function text(part: Part): string {
  if (typeof part === "string") return readFileSync(new URL(`scripts/${part}`, folder), "utf8");
  if ("constants" in part) return part.constants.map((name) => `local ${name} = '${manifest.constants[name]}'`).join("\n");
  if ("library" in part) return assembled(manifest.libraries[part.library]!);
  const gives = part.gives.length > 0 ? `return ${part.gives.join(", ")}\n` : "";
  return `local function ${part.function}()\n${assembled(part.of)}\n${gives}end`;
}

export type Keys = ReturnType<typeof keysOf>;

export function keysOf(namespace: string) {
  const key = (kind: string) => (name: string) => `${namespace}:${kind}:${name}`;
  return {
    result: key("result"), claim: key("claim"), cancelled: key("cancelled"), progress: key("progress"),
    checkpoint: key("checkpoint"), replies: key("replies"), job: key("job"),
    jobs: key("jobs"), jobEnded: key("job-ended"), lease: key("lease"), lane: key("lane"),
    lanes: key("lanes"), scheduled: key("scheduled"), sweeper: key("sweeper"), worker: key("worker"), node: key("node"),
    spec: key("spec"), artifactsOf: key("artifacts-of"), deleted: key("deleted"),
    orchestratorProofs: key("orchestrator-proofs"), orchestrators: `${namespace}:orchestrators`,
    workers: `${namespace}:workers`, counters: `${namespace}:counters`, dead: `${namespace}:dead`,
    queue: (queue: string, level: number | string) => `${namespace}:queue:${queue}:${level}`,
    artifact: (tenant: string, digest: string) => `${namespace}:artifact:${tenant}:${digest}`,
    artifactGrant: (runId: string, digest: string) => `${namespace}:artifact-grant:${runId}:${digest}`,
    artifactRuns: (tenant: string, digest: string) => `${namespace}:artifact-runs:${tenant}:${digest}`,
    /** The queue (or lane) and the level of one of its streams. */
    placeOf: (stream: string) => /:queue:(.+):(\d+)$/.exec(stream)!.slice(1) as [string, string],
  };
}

/** The queue that a lane belongs to; a queue's own name for what is no lane. */
export const homeOf = (name: string): string => name.replace(/\.lane-[0-9a-f]{12}$/, "");

/** A connection on which the scripts run by name. It comes back by itself, and what waits meanwhile is sent then. */
export class Store {
  readonly redis: Redis;
  private readonly loaded = new Map<string, { text: string; sha: string }>();

  constructor(options: RedisOptions) {
    // Replies are lists: of RESP3's maps, each client makes something else.
    const steady = { protocol: 2, maxRetriesPerRequest: null, retryStrategy: (tries: number) => Math.min(50 * tries, 1000) } as const;
    this.redis = new Redis({ ...options, ...steady });
    let isAway = false;
    this.redis.on("ready", () => (isAway = false));
    this.redis.on("error", (error) => {
      if (!isAway) console.error(`toolfleet: Redis does not answer, trying again: ${error.message}`);
      isAway = true;
    });
  }

  /** Run a script once, and return its reply with texts as bytes. Rejects with what Redis refuses. */
  async run(name: string, keys: readonly Argument[], args: readonly Argument[]): Promise<unknown> {
    let known = this.loaded.get(name);
    if (!known) {
      const lua = script(name);
      known = { text: lua, sha: createHash("sha1").update(lua).digest("hex") };
      this.loaded.set(name, known);
    }
    try {
      return await this.redis.callBuffer("EVALSHA", known.sha, keys.length, ...keys, ...args);
    } catch (error) {
      if (!String(error).includes("NOSCRIPT")) throw error;
      return this.redis.callBuffer("EVAL", known.text, keys.length, ...keys, ...args);
    }
  }
}

/** Try until Redis takes it, however long it is away or refuses: for what is owed. */
export async function untilTaken<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      console.error(`toolfleet: Redis refused, trying again: ${String(error)}`);
      await sleep(TRY_AGAIN_MS);
    }
  }
}
