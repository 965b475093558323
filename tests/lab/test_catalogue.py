"""One file is one claim."""

import subprocess
import sys

import pytest

from headwork.lab import catalogue

ONE = '''"""Something
holds.

Because.
"""

CLAIM = Claim(__name__, __doc__, document="ETH", question="1(a)", setup=1 / 0)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    catalogue.labels.cache_clear()
    yield tmp_path
    catalogue.labels.cache_clear()


def test_adding_a_file_adds_a_claim_without_running_it(folder):
    (folder / "__init__.py").write_text("")
    (folder / "_shared.py").write_text("not Python")
    (folder / "a_new_one.py").write_text(ONE)
    assert catalogue.labels() == (catalogue.Label("a-new-one", "ETH", "1(a)", "Something holds."),)


def test_a_file_without_a_claim_is_named(folder):
    (folder / "empty.py").write_text("")
    with pytest.raises(ValueError, match=r"must end in CLAIM = Claim\(...\), got .*empty.py"):
        catalogue.labels()


def test_claims_are_listed_by_document_and_question():
    listed = [(catalogue.DOCUMENTS.index(label.document), label.question) for label in catalogue.labels()]
    assert listed == sorted(listed)
    assert len({label.name for label in catalogue.labels()}) == len(listed)


def test_one_claim_is_found_by_reading_one_file(folder):
    (folder / "temperature.py").write_text("")
    (folder / "broken.py").write_text("not Python")
    assert catalogue.find("temperature").name == "temperature"


def test_what_is_no_claim_is_not_found():
    for name in ("__init__", "../claim", ""):
        with pytest.raises(ValueError, match="is not known"):
            catalogue.find(name)


def test_names_may_be_written_with_underscores():
    assert catalogue.find("variance_of_dot_product").name == "variance-of-dot-product"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tempreature", "the nearest is temperature"),
        ("variance", "the nearest is variance-of-dot-product"),
        ("xyzzy", "see `headwork lab`"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, hint):
    with pytest.raises(ValueError, match=f"claim '{name}' is not known; {hint}"):
        catalogue.find(name)


def test_the_list_does_not_wait_for_torch():
    program = (
        "import sys; from headwork.cli import main\nassert main(['lab']) == 0\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "temperature" in done.stdout
