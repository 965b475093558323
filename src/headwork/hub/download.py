"""Models on the Hugging Face Hub, by their ids: fetched once, kept in the cache of its library, and read from there."""

import re
from pathlib import Path
from typing import Literal

from headwork.checks import check_type
from headwork.extras import MissingExtraError, need

ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
BESIDE = ("*.json", "*.txt", "*.model", "*.spm", "chat_template.jinja")
SAFETENSORS, PICKLES = ("model.safetensors", "model-*.safetensors"), ("pytorch_model.bin", "pytorch_model-*.bin")


def find_folder(folder: Path | str) -> Path:
    """The folder, or that of a model on the Hub: a text such as "owner/name" which is no path here.

    Where there is a folder "owner" here, "owner/name" is one that is missing in it, and nobody asks the Hub.
    The library's settings hold, as HF_HUB_OFFLINE=1: then only what was fetched before is found.
    """
    check_type(str | Path, "a path", folder=folder)
    path = Path(folder)
    if isinstance(folder, Path) or path.exists() or path.suffix == ".gguf" or not ID.fullmatch(folder):
        return path
    if path.parent.is_dir():
        raise ValueError(
            f"folder must be one that exists, got {folder}: {path.parent} is a folder here, without {path.name} in it"
        )
    try:
        need("huggingface_hub")
    except MissingExtraError as error:
        raise MissingExtraError(f"{folder} is no folder here; to look on the Hub for it, {error}") from None
    found = fetch_snapshot(folder, (*BESIDE, *SAFETENSORS))
    if not any(found.glob("model*.safetensors")):
        found = fetch_snapshot(folder, (*BESIDE, *PICKLES))
    return found


def fetch_snapshot(
    name: str, patterns: tuple[str, ...], kind: Literal["model", "dataset"] = "model", revision: str | None = None
) -> Path:
    """The folder to which the library has fetched what a repository on the Hub has of the files."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        return Path(
            huggingface_hub.snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=list(patterns))
        )
    except (errors.RepositoryNotFoundError, errors.GatedRepoError, errors.HFValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"folder must be one that exists, or a {kind} on the Hub that is open to you, got {name} ({reason})"
        ) from None
    except Exception as error:  # the library passes on those of its own and of the network
        reason = str(error).strip().partition("\n")[0]
        without = "without a network, give the path of a folder that was fetched before"
        raise ConnectionError(
            f"{name} is no folder here, and the Hub cannot be reached; {without} ({reason})"
        ) from None
