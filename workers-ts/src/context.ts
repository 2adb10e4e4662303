/** What a running tool knows of its call, and whom it may tell. Holds values; the functions are the worker's. */

import type { Call } from "./call.ts";

export interface Reports {
  progress(fraction: number, message: string): void;
  checkpoint(data: unknown): Promise<void>;
  callbackUrl(): string;
}

export class Context {
  readonly callId: string;
  readonly runId: string;
  readonly tool: string;
  /** Which delivery this is; more than 1 after a worker was lost. */
  readonly attempt: number;
  readonly deadlineUnixS: number;
  /** The caller's own JSON, hidden from the model. Who asks is `tenant` and `subject`, which no caller can set. */
  readonly context: Record<string, unknown>;
  readonly state: Record<string, unknown>;
  readonly tenant: string;
  readonly subject: string;
  /** Aborts when nobody waits for the call any more: cancelled, out of time, or this worker stops. */
  readonly signal: AbortSignal;
  /** What an earlier attempt at this call gave to `checkpoint` last. */
  readonly lastCheckpoint: unknown;
  private readonly reports: Reports;

  constructor(call: Call, attempt: number, signal: AbortSignal, lastCheckpoint: unknown, reports: Reports) {
    this.callId = call.call_id;
    this.runId = call.run_id;
    this.tool = call.tool;
    this.attempt = attempt;
    this.deadlineUnixS = call.deadline_unix_s;
    this.context = call.context ?? {};
    this.state = call.state ?? {};
    this.tenant = call.tenant ?? "";
    this.subject = call.subject ?? "";
    this.signal = signal;
    this.lastCheckpoint = lastCheckpoint;
    this.reports = reports;
  }

  /** The same for every attempt at this call: hand it to services that drop repeats. */
  get idempotencyKey(): string {
    return this.callId;
  }

  /** Where another system may POST the result of the job that this call submits: as good as the call, and expires with it. */
  get callbackUrl(): string {
    return this.reports.callbackUrl();
  }

  get timeLeftS(): number {
    return this.deadlineUnixS - Date.now() / 1000;
  }

  /** Tell whoever waits how far the call has come, from 0 to 1. Never waits, never throws. */
  readonly progress = (fraction: number, message = ""): void => {
    this.reports.progress(fraction > 0 ? Math.min(fraction, 1) : 0, String(message));
  };

  /** Keep any JSON (up to 64 KiB) for the attempt that follows if this worker is lost. Resolves once it is written. */
  readonly checkpoint = (data: unknown): Promise<void> => this.reports.checkpoint(data);
}
