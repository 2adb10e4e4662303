/** How this worker is set up, from the same `TOOLFLEET_…` variables as every other process of the fleet. */

import { readFileSync } from "node:fs";
import type { RedisOptions } from "ioredis";

const MIN_SECRET_BYTES = 16;
const LOCAL_HOSTS = new Set(["localhost", "127.0.0.1", "::1", ""]);

/** This worker cannot serve as it is set up; starting it again will not help. */
export class Misconfigured extends Error {}

export type Settings = ReturnType<typeof readSettings>;

export function readSettings(env: NodeJS.ProcessEnv = process.env) {
  const text = (name: string, otherwise: string) => env[`TOOLFLEET_${name}`] || otherwise;
  const number = (name: string, otherwise: number) => {
    const value = Number(text(name, String(otherwise)));
    if (Number.isFinite(value) && value >= 0) return value;
    throw new Misconfigured(`TOOLFLEET_${name} is no number`);
  };
  const secret = text("SECRET", "");
  const redis = redisOptions(text("REDIS_URL", "redis://127.0.0.1:6379/0"));
  if (!secret && !redis.path && !LOCAL_HOSTS.has(redis.host ?? "")) {
    throw new Misconfigured("TOOLFLEET_SECRET is required when Redis is not on this machine: use the fleet's own");
  }
  if (secret && Buffer.byteLength(secret) < MIN_SECRET_BYTES) {
    throw new Misconfigured(`TOOLFLEET_SECRET must have at least ${MIN_SECRET_BYTES} bytes`);
  }
  return {
    redis,
    secrets: [secret, ...[text("PREVIOUS_SECRET", "")].filter(Boolean)],
    publicUrl: text("PUBLIC_URL", "").replace(/\/+$/, ""),
    namespace: text("NAMESPACE", "toolfleet"),
    leaseS: number("LEASE_S", 30),
    heartbeatS: number("HEARTBEAT_S", 5),
    graceS: number("SHUTDOWN_GRACE_S", 30),
    blockedLoopS: number("BLOCKED_LOOP_S", 120),
    maxDeliveries: number("MAX_DELIVERIES", 5),
    maxMessageBytes: number("MAX_MESSAGE_BYTES", 4 << 20),
    maxArgumentBytes: number("MAX_ARGUMENT_BYTES", 1 << 20),
    maxResultBytes: number("MAX_RESULT_BYTES", 256 << 10),
    maxArtifactBytes: number("MAX_ARTIFACT_BYTES", 16 << 20),
    keepArtifactS: Math.round(number("KEEP_ARTIFACT_S", 7 * 86_400)),
  };
}

function redisOptions(address: string): RedisOptions {
  const wrong = (why: string) => new Misconfigured(`TOOLFLEET_REDIS_URL ${why}`);
  if (!/^(rediss?|unix):\/\//.test(address)) {
    const scheme = /^[\w+]*:\/\//.exec(address)?.[0] ?? "no scheme";
    throw wrong(`begins with ${scheme}: redis://, rediss:// and unix:// are understood. Of servers behind Sentinel, give an address that leads to the primary`);
  }
  // Of an address without a host the standard takes no user.
  const whole = address.replace(/^unix:\/\/([^/]*@)?\//, "unix://$1localhost/");
  if (!URL.canParse(whole)) throw wrong("is no address");
  const url = new URL(whole);
  const db = url.searchParams.get("db") ?? (url.protocol === "unix:" ? "" : url.pathname.slice(1));
  if (!/^\d*$/.test(db)) throw wrong(`names no database: ${JSON.stringify(db)} is no number`);
  const options: RedisOptions = { db: Number(db) };
  if (url.username) options.username = decodeURIComponent(url.username);
  if (url.password) options.password = decodeURIComponent(url.password);
  if (url.protocol === "unix:") return { ...options, path: decodeURIComponent(url.pathname) };
  Object.assign(options, { host: url.hostname.replace(/^\[|\]$/g, "") || "localhost", port: Number(url.port) || 6379 });
  if (url.protocol !== "rediss:") return options;
  const unknown = [...url.searchParams.keys()].find((name) => name.startsWith("ssl_") && name !== "ssl_ca_certs");
  if (unknown) throw wrong(`: of the options for TLS, ssl_ca_certs is understood, and not ${unknown}`);
  const trusted = url.searchParams.get("ssl_ca_certs");
  if (trusted === null) return { ...options, tls: {} };
  try {
    return { ...options, tls: { ca: readFileSync(trusted, "utf8") } };
  } catch (error) {
    throw wrong(`: ${trusted} has no certificates (${(error as Error).message})`);
  }
}
