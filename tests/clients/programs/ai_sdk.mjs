// Vercel's AI SDK, with one of its providers: `chat` or `responses` of @ai-sdk/openai, or @ai-sdk/openai-compatible.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { LOOKUP, MOST_TURNS, PRICES, TOTAL, speak } from "./spoken_to.mjs";

const MODEL = process.env.MODEL;
const baseURL = process.env.OPENAI_BASE_URL;
const opened = [];

const providers = {
  chat: (apiKey, model) => createOpenAI({ baseURL, apiKey }).chat(model),
  responses: (apiKey, model) => createOpenAI({ baseURL, apiKey })(model),
  compatible: (apiKey, model) =>
    createOpenAICompatible({ name: "toolfleet", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true })(
      model,
    ),
};

const asking = ({ model = MODEL, key = process.env.OPENAI_API_KEY } = {}) => providers[process.argv[2]](key, model);

const lookingUp = (lookedUp) => ({
  lookup: tool({
    description: LOOKUP.description,
    inputSchema: jsonSchema(LOOKUP.parameters),
    execute: async (asked) => {
      lookedUp.push(asked);
      return PRICES[asked.item];
    },
  }),
});

function raise({ error }) {
  throw error;
}

await speak({
  async complete({ question, ...more }) {
    const said = await generateText({ model: asking(more), prompt: question });
    return { text: said.text, ended: said.finishReason, tokens: said.usage.totalTokens };
  },

  async stream({ question }) {
    const said = streamText({ model: asking(), prompt: question, onError: raise });
    const pieces = [];
    for await (const text of said.textStream) pieces.push(text);
    return { text: pieces.join(""), pieces: pieces.length, ended: await said.finishReason };
  },

  async mixed({ question }) {
    const lookedUp = [];
    const said = await generateText({
      model: asking(),
      prompt: question,
      tools: lookingUp(lookedUp),
      stopWhen: isStepCount(MOST_TURNS),
    });
    return { text: said.text, looked_up: lookedUp };
  },

  async mixed_streamed({ question }) {
    const lookedUp = [];
    const said = streamText({
      model: asking(),
      prompt: question,
      tools: lookingUp(lookedUp),
      stopWhen: isStepCount(MOST_TURNS),
      onError: raise,
    });
    await said.consumeStream();
    return { text: await said.text, looked_up: lookedUp };
  },

  async structured({ question }) {
    const said = await generateText({
      model: asking(),
      prompt: question,
      output: Output.object({ schema: jsonSchema(TOTAL) }),
    });
    return { value: said.output };
  },

  async begin({ question }) {
    const controller = new AbortController();
    opened.push(controller);
    const said = streamText({ model: asking(), prompt: question, abortSignal: controller.signal, onError: raise });
    const texts = said.textStream[Symbol.asyncIterator]();
    return { text: (await texts.next()).value ?? "" };
  },

  async abort() {
    opened.pop().abort();
    return {};
  },
});
