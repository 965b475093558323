"""What people call languages in the first line of a table of translations."""

import re

CODES_AND_NAMES = """
af afrikaans am amharic ar arabic az azerbaijani be belarusian bg bulgarian bn bengali bs bosnian ca catalan cs czech
cy welsh da danish de german el greek en english eo esperanto es spanish et estonian eu basque fa persian fi finnish
fr french ga irish gl galician gu gujarati ha hausa he hebrew hi hindi hr croatian hu hungarian hy armenian
id indonesian ig igbo is icelandic it italian ja japanese ka georgian kk kazakh km khmer kn kannada ko korean la latin
lt lithuanian lv latvian mk macedonian ml malayalam mn mongolian mr marathi ms malay mt maltese my burmese ne nepali
nl dutch no norwegian pa punjabi pl polish pt portuguese ro romanian ru russian sk slovak sl slovenian sq albanian
sr serbian sv swedish sw swahili ta tamil te telugu th thai tl tagalog tr turkish uk ukrainian ur urdu uz uzbek
vi vietnamese xh xhosa yo yoruba zh chinese zu zulu
"""
"""Of ISO 639-1."""
WORDS = CODES_AND_NAMES.split()
CODES, NAMES = {*WORDS[::2]}, {*WORDS[1::2]}


def is_language(column: str) -> bool:
    """Whether a column is called like a language, or has one as its first or last word; a text is not called so.

    >>> [is_language(name) for name in ("en", "German", "text_fr", "pt-BR", "English words", "it is a dog")]
    [True, True, True, True, True, False]
    """
    name = column.strip().lower()
    words = re.split(r"[\s_.-]", name)
    return words[0] in NAMES or (" " not in name and not {words[0], words[-1]}.isdisjoint(CODES | NAMES))


def language_columns(names: list[str]) -> list[str]:
    """The columns that are called like languages; of more than two columns, `id` numbers the rows.

    >>> language_columns(["id", "en", "de"]), language_columns(["id", "en"])
    (['en', 'de'], ['id', 'en'])
    """
    return [name for name in names if is_language(name) and (len(names) == 2 or name.strip().lower() != "id")]
