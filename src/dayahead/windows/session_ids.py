"""Session ids that hold a user's id, as readers of the windows get them: keyed hashes."""

import hmac

import pyarrow as pa


def hashed_ids(session_ids: pa.Array | pa.ChunkedArray, seed: int) -> pa.Array:
    """Return the first 16 bytes of each id's HMAC-SHA256 with the seed as key, in hex.

    They are the same in any run of a data set, so that results with them can be compared.
    """
    key, ids = str(seed).encode(), session_ids.to_pylist()
    hashed = [hmac.digest(key, each.encode(), "sha256")[:16].hex() for each in ids]
    return pa.array(hashed, pa.string())
