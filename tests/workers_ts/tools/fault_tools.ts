// Tools whose every effect stands in the ledger of tests/faults, as those of fault_tools.py do.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Context, serve, tool } from "toolfleet-worker";
import * as z from "zod";

const schema = z.object({ nonce: z.string(), seconds: z.number() });

async function work({ nonce, seconds }: z.infer<typeof schema>, { callId, attempt }: Context): Promise<string> {
  await sleep(seconds * 500);
  appendFileSync(process.env["FAULTS_LEDGER"]!, `${nonce} ${callId} ${attempt} ${process.pid}\n`);
  await sleep(seconds * 500);
  return nonce;
}

const tools = [
  tool({ name: "once_in_node", description: "Has an effect that must not happen twice.", schema, run: work }),
  tool({ name: "again_in_node", description: "Has an effect that may happen twice.", effect: "idempotent", schema, run: work }),
];
process.stdin.on("close", () => process.kill(process.pid, "SIGTERM")).resume(); // whoever started it is gone
await serve({ tools, name: process.env["WORKER_NAME"], source: "fault_tools" });
