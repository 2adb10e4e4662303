import { serve, tool } from "toolfleet-worker";

await serve({ tools: [tool({ name: "echo", description: "Another one.", schema: { type: "object" }, run: () => 1 })], source: "rival" });
