"""The site: Sphinx reads the Markdown of docs/, which also reads well without it.

The lists of links on pages called index.md are the tables of contents, so that no page contains directives. The
pages of `FROM_ABOVE` show files of the folder above, and those of `PACKAGES` the docstrings.
"""

import os
import re
import sys
from pathlib import Path

import simsql

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests" / "support"))

import reference  # noqa: E402

PACKAGES = {str(reference.file_of(name).relative_to(DOCS).with_suffix("")): name for name in reference.PUBLIC}
FROM_ABOVE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}

project = "simsql"
author = "The simsql developers"
copyright = author  # noqa: A001
version = release = simsql.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["images"]
source_suffix = {".md": "markdown"}
nitpicky = True
smartquotes = False
# In docstrings, a name in backquotes is a link, also if it is that of a parameter or not of simsql: then it
# leads nowhere. Names that begin with simsql must exist, in Python or in SQL; those in signatures may be
# private.
default_role = "py:obj"
SQL = "".join(file.read_text(encoding="utf-8") for file in DOCS.parent.glob("sql/**/*.sql"))
nitpick_ignore_regex = [
    ("py:class", ".*"),
    ("py:obj", r"(?s)(?!simsql\.).*"),
    ("py:obj", rf"simsql\.({'|'.join(re.findall(r'COMMENT ON [A-Z]+ simsql.([a-z_]+)', SQL))})"),
]
add_module_names = False
python_use_unqualified_type_names = True
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
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
pygments_dark_style = "github-dark"
PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\s*</picture>'
)


def read_source(app, docname, source):
    """Show a file from above or docstrings in place of a page, and add tables of contents to lists of links."""
    if docname in FROM_ABOVE:
        file = DOCS.parent / FROM_ABOVE[docname]
        app.env.note_dependency(str(file), docname=docname)
        source[0] = file.read_text(encoding="utf-8")
    else:
        file = DOCS / f"{docname}.md"
        if docname in PACKAGES:
            source[0] = reference.page(PACKAGES[docname], on_site=True)
    source[0] = PICTURE.sub(both_themes, source[0])
    # Their READMEs have links of their own, which would lead nowhere.
    source[0] = re.sub(r"\[(`examples/\w+`)\]\([^)]*\)", r"\1", source[0])
    source[0] = re.sub(r"(?<=\]\()[^()#\s]+", lambda link: lead(link[0], file.parent, docname), source[0])
    if Path(docname).name == "index":
        source[0] += contents(source[0])


def both_themes(found: re.Match) -> str:
    """Return directives for a picture in dark and one in light colours, of which the theme shows one."""
    return "\n\n".join(
        f"```{{image}} {found[theme]}\n:class: only-{theme}\n:alt: {found['alt']}\n```"
        for theme in ("light", "dark")
    )


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


def skip_fields(_app, _kind, _name, value, _skip, _options):
    """Skip the fields of a named tuple that have no docstring: the signature has them."""
    return True if (getattr(value, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app):
    """Connect what reads the pages."""
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("source-read", read_source)
