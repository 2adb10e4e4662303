// What tests/fleet/fleet_tools.py serves, as far as the suite for all pools asks for it, and the stage's tools.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Context, RetryAfter, Returned, serve, Submitted, tool } from "toolfleet-worker";
import * as z from "zod";

const anything = { type: "object", properties: { value: {} }, required: ["value"], additionalProperties: false };
const nothing = { type: "object", properties: {}, additionalProperties: false };
const staged = { type: "object", properties: { stage: { type: "string" } }, required: ["stage"] };
const effect = "read_only" as const;

class ValueError extends Error {
  override name = "ValueError";
}

const about = (context: Context) => ({
  call_id: context.callId, attempt: context.attempt, context: context.context, pid: process.pid,
  key: context.idempotencyKey, checkpoint: context.lastCheckpoint ?? null,
});

/** Do as the stage says, until the signal aborts. */
async function play({ stage }: { stage: string }, context: Context): Promise<unknown> {
  const socket = connect(stage);
  const left = () => socket.end("cancelled");
  context.signal.addEventListener("abort", left);
  socket.write(`${JSON.stringify(about(context))}\n`);
  try {
    for await (const line of createInterface(socket)) {
      const order = JSON.parse(line) as Record<string, any>;
      if ("return" in order) {
        socket.end("returned");
        return order["return"];
      }
      if ("retry_after" in order) throw new RetryAfter(order["retry_after"]);
      if ("fail" in order) throw new Error(order["fail"]);
      if ("checkpoint" in order) await context.checkpoint(order["checkpoint"]);
      if ("progress" in order) context.progress(order["progress"][0], order["progress"][1]);
      if ("spin" in order) for (const until = Date.now() + order["spin"] * 1000; Date.now() < until; );
    }
    throw new Error("the stage is gone");
  } finally {
    context.signal.removeEventListener("abort", left);
    socket.end();
  }
}

const tools = [
  tool({ name: "echo", description: "Give back what came.", schema: anything, effect, run: async ({ value }) => value }),
  tool({ name: "blocking_echo", description: "Give back what came, at once.", schema: anything, effect, run: ({ value }) => value }),
  tool({ name: "nothing", description: "Return nothing.", schema: nothing, effect, run: async () => undefined }),
  tool({
    name: "add", description: "Add, once.", schema: z.strictObject({ a: z.int(), b: z.int() }),
    run: async ({ a, b }) => a + b,
  }),
  tool({
    name: "mirrored", description: "Mirror a point.", effect, schema: z.object({ point: z.object({ x: z.int(), y: z.int() }) }),
    run: async ({ point }) => ({ x: point.y, y: point.x }),
  }),
  tool({ name: "price", description: "What has a JSON form of its own.", schema: nothing, effect, run: () => ({ toJSON: () => "9.90" }) }),
  tool({ name: "unprintable", description: "What has none.", schema: nothing, effect, run: () => Object.assign(Object.create(null), { toJSON() { throw new Error("no"); } }) }),
  tool({ name: "wordy", description: "A long text.", effect, schema: z.object({ characters: z.int() }), run: ({ characters }) => "☃".repeat(characters) }),
  tool({
    name: "fail", description: "Throw.", effect, schema: z.object({ kind: z.string(), text: z.string().default("") }),
    run: async ({ kind, text }) => {
      if (kind === "bare") throw text;
      throw kind === "value" ? new ValueError(text) : new Error(text);
    },
  }),
  tool({
    name: "hurried", description: "Take longer than allowed.", schema: nothing, effect, timeoutS: 0.3,
    run: (_, { signal }) => sleep(60_000, undefined, { signal }),
  }),
  tool({
    name: "stray", description: "Throw past its own call.", schema: nothing, effect,
    run: () => {
      setTimeout(() => { throw new Error("from a timer"); });
      void Promise.reject(new Error("from a promise"));
      return sleep(50, "went on");
    },
  }),
  tool({
    name: "deaf", description: "Take longer than allowed, and listen to nobody.", schema: nothing, timeoutS: 0.1,
    run: () => sleep(60_000, undefined, { ref: false }),
  }),
  tool({ name: "who_am_i", description: "What a call knows of itself.", schema: nothing, effect, run: async (_, context) => about(context) }),
  tool({ name: "who_am_i_blocking", description: "The same at once.", schema: nothing, effect, run: (_, context) => about(context) }),
  tool({ name: "kind_of", description: "What the tool sees.", schema: anything, effect, run: ({ value }) => `${typeof value} ${String(value)}` }),
  tool({ name: "doubled", description: "Twice as much.", schema: anything, effect, run: ({ value }) => value + value }),
  tool({
    name: "update", description: "Change what the run's tools share.", schema: { type: "object" }, effect,
    run: ({ state, attributes }) => new Returned("updated", { state, attributes }),
  }),
  tool({
    name: "long_job", description: "Say how far it has come.", effect, longRunning: true, schema: z.object({ steps: z.int() }),
    run: async ({ steps }, context) => {
      for (let step = 1; step <= steps; step += 1) {
        context.progress(step / steps, `step ${step}`);
        await sleep(50);
      }
      return { steps };
    },
  }),
  tool({
    name: "elsewhere", description: "Start a job in another system.", schema: z.object({ name: z.string() }),
    run: ({ name }, { callbackUrl }) => new Submitted(name, { message: callbackUrl }),
  }),
  tool({
    name: "die_once", description: "End this process without a word.", schema: z.object({ path: z.string() }),
    run: ({ path }) => {
      appendFileSync(path, `${process.pid}\n`);
      process.kill(process.pid, "SIGKILL");
    },
  }),
  tool({
    name: "die", description: "The same, the first few times.", effect, schema: z.object({ path: z.string(), times: z.int() }),
    run: ({ path, times }) => {
      const lived = existsSync(path) ? readFileSync(path, "utf8").split("\n").length - 1 : 0;
      appendFileSync(path, `${process.pid}\n`);
      if (lived < times) process.kill(process.pid, "SIGKILL");
      return `survived ${lived}`;
    },
  }),
  tool({
    name: "narrow", description: "One at a time.", effect: "idempotent", schema: staged, run: play,
    limits: { concurrency: { at_once: 1 } },
  }),
  tool({ name: "play", description: "Do as the stage says; may be repeated.", schema: staged, effect, run: play }),
  tool({ name: "play_once", description: "Do as the stage says; must not be repeated.", schema: staged, run: play }),
];

process.stdin.on("close", () => process.kill(process.pid, "SIGTERM")).resume(); // whoever started it is gone
await serve({ tools, concurrency: Number(process.env["SLOTS"] ?? 8), name: process.env["WORKER_NAME"], source: "fleet_tools" });
