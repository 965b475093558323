"""The living pages of the demo models, docs/explorer/*.html: each holds a trained model and computes in the browser.

python docs/make_living.py runs/digits-vit runs/dates  # a page for each of these runs
python docs/make_living.py                             # the models that are there, in the page as it is now
"""

import json
import sys
from pathlib import Path

from headwork.explorer.answering import Answering
from headwork.explorer.living import living_page
from headwork.explorer.one_file import one_file
from headwork.explorer.opening import open_subject

PAGES = Path(__file__).parent / "explorer"


def data_of(path: Path) -> dict[str, object]:
    """What a living page holds."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('<script type="application/json" id="living">')[1].split("</script>")[0])


def main(runs: list[str]) -> None:
    PAGES.mkdir(exist_ok=True)
    made = {Path(run).name: living_page(Answering(open_subject(run))) for run in runs}
    if not runs:
        made = {path.stem: one_file("living.js", path.stem, {"living": data_of(path)}) for path in PAGES.glob("*.html")}
    for name, text in made.items():
        (PAGES / f"{name}.html").write_text(text, encoding="utf-8")
        print(f"{PAGES.name}/{name}.html, {len(text.encode()) / 1e6:.2f} MB")


main(sys.argv[1:])
