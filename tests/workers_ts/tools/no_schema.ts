import { Misconfigured, tool } from "toolfleet-worker";

try {
  tool({ name: "odd", description: "Its schema is none.", schema: { type: "object", properties: { a: { type: "nonsense" } } }, run: () => 1 });
} catch (error) {
  if (!(error instanceof Misconfigured)) throw error;
  console.error(`toolfleet worker: ${error.message}`);
  process.exit(78);
}
