"""What a session shows a model is valid for two providers, by their own types and rules."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.runtime import providers
from tests.runtime.child import Talker
from torntail.runtime import resume, start
from torntail.runtime.agent import Agent, ToolCall
from torntail.session import derive_messages
from torntail.session import vocabulary as words
from torntail.session.transcript import Message, mend_messages
from torntail.stores.memory import MemoryStore

CALL = words.tool_call_block("a", "look", '{"at":[1,2]}')
USER: Message = {"role": "user", "content": [words.text("Look.")]}
ASKED: Message = {"role": "assistant", "content": [words.reasoning("Hm."), CALL]}
ANSWER: Message = {
    "role": "user",
    "content": [words.tool_result_block("a", [words.text("seen")])],
}


@pytest.fixture(params=providers.PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if providers.types_of(name) is None:
        pytest.skip(f"the package {name} is not installed: pip install 'torntail[providers]'")
    return name


async def look(call: ToolCall) -> str:
    return f"seen by {call.id}"


def history(store: MemoryStore) -> list[Message]:
    """Turns of an agent, one cut inside its tools, a compaction, and a turn behind all of it."""

    async def main() -> list[Message]:
        async with start(store, "s") as session:
            agent = Agent(session, Talker(), {"look": look})
            await agent.say("one")
            session.add(words.turn_start, turn=2)
            session.add(words.user_message, content=[words.text("two")])
            session.add(words.step_start, turn=2, step=1)
            calls = [CALL, words.tool_call_block("b", "look")]
            at = {"turn": 2, "step": 1}
            session.add(words.assistant_message, **at, content=[words.text("I look."), *calls])
            session.add(words.tool_call, **at, call_id="a", name="look")
            session.add(words.tool_result, **at, call_id="a", content=[words.text("seen")])
        async with await resume(store, "s") as session:
            session.add(
                words.user_message,
                content=[words.text("What came before, in short.")],
                surface_op=words.replace(1, session.events()[1].seq),
            )
            session.add(
                words.context_message,
                content=[words.text("a file")],
                source={"kind": "plugin", "plugin": "files"},
            )
            await Agent(session, Talker(), {"look": look}).say("three")
            return session.derive_messages()

    return asyncio.run(main())


def test_the_types_take_what_a_session_shows(provider: str) -> None:
    messages = history(MemoryStore())
    assert len(messages) > 10
    assert providers.problems(messages) == []


def test_the_rules_take_what_a_session_shows() -> None:
    assert providers.problems(history(MemoryStore())) == []


def test_a_translation_keeps_every_word() -> None:
    messages = [USER, ASKED, ANSWER]
    function = {"name": "look", "arguments": '{"at":[1,2]}'}
    assert providers.openai_messages(messages) == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": [1, 2]}}
    result = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "seen"}],
        "is_error": False,
    }
    assert providers.anthropic_messages(messages) == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [USER, ASKED],
        [USER, ASKED, USER],
        [USER, ANSWER],
        [USER, ASKED, ANSWER, ANSWER],
        [USER, ASKED, USER, ANSWER],
    ],
    ids=["open at the end", "not answered", "no call", "answered twice", "answered late"],
)
def test_the_rules_refuse(messages: list[Message]) -> None:
    told = providers.problems(messages)
    # Two in a row with one role are one message there, so that a late answer is none.
    assert {problem.split(":")[0] for problem in told} >= {"openai"}
    assert told != []
    assert providers.problems(mend_messages(messages)) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"role": "nobody", "content": [words.text("?")]},
        {"role": "user", "content": [words.text(7)]},  # type: ignore[arg-type]
        {"role": "assistant", "content": [{**CALL, "name": None}]},
    ],
    ids=["role", "text", "name"],
)
def test_the_types_refuse(provider: str, broken: Any) -> None:
    told = providers.problems([USER, broken, ANSWER] if "tool" in str(broken) else [USER, broken])
    assert any(problem.startswith(f"{provider}: ") and "validation" in problem for problem in told)


def test_a_log_with_odd_messages_is_mended_for_both() -> None:
    session = start()
    session.add(words.turn_start, turn=1)
    session.add(words.step_start, turn=1, step=1)
    session.add(words.assistant_message, turn=1, step=1, content=[CALL])
    session.add(words.step_end, turn=1, step=1)
    messages = derive_messages(session.events())
    assert providers.problems(messages) != []
    assert providers.problems(mend_messages(messages)) == []
