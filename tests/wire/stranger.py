"""A worker that knows nothing of Toolfleet but docs/wire.md and wire/v1/: as small as the page allows.

It serves `echo` and `twice`, and reads versions 1 and 2 of calls. Version 2 is made up: there arguments are an object
and no text. Run as a program with the server's address, the fleet's secret and a name; says "ready" when it can be
called, and stops in order when asked to.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import redis

WIRE = Path(__file__).parents[2] / "toolfleet" / "wire_v1"
MANIFEST = json.loads((WIRE / "scripts.json").read_text())
NS, GROUP, RETURNED, QUEUE = "toolfleet", "workers", "@returned", "io"
LEVELS = (0, 3, 6)
SLOTS = 4
LANE = QUEUE + ".lane-" + hashlib.sha256(b"echo twice, versions 1 and 2").hexdigest()[:12]
READS = [1, 2]


def text_of(steps: list[Any]) -> str:
    """What a script is made of, as one text."""
    return "\n".join(map(step_of, steps))


def step_of(step: Any) -> str:
    if isinstance(step, str):
        return (WIRE / "scripts" / step).read_text()
    if "constants" in step:
        return "\n".join(f"local {name} = '{MANIFEST['constants'][name]}'" for name in step["constants"])
    if "library" in step:
        return text_of(MANIFEST["libraries"][step["library"]])
    end = f"return {', '.join(step['gives'])}\n" if step["gives"] else ""
    return f"local function {step['function']}()\n{text_of(step['of'])}\n{end}end"


class Stranger:
    def __init__(self, url: str, secret: str, name: str) -> None:
        self.redis = redis.Redis.from_url(url)
        self.secret, self.name = secret.encode(), name
        self.consumer = f"stranger-{os.getpid()}-{secrets.token_hex(4)}"
        self.streams = [f"{NS}:queue:{queue}:{level}" for level in LEVELS for queue in (LANE, QUEUE)]
        self.stopping = threading.Event()
        self.announced_ms = 0
        self.scripts = {
            name: self.redis.register_script(text_of(script["made_of"])) for name, script in MANIFEST["scripts"].items()
        }

    def run(self, name: str, keys: list[Any], *args: Any) -> Any:
        return self.scripts[name](keys=keys, args=args)

    def mac(self, purpose: str, text: bytes) -> bytes:
        return hmac.new(self.secret, purpose.encode() + text, hashlib.sha256).hexdigest().encode()

    # --- what is said of itself ---------------------------------------------------------------------------------

    def live(self) -> None:
        """Keep the lease, the word on the lane and the announcement, whatever the tools do."""
        while not self.stopping.is_set():
            self.show_life()
            self.stopping.wait(5)

    def show_life(self) -> None:
        self.redis.set(f"{NS}:lease:{self.consumer}", "alive", px=15_000)
        self.run("keep_lane", [f"{NS}:lane:{LANE}", f"{NS}:lanes:{QUEUE}"], LANE, self.consumer, 15_000)
        seconds, micros = self.redis.time()
        self.announced_ms = max(self.announced_ms + 1, seconds * 1000 + micros // 1000)
        said = f"{self.announced_ms:015}".encode() + json.dumps(self.announcement()).encode()
        sealed = self.mac(f"toolfleet.announcement\0{self.name}\0", said) + said
        tools = ("echo", "twice")
        keys = [f"{NS}:workers", f"{NS}:worker:{self.name}", *(f"{NS}:spec:{tool}" for tool in tools)]
        clash, variant = self.run("announce", keys, 30, self.name, sealed, *(f"1 fleet_tools:{tool}" for tool in tools))
        assert clash < 0, variant

    def announcement(self) -> dict[str, Any]:
        spec = {"description": "Give back what came.", "input_schema": {"type": "object"}, "queue": QUEUE}
        return {
            "worker": self.name,
            "pid": os.getpid(),
            "pool": "stranger",
            "concurrency": SLOTS,
            "queues": [QUEUE],
            "started_unix_s": time.time(),
            "tools": [
                {**spec, "name": "echo", "effect": "read_only", "digest": "00000000ec40"},
                {**spec, "name": "twice", "effect": "once", "digest": "000000002222"},
            ],
            "sources": {"echo": "fleet_tools:echo", "twice": "fleet_tools:twice"},
            "lanes": {QUEUE: LANE},
            "proofs": [self.mac("toolfleet.member\0", self.name.encode()).decode()],
            "reads": READS,
        }

    # --- calls --------------------------------------------------------------------------------------------------

    def work(self) -> None:
        while not self.stopping.is_set():
            names = (f"{NS}:claim:", f"{NS}:cancelled:", f"{NS}:result:", f"{NS}:counters")
            args = (GROUP, self.consumer, RETURNED, SLOTS, *names, SLOTS, f"{NS}:scheduled:{QUEUE}")
            _, kinds = self.run("fetch", self.streams, *args)
            for position, count, claimed, cancelled, _, names, told in kinds:
                width = 1 + len(names)
                for at in range(0, len(told), width):
                    fields = dict(zip(names, told[at + 1 : at + width], strict=True))
                    self.take(self.streams[position - 1], told[at], count, bool(claimed), bool(cancelled), fields)
            if not kinds:
                self.stopping.wait(0.05)

    def take(self, stream: str, entry: bytes, count: int, claimed: bool, cancelled: bool, fields: Any) -> None:
        try:
            headers, call = self.believed(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.run("bury", [stream, f"{NS}:dead", f"{NS}:counters"], GROUP, 10_000, QUEUE, 65536, entry, str(error))
            return
        if call["v"] not in READS or call["tool"] not in ("echo", "twice"):
            if self.pass_on(stream, entry, call) == 3:
                self.settle(stream, entry, call, failed("unknown_tool", "nobody serves it"), fields)
            return
        once = bool(headers.get("claim")) or call["tool"] == "twice"
        result = must_not_start(call, count + int(fields.get(b"earlier", 0)), once, cancelled)
        if result is None and once and not claimed and not self.claim(entry, call):
            self.redis.xack(stream, GROUP, entry)
            self.redis.xdel(stream, entry)
            return
        self.settle(stream, entry, call, result or self.answer(call), fields)

    def believed(self, fields: Any) -> tuple[Any, Any]:
        headers = json.loads(fields[b"h"])
        (text, mac), *_ = json.loads(fields[b"b"])
        if not hmac.compare_digest(self.mac("toolfleet.call\0", text.encode()), mac.encode()):
            raise ValueError("unsigned or altered")
        call = json.loads(text)
        if (call["call_id"], call["tool"]) != (headers["id"], headers["task"]):
            raise ValueError("the envelope belongs to another call or tool")
        return headers, call

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        arguments = call["arguments"]
        if call["v"] == 1:
            arguments = json.loads(arguments)
        value = arguments.get("value")
        said = value if call["tool"] == "echo" else [value, value]
        content = said if isinstance(said, str) else json.dumps(said, separators=(",", ":"))
        return {"content": content, "attributes": {"by": self.name}, "type": "returned"}

    def claim(self, entry: bytes, call: dict[str, Any]) -> bool:
        lasts_s = max(1, int(call["deadline_unix_s"] - time.time())) + 600
        holder = self.redis.set(f"{NS}:claim:{call['call_id']}", entry, nx=True, get=True, ex=lasts_s)
        return holder in (None, entry)

    def pass_on(self, stream: str, entry: bytes, call: dict[str, Any]) -> int:
        home = f"{NS}:queue:{QUEUE}:{stream.rpartition(':')[2]}"
        deadline_ms = int(call["deadline_unix_s"] * 1000)
        args = (GROUP, self.consumer, entry, home, 1000, 30_000, deadline_ms, f"{NS}:claim:")
        outcome: int = self.run("forward", [stream, f"{NS}:scheduled:{QUEUE}"], *args)
        return outcome

    def settle(self, stream: str, entry: bytes, call: dict[str, Any], result: dict[str, Any], fields: Any) -> None:
        text = json.dumps(result).encode()
        sealed = self.mac(f"toolfleet.result\0{call['call_id']}\0", text) + text
        gates = [gate for gate in json.loads(fields.get(b"gates", b"[]")) if gate[0] == "concurrency"]
        places = [len(gates), *(f"concurrency|{tool}|{value}" for _, tool, value, *_ in gates)] if gates else [""]
        replies = f"{NS}:replies:{call['reply_to']}"
        origin = (stream, self.consumer, f"{NS}:result:", replies, 1)
        self.run("settle", [], f"{NS}:job:", *origin, entry, call["call_id"], sealed, *places)

    # --- the end ------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.redis.delete(f"{NS}:worker:{self.name}")
        self.redis.zrem(f"{NS}:workers", self.name)
        lane = [f"{NS}:queue:{queue}:{level}" for level in LEVELS for queue in (LANE, QUEUE)]
        keys = [f"{NS}:lane:{LANE}", f"{NS}:lanes:{QUEUE}", *lane]
        self.run("retire_lane", keys, GROUP, RETURNED, LANE, self.consumer, 500, f"{NS}:claim:")
        self.run("leave", [f"{NS}:lease:{self.consumer}", *self.streams], GROUP, RETURNED, self.consumer, 1)


def must_not_start(call: dict[str, Any], count: int, once: bool, cancelled: bool) -> dict[str, Any] | None:
    if once and count > 1:
        return failed("in_doubt", "it may have happened")
    if count > 5:
        return failed("crashed", "it ends its workers")
    if time.time() >= call["deadline_unix_s"]:
        return failed("expired", "too late")
    return failed("cancelled", "it was cancelled before it started") if cancelled else None


def failed(kind: str, message: str) -> dict[str, Any]:
    return {"message": message, "kind": kind, "type": "failed"}


def main() -> None:
    stranger = Stranger(*sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: stranger.stopping.set())
    stranger.show_life()
    living = threading.Thread(target=stranger.live)
    living.start()
    print("ready", flush=True)
    try:
        stranger.work()
    finally:
        stranger.stopping.set()
        living.join()
        stranger.leave()


if __name__ == "__main__":
    main()
