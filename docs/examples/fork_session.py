"""Two ways to go on from one point."""

from torntail.runtime import fork, resume, start
from torntail.session import vocabulary as words


def ask(session, question):
    turn = session.turn + 1
    session.add(words.turn_start, turn=turn)
    session.add(words.user_message, content=[words.text(question)])
    session.add(words.turn_end, turn=turn)


def try_twice(store):
    with start(store, "plan") as session:
        ask(session, "Where shall we begin?")
        begun = len(session)
        ask(session, "With the roof?")
    with fork(store, "plan", at=begun, new_id="plan-b").wait() as other:
        assert (other.header.parent_session, other.header.seed_length) == ("plan", begun)
        ask(other, "With the cellar?")
    return resume(store, "plan").wait(), resume(store, "plan-b").wait()
