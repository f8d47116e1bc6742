# SPDX-License-Identifier: BSD-2-Clause
"""Settings of Sphinx for the documentation site."""

import peerdma

project = "peerdma"
version = release = peerdma.__version__
root_doc = "README"
# Forms, and what is for readers of a wheel: offered as files.
exclude_patterns = [".github", "sim"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Anchors of headings as code hosts make them; anchors in lines for fields of registers.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
# Code blocks without a language are commands and drawings.
highlight_language = "text"

# `name` in a docstring is a name, and a link where the site has it.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
# `path` in a docstring may be any of several attributes.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"peerdma {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
# The excerpts are fetched, which browsers refuse for pages opened as files.
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
