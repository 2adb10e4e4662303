/** One delivery of one call: what its entry says, and whether it may start. Decides; no Redis, no tools. */

import { parse } from "./json.ts";
import { PURPOSE, Refused } from "./seal.ts";
import type { Seal } from "./seal.ts";

const MAX_HEAD_BYTES = 16 * 1024;
const MAX_EARLIER = 1_000_000;
const CLOCKS_APART_S = 300;
export const VERSION = 1;
/** What means the same in every version. */
const TEXTS = ["call_id", "run_id", "tool", "reply_to"] as const;
const MAPS = ["context", "state"] as const;

export interface Call {
  v: number;
  call_id: string;
  run_id: string;
  tool: string;
  /** The JSON text that the model wrote. */
  arguments: string;
  deadline_unix_s: number;
  reply_to: string;
  context?: Record<string, unknown>;
  state?: Record<string, unknown>;
  tenant?: string;
  subject?: string;
  undoes?: unknown;
  /** The version of the tool that it is a call of, and of no other. */
  version?: number;
}

/** An entry as it was read; the flags are the fetch script's. */
export interface Entry {
  stream: string;
  id: string;
  deliveries: number;
  claimed: boolean;
  cancelled: boolean;
  returned: boolean;
  fields: Buffer[];
}

export type Kind =
  | "bad_arguments" | "unknown_tool" | "error" | "timed_out" | "expired" | "crashed" | "cancelled" | "in_doubt" | "limit";
export interface Failed { type: "failed"; kind: Kind; message: string }
export const failed = (kind: Kind, message: string): Failed => ({ type: "failed", kind, message });

/** No message of the fleet; the text says why, and is the same for all of one kind. */
export class Malformed extends Error {}

/** A call that the fleet has signed and that is not for this worker to read: it is passed on, never buried. */
export class OtherVersion extends Error {
  readonly delivery: Delivery;
  readonly call: Call;

  constructor(delivery: Delivery, call: Call) {
    super("version");
    [this.delivery, this.call] = [delivery, call];
  }
}

/** The call in a signed text, of whatever version. Throws Refused: "unsigned or altered", or "wrong shape". */
export function openCall(seal: Seal, text: string, mac: string): Call {
  seal.check(PURPOSE.call, text, mac);
  const call = readable(text);
  const isWhole = TEXTS.every((name) => typeof call[name] === "string") && Number.isFinite(call["deadline_unix_s"]);
  const known = typeof call["arguments"] === "string" && MAPS.every((name) => isMap(call[name]));
  if (!isWhole || !Number.isInteger(call["v"]) || (call["v"] === VERSION && !known)) throw new Refused("wrong shape");
  return call as unknown as Call;
}

function readable(text: string): Record<string, unknown> {
  try {
    return Object(parse(text)) as Record<string, unknown>;
  } catch {
    return {};
  }
}

const isMap = (value: unknown) => value === undefined || (typeof value === "object" && value !== null && !Array.isArray(value));

/** What an entry says. Nothing in it is believed before `opened` has looked. */
export class Delivery {
  readonly entry: Entry;
  readonly callId: string;
  readonly tool: string;
  readonly contract: string;
  readonly sentOnce: boolean;
  readonly deliveries: number;
  readonly isNew: boolean;
  readonly gates: string;
  readonly over: string;
  readonly cameS: number;
  /** The call as it was signed. */
  readonly text: string;
  private readonly mac: string;
  private readonly claimedS: number;

  /** Throws Malformed. */
  constructor(entry: Entry, maxBytes: number, maxDeliveries: number, nowS = Date.now() / 1000) {
    // One beyond the greatest number is answered, so that whoever waits hears that it was given up.
    if (entry.deliveries > maxDeliveries + 1) throw new Malformed("delivered too often: it probably kills its workers");
    const fields = new Map<string, Buffer>();
    for (let at = 0; at + 1 < entry.fields.length; at += 2) fields.set(entry.fields[at]!.toString(), entry.fields[at + 1]!);
    const word = (name: string) => fields.get(name)?.toString() ?? "";
    const [body, head] = [fields.get("b"), fields.get("h")];
    if (!body || !head || !fields.has("p")) throw new Malformed("a field is missing");
    if (body.length > maxBytes) throw new Malformed("larger than max_message_bytes");
    if (head.length > MAX_HEAD_BYTES) throw new Malformed("the headers are larger than any of ours");
    const headers = json(head, "the headers are") as Record<string, unknown> | null;
    const decoded = json(body, "the body is");
    const given: unknown = Array.isArray(decoded) ? decoded[0] : null;
    const [text, mac] = Array.isArray(given) && given.length === 2 ? given : [];
    if (typeof headers?.["id"] !== "string" || typeof headers["task"] !== "string") throw new Malformed("no call");
    if (headers["compression"]) throw new Malformed("compressed");
    if (fields.has("id") && word("id") !== headers["id"]) throw new Malformed("the entry is for another call than its headers");
    const earlier = Number(word("earlier") || 0);
    if (!(earlier >= 0 && earlier <= MAX_EARLIER)) throw new Malformed("it does not say where it came from");
    this.entry = entry;
    this.cameS = nowS;
    this.callId = headers["id"];
    this.tool = headers["task"];
    this.contract = String(headers["contract"] ?? "");
    this.sentOnce = Boolean(headers["claim"]);
    this.deliveries = entry.deliveries + earlier;
    this.isNew = this.deliveries === 1 && !entry.returned && !fields.has("first");
    this.gates = word("gates");
    this.over = entry.cancelled ? "cancelled" : word("over");
    this.text = typeof text === "string" ? text : "";
    this.mac = typeof mac === "string" ? mac : "";
    this.claimedS = entry.claimed ? Number(word("claim")) || 0 : 0;
  }

  /** The signed call. Throws Refused for what nobody of the fleet has written, OtherVersion for what a newer one has. */
  opened(seal: Seal): Call {
    const call = openCall(seal, this.text, this.mac);
    if (call.call_id !== this.callId || call.tool !== this.tool) throw new Refused("the envelope belongs to another call or tool");
    if (call.v !== VERSION) throw new OtherVersion(this, call);
    return call;
  }

  /** Why the call must not start here, as its result; undefined for one that may. */
  refusal(call: Call, repeatable: boolean, maxDeliveries: number): Failed | undefined {
    const { tool } = this;
    if (this.deliveries > 1 && !repeatable) return inDoubt(tool);
    if (this.deliveries > maxDeliveries) {
      const lost = `the worker was lost in each of ${this.deliveries - 1} attempts`;
      return failed("crashed", `${tool} crashed: ${lost}. Do not repeat the same call.`);
    }
    if (this.over === "expired" || this.cameS >= call.deadline_unix_s) {
      return failed("expired", `${tool} did not start before its deadline; it has had no effect.`);
    }
    return this.over === "cancelled" ? cancelledUnstarted(tool) : undefined;
  }

  /** Whether the fetch script has claimed it so that no other message of the call can start before its deadline. */
  isClaimedFor(call: Call): boolean {
    return this.isNew && this.cameS + this.claimedS >= call.deadline_unix_s + CLOCKS_APART_S;
  }

  /** The limits at which the call has a place: settling it frees them. */
  get places(): string[] {
    const gates = this.gates ? tolerant(this.gates) : [];
    return (Array.isArray(gates) ? gates : [])
      .filter((gate) => Array.isArray(gate) && gate[0] === "concurrency" && typeof gate[1] === "string" && typeof gate[2] === "string")
      .map((gate: string[]) => `concurrency|${gate[1]}|${gate[2]}`);
  }
}

export const cancelledUnstarted = (tool: string): Failed => failed("cancelled", `${tool} was cancelled before it started.`);
export const inDoubt = (tool: string): Failed =>
  failed("in_doubt", `${tool} was interrupted: its effect may or may not have happened, and it was not run again. Check before you repeat it.`);

function tolerant(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function json(text: Buffer, what: string): unknown {
  const value = tolerant(text.toString());
  if (value === undefined) throw new Malformed(`${what} no JSON`);
  return value;
}
