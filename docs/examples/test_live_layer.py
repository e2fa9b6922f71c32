from torntail import live_suite
from torntail.runtime import fork, resume, start


class MySession:
    """A session of the layer under test, each of its calls waiting for its end."""

    def __init__(self, session):
        self.session = session
        self.subscribe = session.subscribe
        self.derive_messages = session.derive_messages

    @property
    def header(self):
        return self.session.header

    def events(self):
        return self.session.events()

    def append(self, event_type, data, surface_op=None):
        return self.session.append(event_type, data, surface_op=surface_op)

    def flush(self):
        self.session.flush().wait()

    def close(self):
        self.session.close().wait()


class MyLayer:
    def start(self, store, session_id):
        return MySession(start(store, session_id))

    def resume(self, store, session_id):
        return MySession(resume(store, session_id).wait())

    def fork(self, store, session_id, new_id, at=None):
        return MySession(fork(store, session_id, at=at, new_id=new_id).wait())


TestMyLayer = live_suite(MyLayer())
