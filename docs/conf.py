from torntail import __version__

project = "torntail"
author = "the torntail authors"
copyright = "2026, the torntail authors"
release = __version__
version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# Links may point at headings: contract.md#after-a-crash.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Tables such as the clauses are described, not printed.
autodoc_default_options = {"no-value": True}

html_theme = "furo"
html_title = f"torntail {release}"
