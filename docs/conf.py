"""The documentation site: `make site` builds it, with warnings as errors and every cell run.

The repository itself is the source folder, so that links between docs/, results/ and
CONTRIBUTING.md are the same on the site and in a checkout. Nothing on a page comes from another
server: formulas are MathML (_site/mathml.py), the search index is a file of the site.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_site"))

project = "kronline"
author = "The kronline developers"
copyright = "the kronline developers, Apache-2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "mathml",
    "beside",
    "command_line",
    "public",
]

# which files are pages
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "results/*.md",
    "benchmarks/streams/README.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "runs", "**/jupyter_execute", "**/.ipynb_checkpoints"]
source_suffix = {".md": "myst-nb"}

# Markdown
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # a page that starts lower than #, as results/*.md may

# code cells: run at each build, one after the other; an error in one ends the build
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # of a cell, on a machine that does much else
nb_execution_show_tb = True
nb_merge_streams = True
nb_execution_in_temp = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # would come from another server
nb_mime_priority_overrides = [("html", "text/html", 0)]

# docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
autosummary_generate = False
napoleon_use_rtype = False
napoleon_use_param = False  # settings that share a line in a docstring share one here
napoleon_custom_sections = ["Reference"]
add_module_names = False
default_role = "py:obj"  # `LSTM` in a docstring leads to it; anything else is code

# the look
html_theme = "furo"
html_title = "kronline"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_favicon = "_site/static/icon.svg"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _kernel() -> None:
    """Jupyter's kernels start with _site/kernel.py: how figures look."""
    ipython = ROOT / "build" / "ipython"
    startup = ipython / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "_site" / "kernel.py", startup / "00-kronline.py")
    quiet = 'get_config().Application.log_level = "ERROR"\n'  # a local kernel needs no encryption
    (startup.parent / "ipython_kernel_config.py").write_text(quiet)
    os.environ["IPYTHONDIR"] = str(ipython)


_kernel()
