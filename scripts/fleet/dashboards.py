"""Checks of the Grafana dashboards: their JSON against Grafana's own schema, and their queries against a Prometheus."""

import enum
import json
import re
import sys
import types
import typing


def read(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


# The schema.


def schema_findings(path: str) -> list[str]:
    """Reads the dashboard with Grafana's generated classes, and compares the outcome with the file.

    The classes drop what the schema does not know, and take values of any type: so keys are compared, and values are
    held against the classes' annotations.
    """
    from grafana_foundation_sdk.cog import plugins, runtime
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import dashboard

    plugins.register_default_plugins()
    written = read(path)
    kinds = {panel["type"] for panel in written["panels"]}
    unknown = [f"no panel of Grafana has the type {kind}" for kind in sorted(kinds) if runtime.panelcfg_config(kind) is None]
    if unknown:
        return unknown
    parsed = dashboard.Dashboard.from_json(written)
    found: list[str] = []
    check_types("dashboard", parsed, found)
    kept = json.loads(json.dumps(parsed, cls=JSONEncoder))
    check_keys("dashboard", written, kept, found)
    return found


def check_keys(where: str, written: object, kept: object, found: list[str]) -> None:
    if isinstance(written, dict) and isinstance(kept, dict):
        for name, value in written.items():
            if name not in kept:
                found.append(f"{where}.{name}: unknown to the schema")
            else:
                check_keys(f"{where}.{name}", value, kept[name], found)
    elif isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        for n, (one, other) in enumerate(zip(written, kept)):
            check_keys(f"{where}[{n}]", one, other, found)
    elif written != kept:
        found.append(f"{where}: is {written!r}, and the schema reads {kept!r}")


def check_types(where: str, value: object, found: list[str]) -> None:
    hints: dict[str, object] = {}
    for cls in reversed(type(value).__mro__):
        module = sys.modules[cls.__module__]
        hints.update({name: typing.get_type_hints(cls, vars(module))[name] for name in cls.__dict__.get("__annotations__", {})})
    for name, hint in hints.items():
        item = getattr(value, name, None)
        if not fits(item, hint):
            found.append(f"{where}.{name}: {item!r} is not {hint}")
        for n, one in enumerate(item if isinstance(item, list) else [item]):
            if type(one).__module__.startswith("grafana_foundation_sdk.models") and not isinstance(one, enum.Enum):
                check_types(f"{where}.{name}[{n}]" if isinstance(item, list) else f"{where}.{name}", one, found)


def fits(value: object, hint: object) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (object, typing.Any):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, arguments[1]) for one in value.values())
    if hint in (None, type(None)):
        return value is None
    if not isinstance(hint, type):
        return True
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if issubclass(hint, enum.Enum):
        return isinstance(value, hint) or value in [one.value for one in hint]
    # Parts that the reader leaves as they are in the file.
    return isinstance(value, hint) or (isinstance(value, dict) and hint.__module__.startswith("grafana_foundation_sdk"))


def layout_findings(path: str) -> list[str]:
    """Finds panels that overlap or leave the grid of 24 columns, repeated identifiers, and variables nobody defined."""
    dashboard = read(path)
    panels = dashboard["panels"]
    found = []
    if len({panel["id"] for panel in panels}) != len(panels):
        found.append("two panels have one id")
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            found.append(f"{panel['title']}: wider than the grid")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    found.append(f"{panel['title']}: overlaps {other}")
        letters = [target["refId"] for target in panel["targets"]]
        if len(set(letters)) != len(letters):
            found.append(f"{panel['title']}: two queries have one refId")
    known = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__value", "__rate_interval", "__all"}
    found.extend(f"variable {name} is not defined" for name in sorted(used - known))
    return sorted(set(found))


# The queries.


def query_findings(path: str, prometheus) -> tuple[int, list[str]]:
    """Runs every query, with every variable at `All`. Returns their number, and those that fail or find nothing."""
    dashboard = read(path)
    found = []
    number = 0
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        number += 1
        metric, label = re.fullmatch(r"label_values\(([\w:]+), (\w+)\)", variable["query"]["query"]).groups()
        if not prometheus.ask(f"label/{label}/values", **{"match[]": metric}):
            found.append(f"variable {variable['name']}: {metric} has no label {label}")
    for panel in dashboard["panels"]:
        labels: set[str] = set()
        for target in panel["targets"]:
            number += 1
            query = re.sub(r"\$\{?\w+\}?", ".*", target["expr"])
            where = f"{panel['title']}, query {target['refId']}"
            try:
                result = prometheus.ask("query", query=query)["result"]
            except ValueError as error:
                found.append(f"{where}: {error}")
                continue
            if not result:
                found.append(f"{where}: finds nothing: {query}")
            labels.update(label for one in result for label in one["metric"])
            legend = re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
            found.extend(f"{where}: the legend names {label}, which no result has" for label in legend if label not in labels)
        found.extend(column_findings(panel, labels))
    return number, found


def guide_findings(path: str, prometheus) -> tuple[int, list[str]]:
    """Runs the queries that a page of the guide gives to promtool."""
    with open(path, encoding="utf-8") as file:
        queries = re.findall(r"^promtool query instant \$P '(.+)'$", file.read(), re.MULTILINE)
    found = []
    for query in queries:
        try:
            # No alert need fire.
            if not prometheus.ask("query", query=query)["result"] and not query.startswith("ALERTS"):
                found.append(f"finds nothing: {query}")
        except ValueError as error:
            found.append(f"{query}: {error}")
    return len(queries), found if queries else ["no query was found"]


def column_findings(panel: dict, labels: set[str]) -> list[str]:
    """Finds columns of a table that its queries do not make, and settings of columns that it does not have."""
    for change in panel.get("transformations", []):
        if change["id"] != "organize":
            continue
        letters = [target["refId"] for target in panel["targets"]]
        values = ["Value"] if len(letters) == 1 else [f"Value #{letter}" for letter in letters]
        made = labels.union(values, ["Time"])
        named = set(change["options"]["renameByName"])
        shown = set(change["options"]["renameByName"].values())
        hidden = {name for name, is_hidden in change["options"]["excludeByName"].items() if is_hidden}
        settings = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        settings.update(sort["displayName"] for sort in panel["options"].get("sortBy", []))
        findings = [f"column {name} is renamed, but not made" for name in named - made]
        findings += [f"column {name} has no heading" for name in made - named - hidden - {"__name__"}]
        findings += [f"settings for the column {name}, which the table does not have" for name in settings - shown]
        return [f"{panel['title']}: {finding}" for finding in sorted(findings)]
    return []


def main() -> int:
    status = 0
    for path in sys.argv[1:]:
        # A layout is only judged if it has the fields that the schema wants.
        found = schema_findings(path) or layout_findings(path)
        for finding in found:
            print(f"{path}: {finding}")
        status = status or bool(found)
        if not found:
            print(f"{path}: {len(read(path)['panels'])} panels, as Grafana's schema describes them")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
