"""The cases of the page are run, and say what the page says."""

import re
from pathlib import Path

import pytest

from headwork.checking import check_file

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
CASES = re.findall(r"```python\n# (\w+\.py)\n(.*?)```\n\n```text\n\$ headwork check \S+\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_five_cases():
    assert len(CASES) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("file", "program", "said"), CASES, ids=[case[0] for case in CASES])
def test_a_case_of_the_page(server, tmp_path, file, program, said):
    path = tmp_path / file
    path.write_text(program)
    (report,) = check_file(path, server=server, seed=0)
    numbers = ("    yours", "    right", "  smallest case")
    assert [line for line in report.text().splitlines() if not line.startswith(numbers)] == [
        line for line in said.splitlines() if not line.startswith(numbers)
    ]
    assert "smallest case" in report.text()


def test_the_python_of_the_page_runs():
    from headwork import check

    assert "hw.check(softmax)" in PAGE
    namespace: dict[str, object] = {}
    exec("def softmax(x):\n    return x.exp() / x.exp().sum(0)\n", namespace)
    report = check(namespace["softmax"])
    assert report.sentence in PAGE
