"""Published models as versions of a registered model, with the aliases champion and previous.

Publications are recorded in an outbox like everything else, so an unreachable server delays
nothing. Uploads may come late and in any order: a version is found by the name under which it was
published, and the aliases follow the newest record.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlflow import MlflowClient

PUBLISHED_TAG: Final = "dayahead.published"
WINDOW_TAG: Final = "dayahead.window"
WITHDRAWN_TAG: Final = "dayahead.withdrawn"
ORDER_TAG: Final = "dayahead.order"
ALIASES: Final = ("champion", "previous")


def upload_publication(
    client: MlflowClient, run: str, entry: Mapping[str, Any], folder: Path
) -> None:
    """Bring the registered model up to date with a record; idempotent."""
    name = entry["model"]
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    versions = _versions(client, name)
    if entry.get("file") and entry["published"] not in versions:
        target = f"published/{entry['published']}"
        client.log_artifacts(run, str(folder / entry["file"]), target)
        source = f"{client.get_run(run).info.artifact_uri}/{target}"
        tags = {PUBLISHED_TAG: entry["published"], WINDOW_TAG: entry["window"]}
        client.create_model_version(name, source, run_id=run, tags=tags)
        versions = _versions(client, name)
    known = client.get_registered_model(name)
    order = f"{entry['window']} {entry['number']:09}"  # in a new history, numbers start again
    if entry["champion"] and order >= known.tags.get(ORDER_TAG, ""):
        client.set_registered_model_tag(name, ORDER_TAG, order)
        for alias in ALIASES:
            client.set_registered_model_tag(name, f"dayahead.{alias}", entry[alias])
        _mark_withdrawn(client, name, versions, entry["withdrawn"])
    _set_aliases(client, name, versions)


def _versions(client: MlflowClient, name: str) -> dict[str, Any]:
    """Return the versions by the name under which they were published."""
    found = client.search_model_versions(f"name = '{name}'")
    return {each.tags[PUBLISHED_TAG]: each for each in found if PUBLISHED_TAG in each.tags}


def _mark_withdrawn(
    client: MlflowClient, name: str, versions: Mapping[str, Any], withdrawn: Mapping[str, str]
) -> None:
    for published, version in versions.items():
        if published in withdrawn:
            reason = withdrawn[published]
            client.set_model_version_tag(name, version.version, WITHDRAWN_TAG, reason)
        elif WITHDRAWN_TAG in version.tags:
            client.delete_model_version_tag(name, version.version, WITHDRAWN_TAG)


def _set_aliases(client: MlflowClient, name: str, versions: Mapping[str, Any]) -> None:
    """Point the aliases to the versions of the newest record that have been uploaded."""
    known = client.get_registered_model(name)
    for alias in ALIASES:
        published = known.tags.get(f"dayahead.{alias}", "")
        if published in versions:
            client.set_registered_model_alias(name, alias, versions[published].version)
        elif alias in known.aliases:
            client.delete_registered_model_alias(name, alias)
