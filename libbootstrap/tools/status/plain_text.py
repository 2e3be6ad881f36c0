"""Text of other processes as printable text, and numbers in text."""
# SPDX-License-Identifier: Apache-2.0


def number_in(text, most=2**64 - 1):
    """Digits only: no sign, blank or prefix. None for any other text, and above `most`."""
    number = int(text) if text.isdecimal() and len(text) <= 20 else None
    return number if number is not None and number <= most else None


def quoted(text, most=80):
    shown = "".join(one if " " <= one <= "~" and one not in '"\\' else "\\x%02x" % ord(one) for one in text[:most])
    return '"' + shown + ('..."' if len(text) > most else '"')


def printable(text):
    """Returns printable ASCII unchanged, and quotes any other text: it may hold control sequences of a terminal."""
    return text if text.isprintable() and len(text.encode()) == len(text) else quoted(text, 256)


def counted(count, what):
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
