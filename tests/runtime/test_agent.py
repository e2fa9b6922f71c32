"""The scripted agent: the order of its log, its tools, its hook, and logs played again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings

from tests.runtime.child import Talker
from tests.sequences import any_sequence, lawful_sequence
from torntail.explore.live_store import TroubledStore
from torntail.runtime import Session, WritePolicy, resume, start
from torntail.runtime.agent import Agent, ModelEnded, ToolCall
from torntail.runtime.scripts import ScriptedModel, chunks_of, recording_of, replay
from torntail.session import (
    SessionEvent,
    derive_messages,
    transcript_problems,
    turn_grammar_problem,
)
from torntail.session import vocabulary as words
from torntail.stores.contract import StorageFailed
from torntail.stores.memory import MemoryStore

CALLS = [words.tool_call_block("a", "look", '{"at":1}'), words.tool_call_block("b", "touch")]
SCRIPT: list[list[Any]] = [
    [words.reasoning("I must look first."), words.text("I look."), *CALLS],
    [words.text("That is "), words.text("all.")],
]


async def look(call: ToolCall) -> str:
    return f"{call.id} {call.name} {call.arguments}"


def types(session: Session) -> list[str]:
    return [event.type for event in session.events() if event.type != "assistant/chunk"]


def run(session: Session, *prompts: str, **options: Any) -> list[str]:
    model = options.pop("model", None) or ScriptedModel(SCRIPT)
    tools = options.pop("tools", {"look": look, "touch": look})

    async def main() -> list[str]:
        agent = Agent(session, model, tools, **options)
        return [await agent.say(prompt) for prompt in prompts]

    return asyncio.run(main())


def checked(session: Session) -> list[SessionEvent]:
    events = session.events()
    assert turn_grammar_problem(events) is None
    assert transcript_problems(derive_messages(events)) == []
    return events


def test_a_turn_is_written_in_order_without_a_store() -> None:
    session = start()
    assert run(session, "What is there?") == ["That is all."]
    assert types(session) == [
        "turn/start",
        "user/message",
        "step/start",
        "assistant/message",
        "tool/call",
        "tool/call",
        "tool/result",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    events = checked(session)
    message = next(event for event in events if event.type == "assistant/message")
    chunks = [event for event in events if event.type == "assistant/chunk"]
    first = [event.seq for event in chunks if event.data["step"] == 1]
    assert message.data == {"turn": 1, "step": 1, "content": SCRIPT[0]}
    assert message.source_event_seqs == first
    assert [event.data["chunk"] for event in chunks if event.data["step"] == 1] == [
        *chunks_of(SCRIPT[0])
    ]
    calls = [event for event in events if event.type == "tool/call"]
    results = [event for event in events if event.type == "tool/result"]
    assert [call.data["callId"] for call in calls] == ["a", "b"]
    assert [result.source_event_seqs for result in results] == [[call.seq] for call in calls]
    assert [result.data["content"] for result in results] == [
        [words.text('a look {"at":1}')],
        [words.text("b touch {}")],
    ]
    assert events[-1].data == {"turn": 1, "reason": {"kind": "completed"}}


def test_turns_follow_each_other() -> None:
    session = start()
    run(session, "one", "two", model=Talker())
    assert [event.data["turn"] for event in session.events() if event.type == "turn/start"] == [
        1,
        2,
    ]
    checked(session)


def test_tools_run_side_by_side_and_answer_in_order() -> None:
    order: list[str] = []
    met = asyncio.Event()

    async def wait_for_the_other(call: ToolCall) -> str:
        await met.wait()
        order.append(call.id)
        return "first asked, last done"

    async def meet(call: ToolCall) -> str:
        order.append(call.id)
        met.set()
        return "last asked, first done"

    session = start()
    run(session, "Go", tools={"look": wait_for_the_other, "touch": meet})
    assert order == ["b", "a"]
    results = [event for event in checked(session) if event.type == "tool/result"]
    assert [result.data["callId"] for result in results] == ["a", "b"]


def test_no_tool_begins_before_its_call_is_durable() -> None:
    store = MemoryStore()
    stored: list[list[str]] = []

    async def look_into_the_store(call: ToolCall) -> str:
        stored.append([event.type for event in store.inspect("s").events])
        return "seen"

    with start(store, "s") as session:
        run(session, "Go", tools={"look": look_into_the_store, "touch": look_into_the_store})
    assert [types.count("tool/call") for types in stored] == [2, 2]
    assert len(store.inspect("s").events) == len(session)


def test_the_model_is_asked_when_the_question_is_durable() -> None:
    store = MemoryStore()

    class Asked(Talker):
        async def stream(self, messages: list[Any]) -> AsyncIterator[dict[str, Any]]:
            stored = derive_messages(store.inspect("s").events)
            # What load would add stands at the end, and is no message here.
            assert messages == stored
            async for chunk in super().stream(messages):
                yield chunk

    with start(store, "s") as session:
        run(session, "one", "two", model=Asked())


def test_a_stream_without_end_does_not_fill_memory() -> None:
    store = TroubledStore()
    long = [[words.text("x" * 12 * 500)]]
    with start(store, "s", policy=WritePolicy(maximum_unsaved_bytes=20_000)) as session:
        run(session, "Go", model=ScriptedModel(long))
    assert len(store.stored("s")) == len(session)
    assert store.calls.count(("append", "s")) > 3


def test_a_hook_decides_what_is_appended_and_so_which_tools_run() -> None:
    ran: list[str] = []

    async def note(call: ToolCall) -> str:
        ran.append(f"{call.id} {call.arguments}")
        return "done"

    def only_the_second(content: Any) -> Any:
        blocks = [block for block in content if block.get("id") != "a"]
        return [
            {**block, "arguments": '{"safe":true}'} if block["type"] == "tool-call" else block
            for block in blocks
        ]

    session = start()
    run(session, "Go", tools={"look": note, "touch": note}, before_message=only_the_second)
    assert ran == ['b {"safe":true}']
    checked(session)


def test_a_hook_that_leaves_nothing_leaves_no_message() -> None:
    session = start()
    run(session, "Go", before_message=lambda content: [])
    assert "assistant/message" not in types(session)
    checked(session)


def test_a_call_id_used_twice_is_run_once() -> None:
    ran: list[str] = []

    async def note(call: ToolCall) -> str:
        ran.append(call.id)
        return "done"

    twice: list[list[Any]] = [[CALLS[0], CALLS[0]], [words.text("Done.")]]
    session = start()
    run(session, "Go", model=ScriptedModel(twice), tools={"look": note})
    assert ran == ["a"]
    assert types(session).count("tool/result") == 1


def test_a_tool_that_fails_or_is_not_there_is_an_answer() -> None:
    async def fail(call: ToolCall) -> str:
        raise ValueError("no such place")

    session = start()
    run(session, "Go", tools={"look": fail})
    results = [event.data for event in checked(session) if event.type == "tool/result"]
    assert [(one["isError"], one["error"], one["content"]) for one in results] == [
        (True, {"name": "ValueError", "code": "failed"}, [words.text("no such place")]),
        (True, {"name": "LookupError", "code": "failed"}, [words.text("there is no tool 'touch'")]),
    ]


def test_a_turn_that_is_cancelled_is_closed_and_its_tools_are_stopped() -> None:
    session = start()
    stopped: list[str] = []

    async def main() -> None:
        inside = asyncio.Event()

        async def for_ever(call: ToolCall) -> str:
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(call.id)
            return "never"

        agent = Agent(session, ScriptedModel(SCRIPT), {"look": look, "touch": for_ever})
        task = asyncio.create_task(agent.say("Go"))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    events = checked(session)
    results = [event.data for event in events if event.type == "tool/result"]
    assert stopped == ["b"]
    assert results[-1]["error"] == {"name": "CancelledError", "code": "aborted"}
    assert events[-1].data["reason"] == {"kind": "aborted", "reason": "cancelled"}
    assert [event.type for event in events[-2:]] == ["step/end", "turn/end"]


def test_a_tool_that_is_cancelled_by_itself_is_an_answer() -> None:
    async def cancelled(call: ToolCall) -> str:
        raise asyncio.CancelledError

    session = start()
    run(session, "Go", tools={"look": cancelled, "touch": look})
    results = [event.data for event in checked(session) if event.type == "tool/result"]
    assert [one["isError"] for one in results] == [True, False]
    assert session.events()[-1].data["reason"] == {"kind": "completed"}


def test_a_model_that_fails_ends_the_turn_and_is_told() -> None:
    class Broken:
        async def stream(self, messages: list[Any]) -> AsyncIterator[dict[str, Any]]:
            yield {"type": "block-start", "index": 0, "blockType": "text"}
            raise ConnectionError("the line is dead")

    session = start()
    with pytest.raises(ConnectionError):
        run(session, "Go", model=Broken())
    events = checked(session)
    reason = {"kind": "error", "step": 1, "message": "the line is dead"}
    assert events[-1].data == {"turn": 1, "reason": reason}
    # And the session can be gone on with.
    assert run(session, "Again", model=ScriptedModel([SCRIPT[1]])) == ["That is all."]
    checked(session)


def test_a_model_that_has_ended_breaks_the_turn_off() -> None:
    session = start()
    run(session, "Go", model=ScriptedModel(SCRIPT[:1]))
    assert checked(session)[-1].data["reason"]["kind"] == "aborted"


def test_a_model_that_never_stops_asking_is_stopped() -> None:
    class Asking:
        async def stream(self, messages: list[Any]) -> AsyncIterator[dict[str, Any]]:
            said = sum(message["role"] == "assistant" for message in messages)
            for chunk in chunks_of([words.tool_call_block(f"call-{said}", "look")]):
                yield chunk

    session = start()
    run(session, "Go", model=Asking(), maximum_steps=3)
    assert types(session).count("step/start") == 3
    checked(session)


def test_a_store_that_says_no_ends_the_turn_and_loses_nothing() -> None:
    store = TroubledStore("none stored")
    session = start(store, "s")
    with pytest.raises(StorageFailed):
        run(session, "Go")
    assert checked(session)[-1].data["reason"]["kind"] == "error"
    session.flush().wait()
    assert store.stored("s") == session.events()
    session.close().wait()


def test_an_agent_goes_on_in_a_log_with_calls_that_nobody_answered() -> None:
    store = MemoryStore()
    with start(store, "s") as session:
        session.add(words.turn_start, turn=1)
        session.add(words.step_start, turn=1, step=1)
        session.add(words.assistant_message, turn=1, step=1, content=CALLS)
        session.add(words.step_end, turn=1, step=1)
        session.add(words.turn_end, turn=1)
    shown: list[Any] = []

    class Shown(Talker):
        async def stream(self, messages: list[Any]) -> AsyncIterator[dict[str, Any]]:
            shown.append(list(messages))
            async for chunk in super().stream(messages):
                yield chunk

    with resume(store, "s").wait() as session:
        run(session, "Go on", model=Shown())
    assert [transcript_problems(messages) for messages in shown] == [[]]


# --- logs played again --------------------------------------------------------------------------


def played_again(events: list[SessionEvent]) -> Session:
    session = start()
    asyncio.run(replay(events, session))
    return session


def test_a_log_played_again_is_the_same_log() -> None:
    session = start(clock=lambda: 5)
    run(session, "one", "two", model=Talker(), tools={"look": look})
    again = played_again(session.events())
    assert [(event.type, event.data) for event in again.events()] == [
        (event.type, event.data) for event in session.events()
    ]


def test_what_failed_fails_again() -> None:
    async def fail(call: ToolCall) -> str:
        raise ValueError("no such place")

    session = start()
    run(session, "Go", tools={"look": fail, "touch": look})
    again = played_again(session.events())
    assert types(again) == types(session)
    results = [event.data for event in again.events() if event.type == "tool/result"]
    assert [one["isError"] for one in results] == [True, False]


@given(any_sequence() | lawful_sequence())
@settings(max_examples=100)
def test_any_log_can_be_played_again(events: list[SessionEvent]) -> None:
    session = played_again(events)
    checked(session)
    turns = sum(event.type == "turn/start" for event in events)
    assert session.turn == turns
    assert len(recording_of(events).turns) == turns


def test_a_script_that_has_ended_says_so() -> None:
    async def main() -> None:
        with pytest.raises(ModelEnded):
            async for _chunk in ScriptedModel([]).stream([]):
                pass

    asyncio.run(main())
