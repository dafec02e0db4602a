"""Seeds derived from the root seed and the names of a purpose."""

import hashlib


def derived_seed(seed: int, *names: str | int) -> int:
    """Return 63 bits of sha256 over the root seed and the names of a purpose.

    Random streams of different purposes are then independent, and what is drawn for (window, step)
    does not depend on anything drawn before.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
