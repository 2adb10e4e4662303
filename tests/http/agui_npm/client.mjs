// AG-UI's official client: each line of JSON says what to do, and is answered with one.

import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const threads = new Map();

// Of a connection that breaks, the client tells whoever runs the agent, and lets the error go beside that.
process.on("unhandledRejection", () => {});

function agentOf({ thread, url, key, state, messages }) {
  if (!threads.has(thread)) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const agent = new HttpAgent({ url, headers, threadId: thread, initialState: state ?? {} });
    agent.setMessages(messages ?? []);
    threads.set(thread, agent);
  }
  return threads.get(thread);
}

async function run({ say, runId, tools, context, props, resume, cutAfter, sign, ...where }) {
  const agent = agentOf(where);
  agent.url = where.url;
  for (const message of say ?? []) agent.addMessage(message);
  const events = [];
  let text = "";
  const abortController = new AbortController();
  let failed = null;
  const watching = {
    onEvent({ event }) {
      events.push(event);
      if (events.length === cutAfter) abortController.abort();
      text += event.delta ?? "";
      if (sign && text.includes(sign.after)) writeFileSync(sign.file, "");
    },
    onRunFailed({ error }) {
      failed = `${error.message}`;
    },
  };
  let result = null;
  try {
    const asked = { runId, tools, context, forwardedProps: props, resume, abortController };
    ({ result } = await agent.runAgent(asked, watching));
  } catch (error) {
    failed = `${error.message}`;
  }
  const { messages, state, pendingInterrupts: interrupts } = agent;
  return { events, messages, state, interrupts, result: result ?? null, failed };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))));
}
