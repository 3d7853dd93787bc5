"""Text to fingerprint: 64-bit SimHash of any script, with numpy alone.

simhash("some text")            an int in [0, 2**64), or None for a text without features
simhash_many(texts)             a masked array of uint64
simhash_batches(texts)          the same piece by piece
simhash_parts(parts)            one fingerprint of several texts with weights
simhash_features(features)      one fingerprint of features that you have: strings, with or without weights
simhash_rows(matrix, names)     those of the rows of a sparse matrix of scipy, such as TF-IDF
simhash_html(page)              one fingerprint of a web page, its main content
html_parts(page)                the text of it: title, headings, rest
Recipe(...), DEFAULT_RECIPE     how a text becomes features, weights and hashes
Pattern, Tokenizer              tokens by a regular expression, or by a function of your own
KNOWN_RECIPES                   the recipes of other programs, by name
read_recipe, write_recipe       recipes in files
count_documents(texts)          an IdfTable: how rare the features of a corpus are
majority(hashes, weights)       the vote alone, for hashes of your own
"""

from simsql.fingerprint.documents import simhash, simhash_batches, simhash_many, simhash_parts
from simsql.fingerprint.feature_lists import simhash_features, simhash_rows
from simsql.fingerprint.frequencies import count_documents
from simsql.fingerprint.html_text import html_parts, simhash_html
from simsql.fingerprint.idf import IdfTable
from simsql.fingerprint.recipe import DEFAULT_RECIPE, KNOWN_RECIPES, Pattern, Recipe, Tokenizer
from simsql.fingerprint.recipe_file import read_recipe, write_recipe
from simsql.fingerprint.vote import majority

__all__ = [
    "DEFAULT_RECIPE",
    "KNOWN_RECIPES",
    "IdfTable",
    "Pattern",
    "Recipe",
    "Tokenizer",
    "count_documents",
    "html_parts",
    "majority",
    "read_recipe",
    "simhash",
    "simhash_batches",
    "simhash_features",
    "simhash_html",
    "simhash_many",
    "simhash_parts",
    "simhash_rows",
    "write_recipe",
]
