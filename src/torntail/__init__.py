"""torntail tests whether a session store for AI agents keeps its promises when things go wrong.

The promises are the numbered clauses of the contract, held as data in
:mod:`torntail.judge.clauses`.
"""

from __future__ import annotations

# Not from typing, which is slow to import: the helper of each traced child starts here, too.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torntail.explore.campaign import certify
    from torntail.judge.capabilities import Capabilities
    from torntail.plugin.live_suite import live_suite
    from torntail.plugin.suite import contract_suite

__all__ = ["Capabilities", "__version__", "certify", "contract_suite", "live_suite"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazily: whoever wants the session model alone does not pay for the harness.
    if name == "certify":
        from torntail.explore.campaign import certify

        return certify
    if name == "Capabilities":
        from torntail.judge.capabilities import Capabilities

        return Capabilities
    if name == "contract_suite":
        from torntail.plugin.suite import contract_suite

        return contract_suite
    if name == "live_suite":
        from torntail.plugin.live_suite import live_suite

        return live_suite
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
