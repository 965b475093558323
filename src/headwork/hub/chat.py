"""Chat templates: how a model was taught to tell who speaks, as a program of Jinja that comes with it.

It is somebody else's program. jinja2's sandbox keeps it from Python, and another process with little time and memory
runs it, so that one which never ends, or writes gigabytes, is refused.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from headwork.extras import need

SECONDS, MEGABYTES, MOST_CHARACTERS = 5, 1024, 2**22
"""What a template may use of a processor and of memory, and how much it may write."""
MOST_SECONDS = 60
"""On a clock, on a busy machine."""

_RENDER = """
import json, sys
asked = json.loads(sys.stdin.buffer.read())
sys.path[:] = asked["path"]
try:
    import resource
except ImportError:  # not on Windows; the parent watches the time
    pass
else:
    for limit, most in ((resource.RLIMIT_CPU, asked["seconds"]), (resource.RLIMIT_AS, asked["megabytes"] << 20)):
        soft, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

import jinja2
from datetime import datetime
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace

class Generation(Extension):
    tags = {"generation"}  # marks what an assistant said, for training
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_say"), [], [], body).set_lineno(line)
    def _say(self, caller):
        return caller()

class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)
    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)

class PlainNamespace(Namespace):
    def __init__(*args, **kwargs):
        values = dict(*args[1:], **kwargs)
        for name in values:
            check(name)
        Namespace.__init__(args[0], values)
    def __setitem__(self, name, value):
        check(name)
        Namespace.__setitem__(self, name, value)

def check(name):
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace must not hold {name!r}")

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

try:
    if tuple(map(int, jinja2.__version__.split(".")[:3])) < (3, 1, 6):
        raise ValueError(f"jinja2 must be 3.1.6 or newer, whose sandbox is known to hold, got {jinja2.__version__}")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda format: datetime.now().strftime(format),
        "dict": Dict(),
        "namespace": PlainNamespace,
    }
    parts, n_characters = [], 0
    for part in environment.from_string(asked["template"]).generate(**asked["variables"]):
        n_characters += len(part)
        if n_characters > asked["most_characters"]:
            raise ValueError(f"it writes more than {asked['most_characters']:,} characters")
        parts.append(part)
    said = {"text": "".join(parts)}
except MemoryError:
    said = {"error": f"it needs more than {asked['megabytes']} MB"}
except RecursionError:
    said = {"error": "it calls itself without end"}
except Exception as error:
    said = {"error": f"{type(error).__name__}: {error}"[:1000]}
sys.stdout.buffer.write(json.dumps(said).encode())
"""


def render_chat(
    template: str, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True, **variables: object
) -> str:
    """The text of a chat as the template writes it, equal to that of `apply_chat_template` of transformers.

    A message is {"role": "user", "content": "Hello"}. With `add_generation_prompt` the text ends where the model speaks
    next. `variables` are what else the template asks for: special tokens by their names, tools.

    >>> render_chat("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}", [
    ...     {"role": "user", "content": "Hello"}])
    'user: Hello\\n'
    """
    need("jinja2")
    check_messages(messages)
    asked = {
        "path": sys.path,
        "seconds": SECONDS,
        "megabytes": MEGABYTES,
        "most_characters": MOST_CHARACTERS,
        "template": template,
        "variables": {
            **{"tools": None, "documents": None, **variables},
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        },
    }
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-c", _RENDER],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=MOST_SECONDS,
            check=False,
        )
        said = json.loads(child.stdout)
    except TypeError as error:
        raise ValueError(f"messages and variables must be texts, numbers and lists of them, got {error}") from None
    except (subprocess.TimeoutExpired, ValueError):  # out of its time, or out of memory in a way that it could not say
        said = {"error": f"it does not end within {SECONDS} seconds and {MEGABYTES} MB"}
    if "text" not in said:
        raise ValueError(f"the chat template is refused: {said['error']}")
    return said["text"]


def check_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ValueError(f"messages must be a list of at least one, got {messages!r}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError(f"a message must have a role, as {{'role': 'user', 'content': 'Hello'}}, got {message!r}")
