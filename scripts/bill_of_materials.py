"""Checks bills of materials of the program: scripts/bill_of_materials.py VERSION FILE…

Each is valid CycloneDX 1.5, and names each crate that is compiled in, with licence and checksum, and no folder of the
machine that made it. Requires scripts/bill-of-materials-requirements.txt.
"""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def problems(text: str, version: str) -> list[str]:
    invalid = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    if invalid is not None:
        return ["invalid: " + str(invalid).splitlines()[0]]
    bom = json.loads(text)
    found = []
    if bom["specVersion"] != "1.5" or bom["metadata"]["component"]["version"] != version:
        found.append(f"is not of version {version}, or not CycloneDX 1.5")
    names = {component["name"] for component in bom["components"]}
    missing = {"clap", "rustix", "libsqlite3-sys", "hugeleaf-host"} - names
    if missing:
        found.append(f"lacks {missing}")
    tests = {"proptest", "trycmd"} & names
    if tests:
        found.append(f"lists crates of tests: {tests}")
    unlicensed = [c["name"] for c in bom["components"] if not c.get("licenses")]
    if unlicensed:
        found.append(f"no licence: {unlicensed}")
    # Our own crates are not from a registry.
    others = [c for c in bom["components"] if not c["name"].startswith("hugeleaf")]
    unknown = [c["name"] for c in others if not c.get("hashes")]
    if unknown:
        found.append(f"no checksum: {unknown}")
    places = [word for word in ("/tmp", "/home/", "/root") if word in text]
    if places:
        found.append(f"names folders of the build machine: {places}")
    return found


def main() -> int:
    version, *files = sys.argv[1:]
    status = 0
    for path in files:
        with open(path) as file:
            text = file.read()
        for problem in problems(text, version):
            print(f"{path}: {problem}", file=sys.stderr)
            status = 1
        if status == 0:
            print(f"{path.rsplit('/', 1)[-1]}: {len(json.loads(text)['components'])} crates")
    return status


if __name__ == "__main__":
    sys.exit(main())
