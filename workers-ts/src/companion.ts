/** The process that tells when a worker's own was killed, so that its calls need not wait for its lease to lapse. */

import type { Settings } from "./settings.ts";

export interface Orders { settings: Settings; consumer: string; streams: string[] }

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => undefined); // they are for the worker
const said: Buffer[] = [];
for await (const part of process.stdin) said.push(part as Buffer); // until the worker ends, however it does
const { settings, consumer, streams } = JSON.parse(Buffer.concat(said).toString()) as Orders;
setTimeout(() => process.exit(1), settings.leaseS * 1000); // by then the lease has lapsed

// Loaded only now: until then this process has nothing to do, and should be small.
const { GONE_MS, GROUP, keysOf, RETURNED, Store, untilTaken } = await import("./contract.ts");
const store = new Store(settings.redis);
const lease = keysOf(settings.namespace).lease(consumer);
await untilTaken(() => store.run("leave", [lease, ...streams], [GROUP, RETURNED, consumer, GONE_MS]));
process.exit(0);
