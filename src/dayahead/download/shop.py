"""What a generated shop has besides clicks: types of events, and a catalogue that describes items.

Both come from random streams of their own, so that the views are the clicks of the log without
them.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dayahead.core.columns import DAY, EVENT_TIME, EVENT_TYPE, TIMESTAMP
from dayahead.dataset.source import SyntheticConfig
from dayahead.dataset.time import microseconds
from dayahead.download.synthetic import N_TIERS, draw_items, generate_log

Flags = npt.NDArray[np.bool_]
_TYPES, _CATALOGUE = 1, 2
"""Numbers of the streams."""
_CARTS, _CARTS_TO_TASTE, _PURCHASES = 0.04, 0.2, 0.4
"""Shares of views after which an item is put into the cart, also if it suits the session's taste;
and of these that are bought."""
_LEAD = (1.0, 5.0)
"""Days for which items are in the catalogue before they can be clicked, from and to."""
_OWN_BRAND = 0.8
"""Share of items of the brand that their topic has for their price tier."""
_N_WORDS = 12
"""Words that titles of a topic are made of."""
_GRADES = np.array(["basic", "classic", "premium"])
_SYLLABLES = np.array([a + b for a in "bdfgklmnprstvz" for b in "aeiou"])


def events_of(config: SyntheticConfig) -> pa.Table:
    """Generate a log, with a column event_type where it is a shop's."""
    log = generate_log(config)
    return with_types(log.clicks, log.suits, config) if config.shop else log.clicks


def with_types(views: pa.Table, suits: Flags, config: SyntheticConfig) -> pa.Table:
    """Add carts and purchases to views, in order of time; `suits` flags views that meet the taste.

    They follow their view within a minute, and a log ends in between.
    """
    rng = np.random.default_rng([config.seed, _TYPES])
    n = len(views)
    chance = np.where(suits, _CARTS_TO_TASTE, _CARTS)
    carts = np.flatnonzero(rng.random(n) < chance)
    purchases = carts[rng.random(len(carts)) < _PURCHASES]
    rows = np.concatenate([np.arange(n), carts, purchases])
    kinds = np.repeat([0, 1, 2], [n, len(carts), len(purchases)])
    after = np.repeat([0.0, 2.0, 30.0], [n, len(carts), len(purchases)])
    after += np.where(kinds > 0, rng.uniform(0, 20, len(rows)), 0)
    times = views[EVENT_TIME].cast(pa.int64()).to_numpy()[rows] + (after * 1000).astype(int) * 1000
    inside = np.flatnonzero(times < microseconds(config.start) + config.days * DAY)
    order = inside[np.lexsort((kinds[inside], times[inside]))]
    table = views.take(pa.array(rows[order]))
    index = table.column_names.index(EVENT_TIME)
    table = table.set_column(index, EVENT_TIME, pa.array(times[order]).cast(TIMESTAMP))
    names = pa.array(["view", "cart", "purchase"])
    return table.append_column(EVENT_TYPE, names.take(pa.array(kinds[order])))


def catalogue(config: SyntheticConfig) -> pa.Table:
    """Return the items of a generated log, ordered by when they come into the catalogue.

    Returns:
        item_id int64, listed and released timestamp[us, UTC] (from when it is in the catalogue,
        from when it can be clicked), category string (nullable), brand string, price float64, title
        string: words of its topic and of its price tier.
    """
    rng = np.random.default_rng([config.seed, _CATALOGUE])
    items = draw_items(np.random.default_rng(config.seed), config)
    n = len(items.ids)
    is_own = rng.random(n) < _OWN_BRAND
    brand = items.topic * N_TIERS + items.tier
    brand = np.where(is_own, brand, rng.integers(0, config.n_topics * N_TIERS, n))
    words = rng.choice(_SYLLABLES, (config.n_topics, _N_WORDS, 3)).astype(object).sum(axis=2)
    chosen = rng.integers(0, _N_WORDS, (n, 3))
    parts = np.column_stack([_GRADES[items.tier], words[items.topic[:, None], chosen]])
    released = microseconds(config.start) + (items.birth * DAY).astype(np.int64)
    listed = released - (rng.uniform(*_LEAD, n) * DAY).astype(np.int64)
    table = pa.table(
        {
            "item_id": items.ids,
            "listed": pa.array(listed // 1000 * 1000).cast(TIMESTAMP),
            "released": pa.array(released // 1000 * 1000).cast(TIMESTAMP),
            "category": items.categories,
            "brand": [f"brand-{number:03d}" for number in brand],
            "price": items.price,
            "title": [" ".join(each) for each in parts],
        }
    )
    return table.take(pa.array(np.argsort(listed, kind="stable")))
