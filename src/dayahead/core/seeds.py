"""One seed per purpose, derived from the root seed and names, so that streams never meet."""

import hashlib


def derived_seed(seed: int, *names: str | int) -> int:
    """Return 63 bits of sha256 over the root seed and the names of a purpose.

    What is drawn for (window, step) then depends on nothing drawn before it.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
