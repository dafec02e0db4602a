"""Jinja with the templates of reports."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_environment() -> Environment:
    """Return Jinja with the templates of reports, which share `style.css.j2`."""
    return Environment(
        loader=PackageLoader("dayahead.aggregate"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
