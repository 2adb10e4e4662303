// Answers the published vectors with the worker's own code: one line of JSON with an answer for each.
import { readFileSync } from "node:fs";
import { Delivery, Malformed, openCall, OtherVersion } from "../src/call.ts";
import { parse } from "../src/json.ts";
import { PURPOSE, Refused, Seal } from "../src/seal.ts";

type Vector = Record<string, any>;
const folder = process.argv[2]!;

function vectors(name: string): Vector[] {
  const { vectors, ...shared } = JSON.parse(readFileSync(`${folder}/${name}`, "utf8")) as Vector;
  return (vectors as Vector[]).map((each) => ({ ...shared, ...each }));
}

const sealOf = ({ secret, previous_secret }: Vector) => new Seal([secret as string, previous_secret as string]);

function call(vector: Vector): object {
  if (vector["text"].length > (vector["max_message_bytes"] ?? Infinity)) return { accept: false, reason: "size" };
  try {
    const { v } = openCall(sealOf(vector), vector["text"] as string, vector["mac"] as string);
    return v === 1 ? { accept: true } : { accept: false, reason: "version" };
  } catch (error) {
    return { accept: false, reason: (error as Error).message === "wrong shape" ? "shape" : "signature" };
  }
}

/** Whether the seal holds; what the text then says is its reader's to judge. */
function sealed({ kind, call_id, worker, sealed, ...vector }: Vector): boolean {
  const purposes = PURPOSE as unknown as Record<string, (name: string) => string>;
  try {
    sealOf(vector).open(purposes[kind as string]!((worker ?? call_id) as string), Buffer.from(sealed as string));
    return true;
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}

function fate(vector: Vector): string {
  const { max_message_bytes, max_deliveries, now_unix_s, effect, claim_holder, serves, digest } = vector;
  const fields = Object.entries(vector["fields"] as Record<string, string>).flat().map((word) => Buffer.from(word));
  const { deliveries, claimed, cancelled } = vector as { deliveries: number; claimed: boolean; cancelled: boolean };
  const entry = { stream: "s:queue:io:3", id: "2-1", deliveries, claimed, cancelled, returned: false, fields };
  try {
    const delivery = new Delivery(entry, max_message_bytes as number, max_deliveries as number, now_unix_s as number);
    const opened = delivery.opened(sealOf(vector));
    if (!serves || (delivery.contract && delivery.contract !== digest)) return "pass_on";
    const repeatable = effect !== "once" && !delivery.sentOnce;
    const refusal = delivery.refusal(opened, repeatable, max_deliveries as number);
    if (refusal) return refusal.kind;
    if (repeatable || delivery.isClaimedFor(opened)) return "run";
    return claim_holder ? "drop" : "claim";
  } catch (error) {
    if (error instanceof OtherVersion) return "pass_on";
    if (error instanceof Malformed || error instanceof Refused) return "bury";
    throw error;
  }
}

const answers = {
  "signatures.json": vectors("signatures.json").map(({ secret, purpose, text }) => new Seal([secret as string]).sign(purpose as string, text as string)),
  "calls.json": vectors("calls.json").map(call),
  "records.json": vectors("records.json").map(sealed),
  "deliveries.json": vectors("deliveries.json").map(fate),
  exact: String((parse('{"n":9007199254740993}') as { n: bigint }).n),
};
console.log(JSON.stringify(answers));
