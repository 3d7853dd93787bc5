"""Documents in files: formats, encodings, readers, skipped documents and output files."""

from simsql.documents.decoding import UnfitError, read_document
from simsql.documents.document import Document, Layout, Skip, printable, storable
from simsql.documents.files import VISIBLE, Selection
from simsql.documents.output import STDOUT, Outputs, abandon, open_output
from simsql.documents.output_formats import DELIMITERS, format_rows
from simsql.documents.readers import DocumentReader, read_single_text
from simsql.documents.records import main_content
from simsql.documents.reports import NO_WORDS, Report, SkipCount, Stages, name_paths

__all__ = [
    "DELIMITERS",
    "NO_WORDS",
    "STDOUT",
    "VISIBLE",
    "Document",
    "DocumentReader",
    "Layout",
    "Outputs",
    "Report",
    "Selection",
    "Skip",
    "SkipCount",
    "Stages",
    "UnfitError",
    "abandon",
    "format_rows",
    "main_content",
    "name_paths",
    "open_output",
    "printable",
    "read_document",
    "read_single_text",
    "storable",
]
