"""Functions that make texts of what columns hold."""


def text_of_blocks(blocks):
    """Return the text of a list of blocks, as editors store them as JSON."""
    assert isinstance(blocks, list), blocks
    return "\n".join(block["text"] for block in blocks if block["type"] == "text") or None


def text_or_text_of_blocks(value):
    return value if isinstance(value, str) else text_of_blocks(value)


def other_text(blocks):
    return str(blocks)


def no_text(value):
    return [value]
