"""Files of JSON lines and tables, and such that are broken."""

import json

from hypothesis import strategies as st

LINES = st.one_of(
    st.builds(
        lambda id_, text: json.dumps({"id": id_, "text": text}),
        st.sampled_from("abc"),
        st.text(st.characters(codec=None), max_size=9),
    ),
    st.builds(
        lambda text: json.dumps({"text": text}, ensure_ascii=False), st.text("a é語\u2028\x85", max_size=30)
    ),
    st.sampled_from(
        ["", " ", "{", "[1]", '{"text": "\\ud800"}', '{"id": 1}', '{"text": null}', '{"text": "a"} ', "\ufeff{}"]
    ),
).map(lambda line: line.encode("utf-8", "surrogatepass"))
BAD_LINES = st.sampled_from([b'{"text": "\xff"}', b"\xe8\xaa", b"\0", b'{"text": "a"}\r', b"\r"])
JSON_LINES = st.builds(
    lambda mark, lines, end: mark + end.join(lines),
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(st.one_of(LINES, LINES, BAD_LINES), max_size=12),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
)

# Quotes where they belong, and where they do not.
CELLS = st.text(st.sampled_from('ab"é, \n\r'), max_size=8)
QUOTED = CELLS.map(lambda cell: '"' + cell.replace('"', '""') + '"')
ROWS = st.lists(st.one_of(QUOTED, QUOTED, CELLS), min_size=1, max_size=3).map(",".join)
TABLES = st.builds(
    lambda header, rows, end: (header + end + end.join(rows)).encode(),
    st.sampled_from(["id,text", "text", "\nid,text,more", '"a\nb",text', "\ufefftext,id", "id", '"text']),
    st.lists(ROWS, max_size=10),
    st.sampled_from(["\n", "\n", "\r\n", "\r"]),
)
