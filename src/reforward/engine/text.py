"""Words of a stranger, made fit to be shown and kept: no control characters, nothing that a terminal obeys."""


def plain(text: str) -> str:
    """The same text with every character that cannot be printed, line ends and tabs aside, spelt out as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _spelt(char) for char in text)


def _spelt(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
