"""An event type of one's own: kept like any other, and read back."""

from torntail.runtime import resume, start
from torntail.session import vocabulary as words


def rate(session, turn, stars):
    # Data is any JSON value; what JSON cannot carry is refused here, not at the next flush.
    session.append("diary/rating", {"turn": turn, "stars": stars})


def ratings(session):
    return {
        event.data["turn"]: event.data["stars"]
        for event in session.events()
        if event.type == "diary/rating"
    }


def use(store):
    with start(store, "diary") as session:
        shown = []
        session.subscribe(lambda event: shown.append(event.type))
        session.add(words.turn_start, turn=1)
        session.add(words.turn_end, turn=1)
        rate(session, turn=1, stars=4)
        assert shown == ["turn/start", "turn/end", "diary/rating"]
    with resume(store, "diary").wait() as session:
        assert session.derive_messages() == []  # It is no message.
        return ratings(session)
