"""torntail tests whether a session store for AI agents keeps its promises when things go wrong.

The promises are the numbered clauses of the contract, held as data in
:mod:`torntail.judge.clauses`.
"""

__version__ = "0.1.0"
