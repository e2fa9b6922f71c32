"""A realistic mix of events: streams of chunks, messages, calls and results, in closed turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from torntail.session import SessionEvent, SessionHeader, encode_event, encode_header
from torntail.session import vocabulary as words

TIME = 1_700_000_000_000
WORDS = "The file reads as follows, and the second test fails where the first one did not. "


def session(steps: int = 3, chunks_each: int = 12) -> Iterator[SessionEvent]:
    """The events of an endless session; about 195 bytes each as lines."""
    seqs = count()

    def place() -> dict[str, int]:
        seq = next(seqs)
        return {"seq": seq, "time": TIME + 17 * seq}

    for turn in count(1):
        yield words.turn_start(**place(), turn=turn)
        question = words.text(WORDS * (1 + turn % 3))
        yield words.user_message(**place(), content=[question])
        for step in range(1, steps + 1):
            at = {"turn": turn, "step": step}
            yield words.step_start(**place(), **at)
            chunks = []
            for index in range(chunks_each):
                piece = WORDS[index * 3 : index * 3 + 9]
                chunk = {"type": "text-delta", "index": 0, "text": piece}
                event = words.assistant_chunk(**place(), **at, chunk=chunk)
                chunks.append(event.seq)
                yield event
            call_id = f"call_{turn:06d}_{step}"
            arguments = '{"path":"/home/agent/project/src/module.py","limit":200}'
            call = words.tool_call_block(call_id, "read_file", arguments)
            content = [words.reasoning(WORDS), words.text(WORDS), call]
            yield words.assistant_message(
                **place(),
                **at,
                content=content,
                usage={"inputTokens": 4000 + turn, "outputTokens": 240},
                source_event_seqs=chunks,
            )
            logged = words.tool_call(
                **place(), **at, call_id=call_id, name="read_file", arguments=arguments
            )
            yield logged
            yield words.tool_result(
                **place(),
                **at,
                call_id=call_id,
                content=[words.text(WORDS * 4 + "naïve café — 文字")],
                source_event_seqs=[logged.seq],
            )
            yield words.step_end(**place(), **at)
        yield words.turn_end(**place(), turn=turn)


def write_log(path: Path, session_id: str, *, events: int = 0, size: int = 0) -> tuple[int, int]:
    """A log of so many whole events, or of about so many bytes; gives its events and bytes."""
    written = 0
    small = size < 10_000 and not events
    with path.open("wb") as file:
        length = file.write(encode_header(SessionHeader(session_id, TIME)) + b"\n")
        for event in session(1, 4) if small else session():
            if written >= events and length >= size and event.type == "turn/start":
                break
            length += file.write(encode_event(event) + b"\n")
            written += 1
    return written, length


def batch(size: int, start: int = 0) -> list[SessionEvent]:
    """So many chunks of about 300 bytes, as one flush of a stream would write them."""
    chunk = {"type": "text-delta", "index": 0, "text": (WORDS * 3)[:190]}
    return [
        words.assistant_chunk(seq=seq, time=TIME + seq, turn=1, step=1, chunk=chunk)
        for seq in islice(count(start), size)
    ]
