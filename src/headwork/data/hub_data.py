"""Where a user's data is: a path here or, if there is none, the id of a data set on the Hugging Face Hub."""

from pathlib import Path

from headwork.data.splitting import check_exists
from headwork.data.table_files import TABLE_ENDINGS
from headwork.extras import MissingExtraError, need
from headwork.hub.download import ID, fetch_snapshot


def find_data(path: str) -> Path:
    """The file or folder, or the folder to which a data set such as "owner/name" was fetched.

    The library's settings hold, as HF_HUB_OFFLINE=1: then only what was fetched before is found.
    """
    here = Path(path)
    if here.exists() or not ID.fullmatch(path) or here.suffix.lower() in TABLE_ENDINGS:
        return check_exists(here)
    try:
        need("huggingface_hub")
    except MissingExtraError as error:
        raise MissingExtraError(f"{path} is no file or folder here; to look on the Hub for it, {error}") from None
    return fetch_snapshot(path, tuple(f"*{ending}" for ending in TABLE_ENDINGS if ending != ".json"), "dataset")
