"""Seeing and striking the file operations of a child process in any language, on Linux x86-64.

`process` is the way in; it starts `helper`, a process of its own that traces. Everything the helper
imports is kept apart from the rest of the project and from slow modules, for it is started once per
child: no msgspec, no typing, no enum.
"""
