/** What travels is signed: HMAC-SHA256 over a purpose and the exact bytes. Knows no Redis and no tools. */

import { createHmac, timingSafeEqual } from "node:crypto";

const MAC_CHARS = 64;
const AT_DIGITS = 15;

/** It must not be believed; the message says why. */
export class Refused extends Error {}

export const PURPOSE = {
  call: "toolfleet.call\0",
  member: "toolfleet.member\0",
  result: (callId: string) => `toolfleet.result\0${callId}\0`,
  callback: (callId: string) => `toolfleet.callback\0${callId}\0`,
  job: (callId: string) => `toolfleet.job\0${callId}\0`,
  progress: (callId: string) => `toolfleet.progress\0${callId}\0`,
  checkpoint: (callId: string) => `toolfleet.checkpoint\0${callId}\0`,
  cancel: (callId: string) => `toolfleet.cancel\0${callId}\0`,
  announcement: (worker: string) => `toolfleet.announcement\0${worker}\0`,
  grant: (runId: string, artifact: string) => `toolfleet.artifact-grant\0${runId}\0${artifact}\0`,
};

export class Seal {
  private readonly secrets: readonly string[];

  /** The first secret signs, all of them are believed. */
  constructor(secrets: readonly string[]) {
    this.secrets = secrets;
  }

  sign(purpose: string, text: string): string {
    return mac(this.secrets[0]!, purpose, text);
  }

  /** Throws Refused unless the fleet has signed just this text for just this purpose. */
  check(purpose: string, text: string | Buffer, signature: string): void {
    const given = Buffer.from(signature);
    const known = this.secrets.map((secret) => Buffer.from(mac(secret, purpose, text)));
    if (!known.some((own) => own.length === given.length && timingSafeEqual(own, given))) {
      throw new Refused("unsigned or altered");
    }
  }

  /** The text as bytes for Redis: its MAC, then itself. */
  close(purpose: string, text: string): Buffer {
    return Buffer.from(this.sign(purpose, text) + text);
  }

  /** The text in sealed bytes. Throws Refused. */
  open(purpose: string, sealed: Buffer): string {
    const text = sealed.subarray(MAC_CHARS);
    this.check(purpose, text, sealed.subarray(0, MAC_CHARS).toString("latin1"));
    return text.toString();
  }

  closeAnnouncement(worker: string, atMs: number, text: string): Buffer {
    return this.close(PURPOSE.announcement(worker), String(atMs).padStart(AT_DIGITS, "0") + text);
  }

  /** Whether the fleet has marked this call as cancelled. */
  isCancel(callId: string, mark: Buffer | null): boolean {
    try {
      return mark !== null && this.open(PURPOSE.cancel(callId), mark) !== undefined;
    } catch (error) {
      if (error instanceof Refused) return false;
      throw error;
    }
  }

  /** When (ms, by the server's clock) and what a worker has announced. Throws Refused. */
  openAnnouncement(worker: string, sealed: Buffer): [number, string] {
    const said = this.open(PURPOSE.announcement(worker), sealed);
    return [Number(said.slice(0, AT_DIGITS)), said.slice(AT_DIGITS)];
  }

  /** What shows others that this member of the fleet has their secrets, that with which it signs first. */
  proofs(member: string): string[] {
    return this.secrets.map((secret) => mac(secret, PURPOSE.member, member));
  }
}

/** What a worker says whose seal is not ours: only its proofs are of use, to tell that its secret is another one. */
export const unsealedAnnouncement = (sealed: Buffer): string => sealed.subarray(MAC_CHARS + AT_DIGITS).toString();

function mac(secret: string, purpose: string, text: string | Buffer): string {
  return createHmac("sha256", secret).update(purpose).update(text).digest("hex");
}
