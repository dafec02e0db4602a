"""Section `forgotten` of datasets/<name>.yaml: users whose rows `download` leaves out."""

import hmac
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT

Hash = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ForgottenConfig:
    """Users whose rows `download` leaves out (docs/security.md: how to list one)."""

    key: Hash = "0" * 32
    """Random; of the hashes."""
    users: tuple[Hash, ...] = ()
    """The first 16 bytes of HMAC-SHA256 of each user's id, in hex."""

    def hash_of(self, user: str) -> str:
        """Return the hash by which a user is listed."""
        digest = hmac.digest(self.key.encode(), user.encode("utf-8", "surrogateescape"), "sha256")
        return digest[:16].hex()

    def is_listed(self, users: pa.ChunkedArray) -> pa.ChunkedArray:
        """Flag the users that are listed; a null is none."""
        known = pc.unique(users).drop_null().to_pylist()
        listed = set(self.users)
        return pc.is_in(
            users, pa.array([user for user in known if self.hash_of(user) in listed], users.type)
        )
