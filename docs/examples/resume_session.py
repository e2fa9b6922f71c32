"""A process that died in the middle of a tool, and the next one."""

from torntail.runtime import resume, start
from torntail.session import transcript_problems
from torntail.session import vocabulary as words


def die_in_a_tool(store):
    session = start(store, "diary")
    session.add(words.turn_start, turn=1)
    session.add(words.user_message, content=[words.text("Write it down.")])
    session.add(words.step_start, turn=1, step=1)
    call = words.tool_call_block("call-1", "write")
    session.add(words.assistant_message, turn=1, step=1, content=[call])
    session.add(words.tool_call, turn=1, step=1, call_id="call-1", name="write")
    session.flush().wait()
    # ... and here the power fails.


def go_on(store):
    session = resume(store, "diary").wait()
    made = [event.type for event in session.repair.closers]
    assert made == ["tool/result", "step/end", "turn/end"]
    # Any provider takes this history: the call has an answer, which says that there was a crash.
    assert transcript_problems(session.derive_messages()) == []
    session.add(words.turn_start, turn=session.turn + 1)
    session.add(words.user_message, content=[words.text("Did you?")])
    session.add(words.turn_end, turn=session.turn)
    session.close().wait()
    return session
