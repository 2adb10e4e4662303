/** What users import. */

export { Context } from "./context.ts";
export { RetryAfter, Returned, Submitted } from "./execute.ts";
export { Misconfigured } from "./settings.ts";
export { tool } from "./tool.ts";
export type { Arguments, Declaration, Limits, Tool } from "./tool.ts";
export { serve } from "./worker.ts";
export type { Options } from "./worker.ts";
