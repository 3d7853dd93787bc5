"""The site: Sphinx reads the Markdown of docs/, which also reads well without it.

The lists of links on pages called index.md are the tables of contents, so that no page contains directives. The
pages of `FROM_ABOVE` show files of the folder above.
"""

import os
import re
from pathlib import Path

import simsql

DOCS = Path(__file__).resolve().parent
FROM_ABOVE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}

project = "simsql"
author = "The simsql developers"
copyright = author  # noqa: A001
version = release = simsql.__version__
extensions = ["myst_parser"]
exclude_patterns = ["images"]
source_suffix = {".md": "markdown"}
nitpicky = True
myst_heading_anchors = 4
myst_links_external_new_tab = False
# What runs the examples is not a lexer: some blocks are neither quite SQL nor quite a console.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"simsql {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def read_source(app, docname, source):
    """Show a file from above in place of a page that names it, and add tables of contents to lists of links."""
    if docname in FROM_ABOVE:
        file = DOCS.parent / FROM_ABOVE[docname]
        app.env.note_dependency(str(file), docname=docname)
        source[0] = file.read_text(encoding="utf-8")
    else:
        file = DOCS / f"{docname}.md"
    source[0] = re.sub(r"(?<=\]\()[^()#\s]+", lambda link: lead(link[0], file.parent, docname), source[0])
    if Path(docname).name == "index":
        source[0] += contents(source[0])


def lead(link: str, folder: Path, docname: str) -> str:
    """Return the link that leads from a page of the site to the same place as a link in a folder."""
    place = Path(os.path.normpath(folder / link))
    if ":" in link or not place.exists():
        return link
    if not place.is_relative_to(DOCS):
        above = {name: page for page, name in FROM_ABOVE.items()}.get(str(place.relative_to(DOCS.parent)))
        if above is None:
            # A file that no page shows can be downloaded.
            return "path:" + os.path.relpath(place, (DOCS / docname).parent)
        place = DOCS / f"{above}.md"
    return os.path.relpath(place, (DOCS / docname).parent)


def contents(page: str) -> str:
    """Return a hidden table of contents for each section of a page with a list of links."""
    directives = []
    for section in re.split(r"^(?=#+ )", page, flags=re.MULTILINE):
        names = re.findall(r"^(?:- |\| )\[[^]]*\]\(([^():#]+)\.md\)", section, re.MULTILINE)
        if names:
            caption = section.partition("\n")[0].strip("# ")
            directives.append(
                "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])
            )
    return "\n".join(directives)


def setup(app):
    """Connect what reads the pages."""
    app.connect("source-read", read_source)
