// How a test speaks to a client's program: a line of JSON says what to do, a line of JSON says what came of it.

import { createInterface } from "node:readline";

export const LOOKUP = {
  name: "lookup",
  description: "Look up a price in the client's own database.",
  parameters: {
    type: "object",
    properties: { item: { type: "string" } },
    required: ["item"],
    additionalProperties: false,
  },
};

export const TOTAL = {
  type: "object",
  properties: { total: { type: "integer" } },
  required: ["total"],
  additionalProperties: false,
};

export const PRICES = { tea: "4 EUR" };

export const MOST_TURNS = 5;

export async function speak(verbs) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: verb, ...asked } = JSON.parse(line);
    let outcome;
    try {
      outcome = await verbs[verb](asked);
    } catch (error) {
      const status = error.status ?? error.statusCode ?? error.lastError?.statusCode ?? null;
      outcome = { error: error.constructor.name, status, message: String(error.message) };
    }
    console.log(JSON.stringify(outcome));
  }
  process.exit();
}
