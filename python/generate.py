"""Generate hugeleaf/model.py, the typed results, from json-keys.txt, the keys of hugeleaf's JSON.

    python generate.py                     write hugeleaf/model.py
    python generate.py --check             fail if it differs from what would be written
    python generate.py --record PROGRAM    add the keys that PROGRAM prints to json-keys.txt first

--record asks about the captured hosts in fixtures/ and, as root, about processes that it starts: it
promotes, demotes and measures these. Keys are only added: a rare one may not occur in a recording.
docs/reference/json.md documents each key. The answers of `demote` and `promote` are one model.
"""

from __future__ import annotations

import json
import keyword
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEYS = HERE / "json-keys.txt"
MODEL = HERE / "hugeleaf" / "model.py"

ROOTS = {
    "status": ("Status", "Answer of `hugeleaf status`: page sizes, pools, settings and findings of a host."),
    "mem": ("Mem", "Answer of `hugeleaf mem`: memory by page size, per process or per mapping."),
    "why": ("Why", "Answer of `hugeleaf why`: why memory is not on huge pages."),
    "promote": ("Promotion", "Answer of `hugeleaf promote` and `hugeleaf demote`."),
    "prove": ("Proof", "Answer of `hugeleaf prove`: the effect of huge pages on a running server."),
}
"""Name and description of the model of each command."""

NAMES = {
    "by_page_size": "PageUsage",
    "got": "PageUsage",
    "sizes": "ThpSize",
    "cgroups": "CgroupLimits",
    "hugetlb": "CgroupHugetlb",
    "free_blocks": "FreeBlocks",
    "limits": "HostLimits",
    "one_way": "LeftOut",
    "failed": "LeftOut",
    "shared": "SharedObject",
    "worse": "WorseMapping",
    "asked": "MappingRequest",
    "run": "RunSettings",
    "pages": "PageUsage",
    "summary": "WhyLine",
    "kernel_log": "KernelLogLine",
    "unread": "SkippedProcess",
    "skipped": "SkippedProcess",
    "changes": "SettingChange",
    "change": "SettingChange",
    "totals": "Totals",
    "after": "PageUsage",
    "base": "PageUsage",
    "before": "PageUsage",
    "large": "PageUsage",
    "bad_readings": "BadReadings",
    "left": "StateLeft",
    "pairs_looked_at": "PairChecks",
    "rejected": "RejectedInterval",
    "stalls": "Stalls",
    "holds": "Holds",
    "rounds": "HoldRound",
}
"""Class names by key, where the singular of the key in capitals would not do."""

PER_COMMAND = {"host", "processes", "totals", "roles", "page_sizes"}
"""Keys with another meaning in each command: their classes begin with the name of the command's model."""

OPAQUE = {
    "prove rows[].at",
    "prove rows[].samples[].bucket",
    "prove layouts[].at",
    "prove unavailable[].at",
    "prove charts[]",
    "prove settings",
    "prove buckets",
}
"""Objects whose keys are data, or that only a chart needs: dictionaries, and lists of any."""


def is_opaque(place: str) -> bool:
    return place in OPAQUE or f"{place}[]" in OPAQUE


# --- recording -------------------------------------------------------------------------------------------------------


def kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case list():
            return "list"
        case _:
            return "object"


class Recording:
    """The kinds of values by path, and the number of objects that have it, of all that could."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[str]] = {}
        self.present: dict[str, int] = {}
        self.objects: dict[str, int] = {}

    def add(self, command: str, value: Any, path: str = "") -> None:
        place = f"{command} {path}".rstrip()
        if path:
            self.kinds.setdefault(place, set()).add(kind_of(value))
        if is_opaque(place):
            return
        if isinstance(value, list):
            for item in value:
                self.add(command, item, f"{path}[]")
        elif isinstance(value, dict):
            self.objects[place] = self.objects.get(place, 0) + 1
            for key, item in value.items():
                inner = f"{path}.{key}" if path else key
                whole = f"{command} {inner}"
                self.present[whole] = self.present.get(whole, 0) + (item is not None)
                self.add(command, item, inner)

    def is_always(self, place: str) -> bool:
        command, path = place.split(" ", 1)
        parent = f"{command} {path.rpartition('.')[0]}".rstrip()
        return self.present.get(place, 0) == self.objects.get(parent, -1)


def answers(program: str) -> Iterator[tuple[str, Any]]:
    """Yield the answers of the program, each with its command."""

    def ask(command: str, *arguments: str) -> tuple[str, Any]:
        done = subprocess.run(
            [program, "--json", *arguments], capture_output=True, text=True, timeout=300
        )
        if not done.stdout.startswith("{"):
            print(f"no answer to {' '.join(arguments)}: {done.stderr.strip()}", file=sys.stderr)
            return command, {}
        return command, json.loads(done.stdout)

    fixtures = HERE.parent / "fixtures"
    for host in sorted(proc.parent for proc in fixtures.glob("**/proc") if (proc.parent / "sys").is_dir()):
        root = f"--root={host}"
        yield ask("status", "status", root)
        yield ask("mem", "mem", root)
        for pid in sorted(path.name for path in (host / "proc").glob("[0-9]*") if (path / "smaps").exists()):
            yield ask("mem", "mem", pid, "--all", root)
            yield ask("why", "why", pid, "--all", root)
            yield ask("why", "why", pid, root)
    # Rare parts of a result occur in kept ones: holds, equivalence, buckets.
    for file in sorted((HERE.parent / "bench" / "runs").glob("**/*prove*.json")):
        result = json.loads(file.read_text())
        if result.get("schema") == 2 and "verdict" in result:
            yield "prove", result
    yield ask("status", "status")
    yield ask("mem", "mem")
    if os.geteuid() != 0:
        print("not recorded: promote and prove need root", file=sys.stderr)
        return
    yield from live_answers(ask)


def live_answers(ask: Any) -> Iterator[tuple[str, Any]]:
    hold = "import mmap,os,sys;m=mmap.mmap(-1,32<<20,mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS);m.write(b'x'*(25<<20));print(flush=True)"
    count = f"{hold};n=0\nwhile True:\n n+=1;m[(n*4099)%(25<<20)]=1\n if n%1000==0:open(sys.argv[1]+'.new','w').write(str(n));os.replace(sys.argv[1]+'.new',sys.argv[1])"
    with tempfile.TemporaryDirectory() as folder:
        counter = os.path.join(folder, "counter")
        command = [sys.executable, "-c", count, counter]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                pid = str(process.pid)
                metric = f"--metric=cmd:cat {counter}"
                yield ask("mem", "mem", pid)
                yield ask("why", "why", pid)
                yield ask("promote", "promote", "--dry-run", pid)
                yield ask("promote", "promote", "--budget=100%", "--at-least=50%", pid)
                yield ask("promote", "promote", "--budget=100%", "--min-resident=50%", pid)
                yield ask("promote", "demote", "--budget=100%", pid)
                short = ["--interval=100ms", "--settle=100ms", "--pairs=8"]
                yield ask("prove", "prove", pid, metric, *short, "--intention-to-treat")
                yield ask("prove", "prove", pid, metric, *short, "--before-after")
            finally:
                process.kill()


# --- the list of keys ------------------------------------------------------------------------------------------------


def read_keys() -> dict[str, tuple[set[str], bool]]:
    """Return kinds and `always` by place."""
    keys: dict[str, tuple[set[str], bool]] = {}
    if not KEYS.exists():
        return keys
    for line in KEYS.read_text().splitlines():
        if line and not line.startswith("#"):
            place, _, kinds = line.rpartition(" ")
            keys[place] = (set(kinds.rstrip("!").split("|")), kinds.endswith("!"))
    return keys


HEADING = """\
# Keys of the JSON of hugeleaf's commands: command, path, kinds of value; ! if each recorded object has a value.
# `python generate.py --record PROGRAM` adds keys, and `python generate.py` makes hugeleaf/model.py from them.
"""


def record(program: str) -> None:
    recording = Recording()
    for command, answer in answers(program):
        if answer:
            recording.add(command, answer)
    keys = read_keys()
    for place, kinds in recording.kinds.items():
        before, always = keys.get(place, (set(), True))
        keys[place] = (before | kinds, always and recording.is_always(place))
    lines = (
        f"{place} {'|'.join(sorted(kinds))}{'!' if always else ''}\n"
        for place, (kinds, always) in sorted(keys.items())
    )
    KEYS.write_text(HEADING + "".join(lines))


# --- the model -------------------------------------------------------------------------------------------------------

REQUIRED = {
    "schema", "pid", "name", "kind", "page_bytes", "bytes", "id", "severity", "text", "role", "start", "end",
    "arm", "value", "verdict", "ratio", "low", "high", "reason", "error", "base", "large", "path",
}  # fmt: skip
"""Keys without which an entry is meaningless. Others may be missing on some host, so their fields may be None."""

FRACTIONS = re.compile(r"(seconds|ratio|share|coverage|coverage_before|coverage_after|percent|low|high)$|^value$|^base$|^large$")
"""Keys of numbers that are whole only by chance."""


class Node:
    """A place in the JSON of a command."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.always = False
        self.children: dict[str, Node] = {}
        self.item: Node | None = None
        self.opaque = False


def tree_of(command: str, keys: dict[str, tuple[set[str], bool]]) -> Node:
    root = Node()
    root.kinds = {"object"}
    for place, (kinds, always) in keys.items():
        if place.split(" ")[0] != command:
            continue
        node = root
        for step in re.findall(r"\[\]|[^.\[\]]+", place.split(" ", 1)[1]):
            if step == "[]":
                node.item = node = node.item or Node()
            else:
                node = node.children.setdefault(step, Node())
        node.kinds, node.always = kinds, always
        node.opaque = is_opaque(place)
    return root


def singular(key: str) -> str:
    for plural, one in (("sses", "ss"), ("ies", "y"), ("s", "")):
        if key.endswith(plural) and not key.endswith("ss"):
            return key[: -len(plural)] + one
    return key


def class_name(model: str, key: str) -> str:
    name = NAMES.get(key, singular(key).title().replace("_", ""))
    return model + name if key in PER_COMMAND else name


class Field:
    def __init__(self, type: str, required: bool, part: str | None) -> None:
        self.type, self.required, self.part = type, required, part


class Classes:
    """Dataclasses by name, in the order in which they have to be defined."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[str, Field]] = {}

    def add(self, model: str, name: str, node: Node) -> None:
        fields: dict[str, Field] = {}
        for key, child in sorted(node.children.items()):
            if key.endswith("_error") and key.removesuffix("_error") in node.children:
                continue
            fields[key] = self.field(model, key, child)
        known = self.fields.pop(name, None)
        if known is not None:
            for key in known.keys() ^ fields.keys():
                (known.get(key) or fields[key]).required = False
            for key in known.keys() & fields.keys():
                if known[key].type != fields[key].type:
                    types = {known[key].type, fields[key].type}
                    if "list[Any]" in types:
                        fields[key] = known[key] if fields[key].type == "list[Any]" else fields[key]
                    elif types == {"int", "float"}:
                        fields[key].type = "float"
                    else:
                        raise SystemExit(f"{name}.{key} is {' and '.join(sorted(types))}")
                fields[key].required = known[key].required and fields[key].required
            fields = dict(sorted((known | fields).items()))
        self.fields[name] = fields

    def field(self, model: str, key: str, node: Node) -> Field:
        type, part = self.type_of(model, key, node)
        always = node.always and "null" not in node.kinds
        required = always and (key in REQUIRED or bool(node.kinds & {"bool", "object", "list"}))
        return Field(type, required, part)

    def type_of(self, model: str, key: str, node: Node) -> tuple[str, str | None]:
        kinds = node.kinds - {"null"}
        if node.opaque:
            return ("list[Any]" if "list" in kinds else "dict[str, Any]" if "object" in kinds else "Any"), None
        if kinds == {"list"}:
            if node.item is None or not node.item.kinds - {"null"}:
                return "list[Any]", None
            inner, part = self.type_of(model, key, node.item)
            maybe = " | None" if "null" in node.item.kinds else ""
            return f"list[{inner}{maybe}]", part
        if kinds == {"object"}:
            name = class_name(model, key)
            self.add(model, name, node)
            return name, name
        if kinds <= {"int", "float"} and kinds:
            return ("float" if "float" in kinds or FRACTIONS.search(key) else "int"), None
        if len(kinds) == 1:
            return kinds.pop(), None
        return "Any", None

    def in_order(self) -> Iterator[tuple[str, dict[str, Field]]]:
        """Yield the classes, each after those that its fields have."""
        done: set[str] = set()

        def visit(name: str) -> Iterator[tuple[str, dict[str, Field]]]:
            if name in done:
                return
            done.add(name)
            for field in self.fields[name].values():
                if field.part:
                    yield from visit(field.part)
            yield name, self.fields[name]

        for name in self.fields:
            yield from visit(name)


MODULE = '''\
"""Typed results of hugeleaf's commands. Generated by generate.py: do not edit.

docs/reference/json.md describes each field. Bytes are in fields whose name ends in `_bytes`, or is
`bytes`; times are in seconds. A field is None if this host does not have the value, or if it could
not be read: then `unreadable` has the reason. Fields that a newer program adds are in `extra`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from ._errors import Error

__all__ = [
{all}]


@dataclass(frozen=True, kw_only=True)
class Model:
    """Base of all results."""

    unreadable: dict[str, str] = field(default_factory=dict)
    """Reason for each field that could not be read."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of a newer program."""

    _parts: ClassVar[dict[str, type[Model]]] = {{}}
    _renamed: ClassVar[dict[str, str]] = {{}}
    _required: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> Self:
        """Make a result from a JSON object."""
        known = {{one.name for one in fields(cls)}}
        values: dict[str, Any] = {{}}
        unreadable: dict[str, str] = {{}}
        extra: dict[str, Any] = {{}}
        for key, value in answer.items():
            name = cls._renamed.get(key, key)
            if key.endswith("_error") and answer.get(key.removesuffix("_error"), ...) is None:
                unreadable[key.removesuffix("_error")] = value
            elif name not in known:
                extra[key] = value
            elif value is not None:
                part = cls._parts.get(name)
                values[name] = _made(part, value) if part else value
        missing = cls._required - values.keys()
        if missing:
            raise Error(
                f"the answer of hugeleaf lacks {{', '.join(sorted(missing))}} ({{cls.__name__}})",
                "use program and package of the same version: pip install -U hugeleaf",
            )
        return cls(unreadable=unreadable, extra=extra, **values)


def _made(part: type[Model], value: Any) -> Any:
    if isinstance(value, list):
        return [_made(part, item) for item in value]
    return part.from_json(value) if isinstance(value, dict) else value
'''


def python_name(key: str) -> str:
    return key + "_" if keyword.iskeyword(key) else key


def class_text(name: str, doc: str, fields: dict[str, Field]) -> str:
    lines = ["", "", "@dataclass(frozen=True, kw_only=True)", f"class {name}(Model):", f'    """{doc}"""', ""]
    for key, field in fields.items():
        if field.required and field.type.startswith("list"):
            lines.append(f"    {python_name(key)}: {field.type} = field(default_factory=list)")
        elif field.required:
            lines.append(f"    {python_name(key)}: {field.type}")
        else:
            maybe = "" if field.type == "Any" else " | None"
            lines.append(f"    {python_name(key)}: {field.type}{maybe} = None")
    parts = {python_name(key): field.part for key, field in fields.items() if field.part}
    renamed = {key: python_name(key) for key in fields if keyword.iskeyword(key)}
    required = sorted(
        python_name(key)
        for key, field in fields.items()
        if field.required and not field.type.startswith("list")
    )
    if parts:
        lines += ["", "    _parts: ClassVar[dict[str, type[Model]]] = {"]
        lines += [f'        "{key}": {part},' for key, part in parts.items()]
        lines.append("    }")
    if renamed:
        items = ", ".join(f'"{key}": "{to}"' for key, to in renamed.items())
        lines += ["", f"    _renamed: ClassVar[dict[str, str]] = {{{items}}}"]
    if required:
        items = "".join(f'            "{key}",\n' for key in required)
        lines += ["", "    _required: ClassVar[frozenset[str]] = frozenset(", "        {", items.rstrip("\n"), "        }", "    )"]
    return "\n".join(lines) + "\n"


def used_in(places: list[str]) -> str:
    """Return the description of a class: the fields that have it, on lines that fit."""
    text = textwrap.fill(f"In {', '.join(places)}.", 96, subsequent_indent="    ")
    return text if "\n" not in text else text + "\n    "


def model() -> str:
    classes = Classes()
    docs: dict[str, str] = {}
    keys = read_keys()
    for command, (name, doc) in ROOTS.items():
        docs[name] = doc
        classes.add(name, name, tree_of(command, keys))
    used_by: dict[str, list[str]] = {}
    for name, fields in classes.fields.items():
        for key, field in fields.items():
            if field.part:
                used_by.setdefault(field.part, []).append(f"{name}.{python_name(key)}")
    text = MODULE.format(all="".join(f'    "{name}",\n' for name in sorted(classes.fields)))
    for name, fields in classes.in_order():
        doc = docs.get(name) or used_in(used_by[name])
        text += class_text(name, doc, fields)
    return text


def main() -> None:
    match sys.argv[1:]:
        case ["--record", program]:
            record(program)
            MODEL.write_text(model())
        case ["--check"]:
            if MODEL.read_text() != model():
                sys.exit("hugeleaf/model.py differs from json-keys.txt\n  next: python generate.py")
        case []:
            MODEL.write_text(model())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
