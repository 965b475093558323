"""The user's own files: a text, an image, a folder of images."""

from pathlib import Path

IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line ends as Python has them."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"text must be a file that exists, got {path}") from None
    except IsADirectoryError:
        raise ValueError(f"text must be a file, got the folder {path}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text must be UTF-8, got {path} with the byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from None
    text = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n")
    if not text.strip():
        raise ValueError(f"text must not be empty, got {path}")
    return text


def find_images(path: Path) -> list[Path]:
    """The image itself, or all images in a folder (not below it) by name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"images must be a file or a folder that exists, got {path}")
    found = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in IMAGE_ENDINGS and not file.name.startswith(".") and file.is_file()
    )
    if not found:
        raise ValueError(f"images must be a folder with files such as {', '.join(IMAGE_ENDINGS)}, got {path}")
    return found
