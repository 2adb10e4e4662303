/** One call in, one result out, whatever the tool does. Knows nothing of Redis or delivery. */

import { setTimeout as sleep } from "node:timers/promises";
import { failed } from "./call.ts";
import type { Call, Failed } from "./call.ts";
import type { Context } from "./context.ts";
import { stringify } from "./json.ts";
import { BadArguments } from "./tool.ts";
import type { Tool } from "./tool.ts";

const MAX_ERROR_CHARS = 4000;
const MAX_RETRY_AFTER_S = 86_400;
/** How long a tool has to stop once its signal is aborted, before it is said to go on. */
const STOPS_WITHIN_MS = 100;
/** Longer timers fire at once; nothing waits for so long in one process. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface ReturnedRecord {
  type: "returned";
  content: string;
  state: object;
  attributes: object;
  artifact: string | null;
}
export type Result = ReturnedRecord | Failed;

/** What a tool may return to say more than its content: state for the run's other tools, attributes for the caller. */
export class Returned {
  readonly content: string;
  readonly state: Record<string, unknown>;
  readonly attributes: Record<string, unknown>;

  constructor(content: string, more: { state?: Record<string, unknown>; attributes?: Record<string, unknown> } = {}) {
    this.content = content;
    this.state = more.state ?? {};
    this.attributes = more.attributes ?? {};
  }
}

/**
 * What a tool returns whose work goes on in another system. Until its deadline the call then waits for that system to POST the
 * result to `context.callbackUrl`, or for somebody to do so by hand (`toolfleet calls complete`): the worker does not ask.
 */
export class Submitted {
  readonly externalId: string;
  readonly message: string;
  /** When the model may ask for it. */
  readonly askAfterS: number;

  constructor(externalId: string, more: { message?: string; askAfterS?: number } = {}) {
    if (!externalId) throw new TypeError("without an id nobody could say how the job ends");
    this.externalId = externalId;
    this.message = more.message ?? "";
    this.askAfterS = more.askAfterS ?? 5;
  }
}

/**
 * What a tool throws that has had no effect and wants to be called again after so many seconds. That does not count as an
 * attempt, and so long no other call starts that shares one of the tool's limits. With `tellModel` the model is told instead,
 * and so it is where the call's deadline comes first.
 */
export class RetryAfter extends Error {
  readonly seconds: number;
  readonly tellModel: boolean;

  constructor(seconds: number, { tellModel = false } = {}) {
    super(`rate limited, try again in ${seconds} s`);
    if (!(seconds > 0 && seconds <= MAX_RETRY_AFTER_S)) throw new RangeError(`RetryAfter(${seconds}): more than 0 s, and at most a day`);
    [this.seconds, this.tellModel] = [seconds, tellModel];
  }
}

/** Why nobody waits for a tool any more. */
export type Interruption = "timed_out" | "cancelled" | "shutdown";

export const doubt = (repeatable: boolean): string => (repeatable ? "" : " Its effect may or may not have happened.");

/** Run a call until it ends or is interrupted; "shutdown" for one that this worker must leave. */
export async function execute(
  tool: Tool, call: Call, context: Context, maxArgumentBytes: number, repeatable: boolean,
  interrupted: Promise<Interruption>, interrupt: (why: Interruption) => void,
): Promise<Result | Submitted | RetryAfter | "shutdown"> {
  let args: unknown;
  try {
    args = await tool.read(call.arguments, maxArgumentBytes);
  } catch (error) {
    return error instanceof BadArguments ? failed("bad_arguments", error.message.toWellFormed()) : failureOf(error);
  }
  const limitS = Math.max(0, Math.min(tool.timeoutS ?? Infinity, context.timeLeftS));
  const clock = setTimeout(() => interrupt("timed_out"), Math.min(limitS * 1000, MAX_TIMER_MS));
  const work = Promise.resolve().then(() => tool.run(args, context)).then(recordOf, failureOf);
  const outcome = await Promise.race([work, interrupted]);
  clearTimeout(clock);
  if (typeof outcome === "object" || outcome === "shutdown") return outcome;
  if (outcome === "cancelled") return failed("cancelled", `${tool.name} was cancelled while it ran.${doubt(repeatable)}`);
  // No promise can be stopped from outside; a tool that listens to its signal stops by itself.
  const stopped = await Promise.race([work.then(() => true), sleep(STOPS_WITHIN_MS, false, { ref: false })]);
  const late = `${tool.name} did not finish within ${Number(limitS.toPrecision(3))} s`;
  if (stopped) return failed("timed_out", `${late} and was stopped.${doubt(repeatable)}`);
  return failed("timed_out", `${late}. It does not listen to its signal and may still be at work${repeatable ? "." : ": its effect may or may not happen."}`);
}

/** The record of what a tool returned: a text as it is, nothing as "Done", anything else as JSON. */
function recordOf(value: unknown): Result | Submitted {
  if (value instanceof Submitted) return value;
  try {
    if (value instanceof Returned) {
      const more = { state: value.state, attributes: value.attributes };
      stringify(more); // better refused here than lost on the way
      return { type: "returned", content: String(value.content).toWellFormed(), ...more, artifact: null };
    }
    const content = value === undefined ? "Done" : typeof value === "string" ? value : stringify(value);
    if (content !== undefined) return { type: "returned", content: content.toWellFormed(), state: {}, attributes: {}, artifact: null };
    return failed("error", `the tool returned a ${typeof value} that has no JSON form`);
  } catch (error) {
    return failed("error", `the tool returned a ${typeof value} that has no JSON form: ${String(error).slice(0, MAX_ERROR_CHARS)}`.toWellFormed());
  }
}

/** What the model reads of what a tool threw: its message, without a stack. */
function failureOf(thrown: unknown): Failed | RetryAfter {
  if (thrown instanceof RetryAfter) return thrown;
  let text = "";
  let name = "Error";
  try {
    name = thrown instanceof Error ? thrown.name : typeof thrown;
    text = String(thrown instanceof Error ? thrown.message : thrown ?? "").trim().slice(0, MAX_ERROR_CHARS).toWellFormed();
  } catch {
    // what was thrown may fail at that too
  }
  return failed("error", text || `tool failed: ${name}`);
}
