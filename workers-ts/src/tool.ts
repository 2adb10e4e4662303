/** Declaring tools: what the fleet is told of one, and how what a model wrote for it is read. Knows no Redis. */

import { createHash } from "node:crypto";
import { Ajv2020 } from "ajv/dist/2020.js";
import type { ErrorObject } from "ajv/dist/2020.js";
import type { Context } from "./context.ts";
import { approximate, byBytes, parse } from "./json.ts";
import { Misconfigured } from "./settings.ts";

/** What a schema library's own schema is to us (Standard Schema; zod 4 is one), beside its `toJSONSchema`. */
interface Standard {
  readonly "~standard": { readonly validate: (value: unknown) => unknown; readonly types?: unknown };
}
export type Arguments<S> = S extends { readonly "~standard": { readonly types?: infer T } }
  ? NonNullable<T> extends { output: infer Output } ? Output : never
  : Record<string, any>; // eslint-disable-line -- any JSON, checked against a schema that the compiler does not read

interface KeyFrom { source: "fleet" | "tenant" | "context" | "argument"; name?: string }
export interface Limits {
  rate?: { per_s: number; burst?: number; key?: KeyFrom };
  concurrency?: { at_once: number; key?: KeyFrom };
}

export interface Declaration<S> {
  name: string;
  description: string;
  /** A JSON Schema of type object, or what has a `toJSONSchema()`, such as a schema of zod 4. */
  schema: S;
  run(args: Arguments<S>, context: Context): unknown;
  /** What a repeat would do; "once", where it could do harm, unless said otherwise. */
  effect?: "once" | "idempotent" | "read_only";
  queue?: string;
  longRunning?: boolean;
  timeoutS?: number;
  patienceS?: number;
  requiresApproval?: boolean;
  returnDirect?: boolean;
  tags?: string[];
  limits?: Limits;
  /** Tells versions apart that are live at once (1, 2, …): a run goes on with the one that it began with. */
  version?: number;
}

export interface Tool {
  readonly name: string;
  readonly queue: string;
  readonly repeatable: boolean;
  readonly longRunning: boolean;
  readonly timeoutS: number | null;
  readonly spec: object;
  /** A digest of all that a call depends on: workers with the same one may run one another's calls. */
  readonly contract: string;
  /** Which of several versions it is; undefined for one without. */
  readonly version: number | undefined;
  /** The arguments that a model wrote. Throws BadArguments. */
  read(text: string, maxBytes: number): Promise<unknown>;
  run(args: any, context: Context): unknown;
}

/** The arguments do not fit; the message is written for the model. */
export class BadArguments extends Error {}

const MAX_COMPLAINTS = 8;
const MAX_SHOWN = 80;
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object };
// Formats are hints to the model, as in the standard; keywords that nobody knows are no mistake.
const ajv = new Ajv2020({ allErrors: true, verbose: true, strict: false, validateFormats: false });

/** Declare a tool. Throws Misconfigured for what is no schema or no name. */
export function tool<S extends object>(declared: Declaration<S>): Tool {
  const { name, description, schema } = declared;
  const wrong = (why: string) => new Misconfigured(`tool ${name}: ${why}`);
  if (!name || !description) throw wrong("it needs a name and a description");
  const asked = "toJSONSchema" in schema ? (schema.toJSONSchema as (options: object) => object)({ io: "input" }) : schema;
  const inputSchema = JSON.parse(JSON.stringify(asked)) as { type?: unknown };
  if (inputSchema.type !== "object") throw wrong('the schema must be a JSON Schema of {"type": "object"}');
  const validate = compiled(inputSchema, wrong);
  const checked = async (args: object) =>
    "~standard" in schema ? issues(schema as Standard, args) : validate(approximate(args)).map(complaint);
  const { effect = "once", queue = "io", longRunning = false, timeoutS = null, limits, version } = declared;
  const isVersion = version === undefined || (Number.isInteger(version) && version >= 1 && version < 2 ** 31);
  if (!isVersion) throw wrong("a version is a whole number from 1 on");
  const bound = {
    v: 1, name, description, input_schema: inputSchema, output_schema: null, effect, queue, long_running: longRunning,
    timeout_s: float(timeoutS), patience_s: float(declared.patienceS ?? null),
    requires_approval: declared.requiresApproval ?? false, return_direct: declared.returnDirect ?? false,
    compensates: false, wants_history: false, tags: declared.tags ?? [], ...(version && { version }),
  };
  const contract = digest(JSON.stringify({ ...bound, description: "", tags: [] })).slice(0, 12);
  return {
    name, queue, longRunning, timeoutS, contract, version, repeatable: effect !== "once",
    spec: { ...bound, ...(limits && { limits: limitsOf(limits) }), digest: contract },
    run: (args, context) => declared.run(args as Arguments<S>, context),
    async read(text, maxBytes) {
      const args = objectIn(name, text, maxBytes);
      const complaints = await checked(args).catch((error: unknown) => {
        if (error instanceof RangeError) return ["nested too deep: send a flatter structure"];
        throw error;
      });
      if (!Array.isArray(complaints)) return complaints.value;
      if (complaints.length === 0) return args;
      throw new BadArguments(`bad arguments for ${name}: ${[...new Set(complaints)].slice(0, MAX_COMPLAINTS).join("; ")}.`);
    },
  };
}

/** The lane of a worker that serves these tools of a queue: whoever reads it can run all that is in it. */
export function laneOf(queue: string, tools: readonly Tool[]): string {
  const served = tools.filter((each) => each.queue === queue).map((each) => `${each.contract} ${each.name}`);
  return `${queue}.lane-${digest(served.sort(byBytes).join("\n")).slice(0, 12)}`;
}

export const digest = (text: string | Buffer): string => createHash("sha256").update(text).digest("hex");

function objectIn(name: string, text: string, maxBytes: number): object {
  if (Buffer.byteLength(text) > maxBytes) throw new BadArguments(`bad arguments for ${name}: more than ${maxBytes} bytes.`);
  let value: unknown;
  try {
    value = parse(text.trim() || "{}") ?? {};
  } catch (error) {
    throw new BadArguments(`bad arguments for ${name}: not valid JSON: ${(error as Error).message}. Send one JSON object.`);
  }
  if (typeof value === "object" && !Array.isArray(value)) return value as object;
  throw new BadArguments(`bad arguments for ${name}: not a JSON object. Send the arguments as one JSON object.`);
}

function compiled(schema: object, wrong: (why: string) => Error): (args: unknown) => ErrorObject[] {
  try {
    const validate = ajv.compile(schema);
    return (args) => (validate(args) ? [] : validate.errors!);
  } catch (error) {
    throw wrong(`not a JSON Schema: ${(error as Error).message}`);
  }
}

/** What a schema's own library makes of arguments, or its complaints. */
async function issues(schema: Standard, args: unknown): Promise<{ value: unknown } | string[]> {
  interface Issue { message: string; path?: (PropertyKey | { key: PropertyKey })[] }
  const read = (await schema["~standard"].validate(args)) as { value: unknown; issues?: Issue[] };
  const at = (issue: Issue) => (issue.path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".");
  return read.issues ? read.issues.map((issue) => `parameter '${at(issue)}': ${issue.message}`) : read;
}

function complaint({ keyword, params, instancePath, data, message }: ErrorObject): string {
  const at = instancePath.slice(1).replaceAll("/", ".").replaceAll("~1", "/").replaceAll("~0", "~");
  const below = (property: unknown) => (at ? `${at}.${String(property)}` : String(property));
  if (keyword === "required") return `required parameter '${below(params["missingProperty"])}' is missing`;
  if (keyword === "additionalProperties") return `unknown argument '${below(params["additionalProperty"])}'`;
  const shown = JSON.stringify(data);
  return at ? `parameter '${at}' is ${shown.length > MAX_SHOWN ? `${shown.slice(0, MAX_SHOWN)}…` : shown}: ${message}` : message!;
}

function limitsOf({ rate, concurrency }: Limits): object {
  const key = (from?: KeyFrom) => ({ source: from?.source ?? "fleet", name: from?.name ?? "" });
  return {
    rate: rate ? { per_s: float(rate.per_s), burst: rate.burst ?? 1, key: key(rate.key) } : null,
    concurrency: concurrency ? { at_once: concurrency.at_once, key: key(concurrency.key) } : null,
  };
}

/** A number that Python reads as a float, and writes so again. */
function float(value: number | null): object | null {
  return value === null ? null : rawJSON(Number.isInteger(value) ? `${value}.0` : String(value));
}
