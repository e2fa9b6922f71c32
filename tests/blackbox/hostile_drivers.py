"""Drivers that break the protocol at `load`, each in its way; a script, its argument says which.

    python hostile_drivers.py rubbish

Without a store behind it: `append` does nothing, `load` gives one event, if it behaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

EVENT = {"type": "note", "seq": 0, "time": 1, "data": {}}
SESSION = {"header": None, "events": [EVENT]}
CLAIMS = {"profile": "log", "header": False, "creates": "implicit", "lists": False}
SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


def say(text: bytes) -> None:
    while text:
        text = text[os.write(1, text) :]


def answer(number: int, result: object) -> bytes:
    return json.dumps({"id": number, "result": result}).encode() + b"\n"


def rubbish(number: int) -> None:
    say(b"Debug: loading\n" + answer(number, SESSION))


def no_object(number: int) -> None:
    say(b"[1, 2]\n")


def no_utf8(number: int) -> None:
    say(b'{"id":%d,"result":{"events":["\xff"]}}\n' % number)


def half_a_line(number: int) -> None:
    say(b'{"id":')
    time.sleep(600)


def half_a_line_and_exit(number: int) -> None:
    say(b'{"id":')
    os._exit(3)


def a_hundred_megabytes(number: int) -> None:
    for _ in range(101):
        say(b"x" * 1_000_000)
    say(b"\n")


def wrong_id(number: int) -> None:
    say(answer(number + 7, SESSION))


def the_id_before(number: int) -> None:
    say(answer(number - 1, SESSION))


def both(number: int) -> None:
    say(b'{"id":%d,"result":{},"error":{"kind":"other","message":"m"}}\n' % number)


def unknown_kind(number: int) -> None:
    say(b'{"id":%d,"error":{"kind":"locked","message":"m"}}\n' % number)


def nothing(number: int) -> None:
    time.sleep(600)


def exit_in_the_middle(number: int) -> None:
    os.write(2, b"out of luck\n")
    os._exit(3)


def killed(number: int) -> None:
    os.kill(os.getpid(), 9)


def closes_its_output(number: int) -> None:
    os.close(1)
    time.sleep(600)


def answers_late(number: int) -> None:
    time.sleep(1.5)
    say(answer(number, SESSION))


def terminal(number: int) -> None:
    with open("/dev/tty") as file:
        file.readline()


def children(number: int) -> None:
    """Two sleepers: an ordinary child, and one that has left the session and its parent."""
    for apart in (False, True):
        child = subprocess.Popen(SLEEPER, start_new_session=apart)
        os.write(2, b"child %d\n" % child.pid)
    os._exit(0)


def noise(number: int) -> None:
    for _ in range(50):
        os.write(2, b"e" * 1_000_000)
    os.write(2, b"\nthe last words\n")
    say(answer(number, SESSION))


def wrong_shape(number: int) -> None:
    say(answer(number, {"events": 3}))


def wrong_event(number: int) -> None:
    say(answer(number, {"events": [{**EVENT, "seq": "0"}]}))


def well(number: int) -> None:
    say(answer(number, SESSION))


def main() -> None:
    name = sys.argv[1]
    load = globals().get(name, well)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        number = request["id"]
        if request["call"] == "hello":
            if name == "greets_in_another_protocol":
                say(answer(number, {"protocol": 2, "name": name, "version": "1"}))
            elif name == "exits_at_once":
                sys.exit("no such database")
            else:
                facts = {"protocol": 1, "name": name, "version": "1", "capabilities": CLAIMS}
                say(answer(number, facts))
        elif request["call"] == "load":
            load(number)
        else:
            if name == "writes_outside" and request["call"] == "append":
                with open(os.environ["OUTSIDE"], "a") as file:
                    file.write("kept where nobody looks")
            say(answer(number, {}))
    if name == "ignores_the_end":
        time.sleep(600)
    if name == "leaves_a_child":
        subprocess.Popen(SLEEPER, start_new_session=True)


if __name__ == "__main__":
    main()
