from tiny_store import TinyStore

from torntail import Capabilities, contract_suite

TestTinyStore = contract_suite(
    TinyStore,
    only=["RW", "CR", "CL", "DM"],  # Errors of the disk (IO) are its author's next step.
    capabilities=Capabilities(
        profile="log",
        detects=frozenset(),
        writers="one-unchecked",
        header=False,
        checks_seq=False,
        creates="implicit",
        repairs="none",
        lists=False,
        lazy=False,
        inspects=False,
        forks=False,
    ),
)
