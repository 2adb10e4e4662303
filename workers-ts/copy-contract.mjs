// The package carries the scripts of the contract, so that a worker needs nothing but its own folder.
import { cpSync, rmSync } from "node:fs";

const here = (path) => new URL(path, import.meta.url);
rmSync(here("wire/"), { recursive: true, force: true });
cpSync(here("../wire/v1/"), here("wire/"), { recursive: true, filter: (source) => !source.endsWith(".py") });
