"""How annotations are checked while the tests run: by beartype, with an int wherever a float is allowed."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
