"""A chat whose sessions survive: `python chat_agent.py DIRECTORY SESSION`, one line a question."""

import asyncio
import sys

from torntail.runtime import resume, start
from torntail.runtime.agent import Agent
from torntail.runtime.scripts import chunks_of
from torntail.session.vocabulary import text, tool_call_block
from torntail.stores.contract import SessionNotFound
from torntail.stores.jsonl import JsonlStore


class Model:
    """Where a provider would be asked; this one counts, and looks up what it is told to."""

    async def stream(self, messages):
        last = messages[-1]["content"][-1]
        if last["type"] == "tool-result":
            reply = [text(f"I found: {last['content'][0]['text']}")]
        elif last["text"].startswith("look up "):
            reply = [text("I look."), tool_call_block(f"call-{len(messages)}", "look_up")]
        else:
            reply = [text(f"You have asked {sum(m['role'] == 'user' for m in messages)} times.")]
        for chunk in chunks_of(reply):
            yield chunk


async def look_up(call):
    return "forty-two"


async def chat(directory, session_id, questions):
    with JsonlStore(directory) as store:
        try:
            session = await resume(store, session_id)
        except SessionNotFound:
            session = start(store, session_id)
        async with session:
            agent = Agent(session, Model(), {"look_up": look_up})
            return [await agent.say(question.strip()) for question in questions]


if __name__ == "__main__":
    print(*asyncio.run(chat(sys.argv[1], sys.argv[2], sys.stdin)), sep="\n")
