"""The page as one file: its modules, its style and its data inside one HTML text, with no server and no build step."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath

PAGE = Path(__file__).parent / "page"
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";[^\S\n]*$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) +(\w+))", re.MULTILINE)


def one_file(entry: str, title: str, data: Mapping[str, object], page: Path = PAGE) -> str:
    """An HTML text that runs the module `entry` of the page; `data` is what its modules find as JSON, by the id.

    Its content security policy lets it run this script, use this style, and ask nobody for anything.
    """
    script, style = join_modules(entry, page), (page / "style.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    blocks = "".join(
        f'<script type="application/json" id="{html.escape(name)}">{_json(value)}</script>\n'
        for name, value in data.items()
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f'<style>{style}</style>\n</head>\n<body class="headwork-page">\n<div id="page"></div>\n{blocks}'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def join_modules(entry: str, page: Path = PAGE) -> str:
    """The module and all that it imports as one script, in the order in which they run, each in a scope of its own.

    It knows the two forms that the page uses, `import { a, b } from "./x.js";` and `export function`, `class` or
    `const`; any other is an error.
    """
    return "const modules = {};\n" + "\n".join(modules_of(entry, page).values())


def modules_of(entry: str, page: Path = PAGE) -> dict[str, str]:
    """The module and all that it imports, in the order in which they run: their names, and their texts for one script.

    >>> list(modules_of("bars.js"))
    ['dom.js', 'bars.js']
    """
    modules: dict[str, str] = {}
    _add(entry, page, modules, ())
    return modules


def _add(name: str, page: Path, modules: dict[str, str], importing: tuple[str, ...]) -> None:
    """Put the module behind those that it imports."""
    if name in importing:
        raise ValueError(f"modules must not import each other in a circle, got {' -> '.join((*importing, name))}")
    if name in modules:
        return
    text = (page / name).read_text(encoding="utf-8")
    for imported in IMPORT.finditer(text):
        _add(_resolve(name, imported[2]), page, modules, (*importing, name))

    def take(found: re.Match[str]) -> str:
        names = re.sub(r"(\w+) as (\w+)", r"\1: \2", found[1])
        return f'const {{{names}}} = modules["{_resolve(name, found[2])}"];'

    exported = EXPORT.findall(text)
    inside = EXPORT.sub("", IMPORT.sub(take, text))
    if wrong := re.search(r"^(?:import|export)\b.*", inside, re.MULTILINE):
        raise ValueError(f"{name} must import and export by name, got {wrong[0]!r}")
    if "</script" in inside.lower() or "<!--" in inside:
        raise ValueError(f"{name} must not write </script or <!--, which would end the script it stands in")
    modules[name] = f'modules["{name}"] = (() => {{\n{inside}return {{ {", ".join(exported)} }};\n}})();'


def _resolve(importer: str, path: str) -> str:
    return normpath(join(dirname(importer), path))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    """JSON in which no tag can begin, so that nothing in it ends the element it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
