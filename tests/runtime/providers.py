"""Histories as two providers want them, held against their own types and rules.

The types are those of the providers' Python packages, where these are installed (`types_of`); the
rules that no type says stand here: after each message with calls come their results, each once, and
no others.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Any

from torntail.session.transcript import Message

__all__ = ["PROVIDERS", "anthropic_messages", "openai_messages", "problems", "types_of"]

Translated = list[dict[str, Any]]


def openai_messages(messages: Sequence[Message]) -> Translated:
    """Chat completions: results are messages of role `tool`; reasoning is left out."""
    translated: Translated = []
    for message in messages:
        texts = [
            {"type": "text", "text": block["text"]}
            for block in message["content"]
            if block["type"] == "text"
        ]
        calls = [
            {
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": block["arguments"]},
            }
            for block in message["content"]
            if block["type"] == "tool-call"
        ]
        results = [block for block in message["content"] if block["type"] == "tool-result"]
        translated += [
            {"role": "tool", "tool_call_id": one["toolCallId"], "content": _text_of(one)}
            for one in results
        ]
        if texts or calls:
            made: dict[str, Any] = {"role": message["role"], "content": texts or None}
            translated.append({**made, "tool_calls": calls} if calls else made)
    return translated


def anthropic_messages(messages: Sequence[Message]) -> Translated:
    """Messages: results are blocks of one user message, and roles take turns."""
    translated: Translated = []
    for message in messages:
        blocks = [one for one in map(_anthropic_block, message["content"]) if one is not None]
        if not blocks:
            continue
        if translated and translated[-1]["role"] == message["role"]:
            translated[-1]["content"] += blocks
        else:
            translated.append({"role": message["role"], "content": blocks})
    return translated


def _anthropic_block(block: Mapping[str, Any]) -> dict[str, Any] | None:
    match block["type"]:
        case "text" if block["text"]:
            return {"type": "text", "text": block["text"]}
        case "tool-call":
            arguments = json.loads(block["arguments"])
            return {
                "type": "tool_use",
                "id": block["id"],
                "name": block["name"],
                "input": arguments,
            }
        case "tool-result":
            return {
                "type": "tool_result",
                "tool_use_id": block["toolCallId"],
                "content": [{"type": "text", "text": _text_of(block)}],
                "is_error": block["isError"],
            }
    return None


def _text_of(block: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in block["content"])


# --- rules --------------------------------------------------------------------------------------


def _openai_rules(messages: Translated) -> list[str]:
    problems = []
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                problems.append(f"message {place}: a result of no call before it")
            else:
                waiting.remove(message["tool_call_id"])
            continue
        problems += [f"message {place}: {call} has no result" for call in waiting]
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    return problems + [f"at the end: {call} has no result" for call in waiting]


def _anthropic_rules(messages: Translated) -> list[str]:
    problems = []
    waiting: list[str] = []
    for place, message in enumerate(messages):
        results = [
            block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"
        ]
        if sorted(results) != sorted(waiting):
            problems.append(f"message {place}: results of {results} where {waiting} were called")
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    return problems + [f"at the end: {call} has no result" for call in waiting]


# --- types --------------------------------------------------------------------------------------

PROVIDERS: dict[str, tuple[Callable[[Sequence[Message]], Translated], Any, str, str]] = {
    "openai": (openai_messages, _openai_rules, "openai.types.chat", "ChatCompletionMessageParam"),
    "anthropic": (anthropic_messages, _anthropic_rules, "anthropic.types", "MessageParam"),
}
"""Per provider: the translation, the rules, and where its type of a message is found."""


@functools.cache
def types_of(provider: str) -> Any:
    """The validator of a provider's messages, or None where its package is not installed."""
    _, _, module, name = PROVIDERS[provider]
    try:
        message = getattr(importlib.import_module(module), name)
        pydantic: Any = importlib.import_module("pydantic")
    except ModuleNotFoundError:
        return None
    return pydantic.TypeAdapter(GenericAlias(list, (message,)))


def problems(messages: Sequence[Message]) -> list[str]:
    """What either provider has against a history, its types included where they are installed."""
    found = []
    for provider, (translate, rules, _, _) in PROVIDERS.items():
        translated = translate(messages)
        found += [f"{provider}: {problem}" for problem in rules(translated)]
        adapter = types_of(provider)
        if adapter is not None:
            try:
                _walk(adapter.validate_python(translated, strict=True))
            except ValueError as error:
                found.append(f"{provider}: {error}")
    return found


def _walk(value: Any) -> None:
    """Looks at every part: what is declared as an iterable is checked when it is iterated only."""
    if isinstance(value, Mapping):
        value = value.values()
    elif isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return
    for part in value:
        _walk(part)
