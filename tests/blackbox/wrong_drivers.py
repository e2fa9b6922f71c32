"""A small right driver, and drivers that break one rule of the protocol each; a script.

    python wrong_drivers.py talks

Sessions are kept in memory, by root.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NAME = sys.argv[1] if len(sys.argv) > 1 else "well"
roots: dict[str, dict[str, Any]] = {}
stores: dict[int, str] = {}


class Refused(Exception):
    pass


def hello(request: dict[str, Any]) -> dict[str, Any]:
    if NAME == "any_protocol" and request["protocol"] != 1:
        return {}
    claims = {"profile": "log", "creates": "implicit", "header": False, "inspects": False}
    return {"protocol": 1, "name": NAME, "version": "1", "capabilities": claims}


def result(request: dict[str, Any]) -> Any:
    call = request["call"]
    if call == "hello":
        return hello(request)
    if call == "open":
        stores[request["store"]] = "all" if NAME == "one_root" else request["root"]
        roots.setdefault(stores[request["store"]], {})
        return {}
    if call not in ("append", "load", "list", "close"):
        if NAME == "stops_at_the_unknown":
            sys.exit(1)
        raise Refused("other", f"no call {call}")
    if request["store"] not in stores:
        if NAME != "any_store":
            raise Refused("closed", "not open")
        return {"events": []}
    sessions = roots[stores[request["store"]]]
    if call == "close":
        if NAME != "never_closed":
            del stores[request["store"]]
        return {}
    if call == "append":
        sessions.setdefault(request["session"], []).extend(request["events"])
        return {}
    if call == "list":
        return {
            "sessions": [{"id": 1}]
            if NAME == "lists_oddly"
            else [{"session": one} for one in sessions]
        }
    if request["session"] not in sessions and NAME != "finds_everything":
        kind = "other" if NAME == "no_kind" else "not_found"
        raise Refused(kind, "" if NAME == "no_message" else "not found")
    if NAME == "loads_oddly":
        return {"events": "none"}
    return {"header": None, "events": sessions.get(request["session"], [])}


def say(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=NAME != "splits").encode() + b"\n"
    while text:
        text = text[os.write(1, text) :]


def answer(line: str) -> None:
    request = json.loads(line)
    try:
        say({"id": request["id"], "result": result(request)})
    except Refused as error:
        kind, message = error.args
        say({"id": request["id"], "error": {"kind": kind, "message": message}})


def lines() -> Any:
    if NAME == "reads_once":
        # One read, one request: what comes together is not told apart.
        pending = b""
        while piece := os.read(0, 1 << 24):
            pending += piece
            if pending.endswith(b"\n"):
                yield pending.decode()
                pending = b""
    elif NAME == "splits":
        for line in sys.stdin.buffer:
            yield from line.decode().splitlines()
    else:
        for line in sys.stdin.buffer:
            yield line.decode()


def main() -> None:
    for number, line in enumerate(lines()):
        if NAME == "reads_once" and line.count("\n") > 1:
            say("what is this")
            continue
        answer(line)
        if NAME == "talks" and number == 0:
            os.write(1, b"ready\n")
    if NAME == "bad_end":
        sys.exit(5)


if __name__ == "__main__":
    main()
