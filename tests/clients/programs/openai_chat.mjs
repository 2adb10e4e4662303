// The official npm client: Chat Completions.

import OpenAI from "openai";
import { LOOKUP, MOST_TURNS, PRICES, TOTAL, speak } from "./spoken_to.mjs";

const MODEL = process.env.MODEL;
const TOOLS = [{ type: "function", function: LOOKUP }];
const client = new OpenAI();
const opened = [];

const user = (question) => ({ role: "user", content: question });

function answered(call, lookedUp) {
  const asked = JSON.parse(call.function.arguments);
  lookedUp.push(asked);
  return { role: "tool", tool_call_id: call.id, content: PRICES[asked.item] };
}

async function turns(question, ask) {
  const said = [user(question)];
  const lookedUp = [];
  let message;
  for (let turn = 0; turn < MOST_TURNS; turn++) {
    message = await ask(said);
    said.push(message);
    if (!message.tool_calls?.length) break;
    for (const call of message.tool_calls) said.push(answered(call, lookedUp));
  }
  return { text: message.content, looked_up: lookedUp };
}

await speak({
  async complete({ question, model = MODEL, key }) {
    const asked = key ? client.withOptions({ apiKey: key }) : client;
    const completion = await asked.chat.completions.create({ model, messages: [user(question)] });
    const [choice] = completion.choices;
    return { text: choice.message.content, ended: choice.finish_reason, tokens: completion.usage.total_tokens };
  },

  async stream({ question }) {
    const stream = client.chat.completions.stream({ model: MODEL, messages: [user(question)] });
    const pieces = [];
    for await (const chunk of stream) {
      const text = chunk.choices[0]?.delta.content;
      if (text) pieces.push(text);
    }
    const [choice] = (await stream.finalChatCompletion()).choices;
    return { text: pieces.join(""), pieces: pieces.length, ended: choice.finish_reason };
  },

  mixed: ({ question }) =>
    turns(question, async (messages) => {
      const completion = await client.chat.completions.create({ model: MODEL, messages, tools: TOOLS });
      return completion.choices[0].message;
    }),

  async mixed_streamed({ question }) {
    // The client's own loop.
    const lookedUp = [];
    const lookup = {
      ...LOOKUP,
      parse: JSON.parse,
      function: (asked) => {
        lookedUp.push(asked);
        return PRICES[asked.item];
      },
    };
    const runner = client.chat.completions.runTools({
      model: MODEL,
      messages: [user(question)],
      tools: [{ type: "function", function: lookup }],
      stream: true,
    });
    return { text: await runner.finalContent(), looked_up: lookedUp };
  },

  async structured({ question }) {
    const completion = await client.chat.completions.parse({
      model: MODEL,
      messages: [user(question)],
      response_format: { type: "json_schema", json_schema: { name: "total", schema: TOTAL, strict: true } },
    });
    return { value: JSON.parse(completion.choices[0].message.content) };
  },

  async begin({ question }) {
    const stream = await client.chat.completions.create({ model: MODEL, messages: [user(question)], stream: true });
    opened.push(stream.controller);
    const chunks = stream[Symbol.asyncIterator]();
    for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
      const text = next.value.choices[0]?.delta.content;
      if (text) return { text };
    }
    return { text: "" };
  },

  async abort() {
    opened.pop().abort();
    return {};
  },
});
