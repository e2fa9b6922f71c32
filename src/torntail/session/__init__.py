"""What a session is: events, strict JSON, turn grammar, the reading rule, derived history.

Pure: no file, no clock, no randomness.
"""

from torntail.session.codec import (
    NotJson,
    copy_event,
    encode_and_copy,
    encode_event,
    encode_header,
    join_surrogates,
    parse_event,
    parse_header,
)
from torntail.session.comparing import same_json
from torntail.session.events import FORMAT_VERSION, MalformedRecord, SessionEvent, SessionHeader
from torntail.session.scan import Damage, LogScan, Outcome, TornTail, scan_events, scan_log
from torntail.session.transcript import (
    MessageHistory,
    TranscriptError,
    derive_messages,
    provider_messages,
    transcript_problems,
)
from torntail.session.turns import (
    TurnGrammar,
    TurnTracker,
    interrupted_turn_closers,
    turn_grammar_problem,
)

__all__ = [
    "FORMAT_VERSION",
    "Damage",
    "LogScan",
    "MalformedRecord",
    "MessageHistory",
    "NotJson",
    "Outcome",
    "SessionEvent",
    "SessionHeader",
    "TornTail",
    "TranscriptError",
    "TurnGrammar",
    "TurnTracker",
    "copy_event",
    "derive_messages",
    "encode_and_copy",
    "encode_event",
    "encode_header",
    "interrupted_turn_closers",
    "join_surrogates",
    "parse_event",
    "parse_header",
    "provider_messages",
    "same_json",
    "scan_events",
    "scan_log",
    "transcript_problems",
    "turn_grammar_problem",
]
