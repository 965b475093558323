"""Chat templates: the same text as transformers', and none that hurts."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwork.hub import PretrainedTokenizer, render_chat

transformers = pytest.importorskip("transformers")
pytest.importorskip("jinja2")

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": " Hi <b>&'\"</b> 漢😀 {{ 1 }} "},
    {"role": "assistant", "content": "Hello\n\nyou"},
    {"role": "user", "content": ""},
]
TEMPLATES = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama2": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' ~ m.content | trim ~ "
    "' [/INST]' }}{% elif m.role == 'assistant' %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
    "blocks": """
{%- set ns = namespace(n=0) -%}
  {% for m in messages %}
    {% if m.role == 'system' %}
      {% continue %}
    {% endif %}
    {% set ns.n = ns.n + 1 %}
    {% generation %}
{{ loop.index0 }} {{ ns.n }} {{ m | tojson }} {{ m.content.strip().split(' ') | join('|') }}
    {% endgeneration %}
    {% if loop.index > 3 %}{% break %}{% endif %}
  {% endfor %}
{{- '' if tools is none else tools | tojson(indent=2) }}
{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(messages[0]['role']) | upper }}
""",
    "reasoning": "{% for m in messages %}{{ m.get('reasoning_content', '-') }}{{ dict(a=1)['a'] }}{% endfor %}",
}


def theirs(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    return render_jinja_template([messages], chat_template=template, **options)[0][0]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@pytest.mark.parametrize("speaks", [True, False])
def test_the_same_text_as_transformers(template: str, speaks: bool) -> None:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    expected = theirs(template, CHAT, add_generation_prompt=speaks, **tokens)
    assert render_chat(template, CHAT, add_generation_prompt=speaks, **tokens) == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ 'a' * 10**10 }}", "needs more than 1024 MB"),
        ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "writes more than 4,194,304 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
        ("{{ messages.__class__.__mro__ }}", "access to attribute '__class__' of 'list' object is unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "access to attribute '__init__'"),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{% set n = namespace() %}{% set n._x = 1 %}{{ namespace(__init__=1) }}", "must not hold"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ],
)
def test_a_hostile_template(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"the chat template is refused: .*({why})"):
        render_chat(template, CHAT)


@pytest.mark.slow
def test_a_template_without_end_is_out_of_time() -> None:
    template = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match=r"refused: it does not end within 5 seconds"):
        render_chat(template, CHAT)


@pytest.mark.slow
@pytest.mark.parametrize("template", ["{{ 9 ** (9 ** 9) }}", "{{ lipsum(99999) }}", "{{ '%1000000000d' | format(1) }}"])
def test_a_template_that_asks_for_too_much(template: str) -> None:
    """Which limit it meets first is a matter of how fast the machine is; each has a test of its own."""
    limits = "does not end within 5 seconds|needs more than 1024 MB|writes more than 4,194,304 characters"
    with pytest.raises(ValueError, match=f"refused: .*it ({limits})"):
        render_chat(template, CHAT)


@pytest.mark.parametrize("messages", [[], "Hi", [{"content": "Hi"}], ["Hi"], [{"role": 3}]])
def test_messages_that_are_none(messages: Any, as_users_run_it: None) -> None:
    with pytest.raises(ValueError, match=r"messages must be a list|a message must have a role"):
        render_chat("x", messages)


def test_what_no_template_can_see(as_users_run_it: None) -> None:
    with pytest.raises(ValueError, match=r"must be texts, numbers and lists of them"):
        render_chat("x", [{"role": "user", "content": object()}])


# --- in a folder -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", "user", "Hi", "assistant", ":"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(tmp_path / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken"}, "model_max_length": 9}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, **special})
    )
    return tmp_path


TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }} : {{ m.content }}{{ eos_token }}{% endfor %}"


def test_a_folder_with_a_template(folder: Path) -> None:
    ours = PretrainedTokenizer.load(folder)
    other = transformers.AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Hi"}]
    assert ours.apply_chat_template(chat) == other.apply_chat_template(chat, tokenize=False) == "<s>user : Hi</s>"
    expected = other.apply_chat_template(chat, tokenize=True, return_dict=False)
    assert ours.encode_chat(chat) == expected == [1, 3, 6, 4, 2]


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_where_a_template_may_stand(folder: Path, file: str) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]
    if file == "tokenizer_config.json":
        config["chat_template"] = several
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if file.startswith("chat"):
        (folder / file).write_text(json.dumps({"chat_template": TEMPLATE}) if file.endswith("json") else TEMPLATE)
    assert PretrainedTokenizer.load(folder).chat_template == TEMPLATE


def test_a_folder_without_one(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = PretrainedTokenizer.load(folder)
    assert tokenizer.chat_template is None
    with pytest.raises(ValueError, match=r"must have a chat template for messages, got one without"):
        tokenizer.apply_chat_template(CHAT)
