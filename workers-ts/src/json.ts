/** JSON without loss: an integer beyond 2^53 is a BigInt, on its way in and on its way out. */

type WithSource = (this: unknown, key: string, value: unknown, context: { source: string }) => unknown;

const parseWithSource = JSON.parse as (text: string, reviver: WithSource) => unknown;
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };
const LONG_NUMBER = /\d{16}/;
const INTEGER = /^-?\d+$/;
/** As our own readers have it: reading longer ones takes quadratic time. */
const MAX_DIGITS = 4300;

/** The value of a JSON text. Throws SyntaxError or RangeError. */
export function parse(text: string): unknown {
  return LONG_NUMBER.test(text) ? parseWithSource(text, exact) : JSON.parse(text);
}

const exact: WithSource = (_key, value, context) => {
  if (typeof value !== "number" || Number.isSafeInteger(value) || !INTEGER.test(context.source)) return value;
  if (context.source.length > MAX_DIGITS) throw new RangeError(`a number of more than ${MAX_DIGITS} digits`);
  return BigInt(context.source);
};

/** The JSON text of a value; undefined for what has none. Throws TypeError or RangeError. */
export function stringify(value: unknown): string | undefined {
  return JSON.stringify(value, (_key, each) => (typeof each === "bigint" ? rawJSON(String(each)) : each));
}

/** The same value with each BigInt as the nearest number, for readers that know no other. */
export function approximate(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(approximate);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, approximate(each)]));
}

/** The order of texts by their UTF-8 bytes, which is that of every other language. */
export const byBytes = (one: string, other: string): number => Buffer.compare(Buffer.from(one), Buffer.from(other));
