// Sends a signed call to a fleet and waits for its result; docs/wire.md says what each step means.
import { createHmac, randomBytes } from "node:crypto";
import { Redis } from "ioredis";

const redis = new Redis(process.env.TOOLFLEET_REDIS_URL!);
const sign = (text: string) => createHmac("sha256", process.env.TOOLFLEET_SECRET ?? "").update(text).digest("hex");

type Options = { queue?: string; timeoutS?: number; signal?: AbortSignal };

export async function call(tool: string, args: object, { queue = "io", timeoutS = 60, signal }: Options = {}) {
  const run_id = `x-${randomBytes(8).toString("hex")}`, call_id = `${run_id}.1.0`, reply_to = run_id;
  const deadline_unix_s = Date.now() / 1000 + timeoutS, claim = Math.ceil(timeoutS) + 600;
  const text = JSON.stringify({ v: 1, call_id, run_id, tool, arguments: JSON.stringify(args), deadline_unix_s, reply_to });
  const body = JSON.stringify([[text, sign(`toolfleet.call\0${text}`)], {}, {}]);
  const headers = JSON.stringify({ task: tool, id: call_id, contract: "", claim });
  await redis.xadd(`toolfleet:queue:${queue}:3`, "*", "b", body, "h", headers, "p", "{}", "id", call_id, "claim", claim);
  const mark = () => redis.set(`toolfleet:cancelled:${call_id}`, sign(`toolfleet.cancel\0${call_id}\0{}`) + "{}", "EX", claim + 86400);
  signal?.addEventListener("abort", mark); // its result says `cancelled`, unless it has another by then
  for (let last = "0"; Date.now() / 1000 < deadline_unix_s + 5; ) {
    const news = await redis.xread("BLOCK", 1000, "STREAMS", `toolfleet:replies:${reply_to}`, last);
    last = news?.[0][1].at(-1)?.[0] ?? last;
    const sealed = (await redis.get(`toolfleet:result:${call_id}`)) ?? "";
    const isTrue = sealed.slice(0, 64) === sign(`toolfleet.result\0${call_id}\0${sealed.slice(64)}`);
    if (isTrue) return JSON.parse(sealed.slice(64));
  }
  throw new Error(`${tool} has no result: ${call_id}`);
}

const stop = new AbortController();
process.once("SIGINT", () => stop.abort());
console.log(await call(process.argv[2], JSON.parse(process.argv[3]), { queue: process.argv[4], signal: stop.signal }));
redis.disconnect();
