// The tools of benchmarks/contenders/toolfleet_tools.py.
import { setTimeout as sleep } from "node:timers/promises";
import { serve, tool } from "toolfleet-worker";

const schema = { type: "object", properties: { x: { type: "integer" } }, required: ["x"], additionalProperties: false };

await serve({
  concurrency: 1000,
  tools: [
    tool({ name: "noop", description: "Return the argument, once.", schema, run: async ({ x }) => ({ x }) }),
    tool({
      name: "sleep", description: "Wait, then return the argument.", schema,
      run: async ({ x }) => {
        await sleep(100);
        return { x };
      },
    }),
  ],
});
