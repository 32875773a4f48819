"""A checkpoint folder (`config.json`, `*.safetensors`, `tokenizer.json`) read without torch: where each tensor's bytes lie.

The format is safetensors (https://github.com/huggingface/safetensors): eight bytes of header length, a JSON header, raw bytes.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from reforward.domain.errors import BadInput
from reforward.domain.record import HASH_BYTES
from reforward.domain.spec import ModelSpec
from reforward.models.families import spec_from_config
from reforward.models.shapes import expected_shapes

DTYPES = {"F64": ("float64", 8), "F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2)}
"""safetensors type to torch name and bytes."""
MAX_HEADER = 100_000_000
ALIGN = 64
PLAIN_NAME = re.compile(r"[\w.-]{1,200}")
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Described(msgspec.Struct, frozen=True):
    """What the header of a safetensors file says about one tensor."""

    dtype: str
    shape: tuple[Natural, ...]
    data_offsets: tuple[Natural, Natural]


class Index(msgspec.Struct, frozen=True):
    """The part of `model.safetensors.index.json` that is read: tensor to file name."""

    weight_map: dict[str, str]


class Words(msgspec.Struct, frozen=True):
    """The vocabulary of a `tokenizer.json`: word to id, or a list in id order (Unigram)."""

    vocab: dict[str, int] | list[Any] = []


class Added(msgspec.Struct, frozen=True):
    """A token outside the vocabulary."""

    id: int


class Tokens(msgspec.Struct, frozen=True):
    """The part of a `tokenizer.json` that is read here."""

    model: Words = Words()
    added_tokens: list[Added] = []


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """Where one tensor's row-major bytes lie."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete, checked checkpoint."""

    folder: Path
    spec: ModelSpec
    dtype: str
    tensors: tuple[TensorEntry, ...]
    """Sorted by name."""

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(entry.nbytes for entry in self.tensors)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a folder; `BadInput` says what is missing, truncated or misshapen, and the remedy."""
    spec = spec_from_config(_json(folder / "config.json", dict[str, Any]))
    if not (folder / "tokenizer.json").is_file():
        raise BadInput(f"{str(folder)!r} has no tokenizer.json; save the tokenizer beside the weights (fast format)")
    highest = _highest_token(_json(folder / "tokenizer.json", Tokens))
    if highest >= spec.vocab:
        raise BadInput(
            f"tokenizer.json has token {highest:,}, but config.json says vocab_size={spec.vocab:,}; "
            "one of them is another model's"
        )
    entries = _by_name(entry for file in _files(folder) for entry in read_header(file))
    expected = expected_shapes(spec)
    _refuse_unread(set(entries) - set(expected), spec)
    tensors = tuple(_checked(entries, name, shape) for name, shape in sorted(expected.items()))
    dtypes = {entry.dtype for entry in tensors}
    if len(dtypes) != 1:
        raise BadInput(f"weights mix the types {sorted(dtypes)}; convert the checkpoint to one of them")
    return Checkpoint(folder=folder, spec=spec, dtype=dtypes.pop(), tensors=tensors)


def _by_name(entries: Iterable[TensorEntry]) -> dict[str, TensorEntry]:
    found: dict[str, TensorEntry] = {}
    for entry in entries:
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            raise BadInput(f"{other.file.name} and {entry.file.name} both hold {entry.name!r}; remove one of the files")
    return found


def read_header(file: Path) -> list[TensorEntry]:
    """All tensors of one safetensors file, with absolute offsets, checked against the file's size."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise BadInput(
                f"{file.name}: the header claims {length:,} bytes of {size:,}; truncated or no safetensors file"
            )
        text = stream.read(length)
    header = _decoded(file.name, "the header", text, dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    described = {name: _decoded(file.name, name, about, Described) for name, about in header.items()}
    entries = [_entry(file, name, about, 8 + length, size) for name, about in described.items()]
    _refuse_overlap(file, entries)
    return entries


def _decoded(file: str, what: str, text: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: {what} is damaged ({error}); download the file again") from None


def _refuse_overlap(file: Path, entries: Sequence[TensorEntry]) -> None:
    """Two tensors that share bytes are no safetensors file."""
    placed = sorted((entry for entry in entries if entry.nbytes), key=lambda entry: entry.offset)
    for before, after in itertools.pairwise(placed):
        if before.offset + before.nbytes > after.offset:
            raise BadInput(f"{file.name}: {before.name} and {after.name} overlap; file is corrupt")


def _entry(file: Path, name: str, about: Described, base: int, size: int) -> TensorEntry:
    if about.dtype not in DTYPES:
        raise BadInput(f"{file.name}: {name} has type {about.dtype!r}; known are {', '.join(DTYPES)}")
    dtype, width = DTYPES[about.dtype]
    begin, end = about.data_offsets
    nbytes = math.prod(about.shape) * width
    if end - begin != nbytes:
        raise BadInput(
            f"{file.name}: {name} spans {begin}..{end}, but its shape needs {nbytes:,} bytes; file is corrupt"
        )
    if base + end > size:
        raise BadInput(
            f"{file.name}: truncated, {name} ends at byte {base + end:,} of {size:,}; download the file again"
        )
    return TensorEntry(name=name, dtype=dtype, shape=about.shape, file=file, offset=base + begin, nbytes=nbytes)


def weights_hash(tensors: Sequence[TensorEntry]) -> str:
    """BLAKE2b over names, types, shapes and all bytes, in the order given; about 1 GB/s."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for entry in tensors:
        digest.update(f"{entry.name}\0{entry.dtype}\0{entry.shape}\0".encode())
        with entry.file.open("rb") as stream:
            stream.seek(entry.offset)
            left = entry.nbytes
            while left:
                block = stream.read(min(left, 1 << 22))
                if not block:
                    raise BadInput(f"{entry.file.name}: ended inside {entry.name}; download the file again")
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write name to (safetensors type, shape, bytes); data starts at a multiple of 64 bytes, as does each tensor."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += -(-len(data) // ALIGN) * ALIGN
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            stream.write(data)
            stream.write(b"\0" * (-len(data) % ALIGN))


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    names = sorted(set(_json(index, Index).weight_map.values())) if index.is_file() else []
    odd = next((name for name in names if not PLAIN_NAME.fullmatch(name)), None)
    if odd is not None:
        raise BadInput(f"{index.name} names the file {odd[:80]!r}, which is no plain file name; download it again")
    files = [folder / name for name in names] if names else sorted(folder.glob("*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise BadInput(f"{str(folder)!r} lacks {', '.join(missing) or '*.safetensors'}; download the whole checkpoint")
    return files


def _refuse_unread(names: set[str], spec: ModelSpec) -> None:
    """A tensor that the stock forward would not read means another architecture: silence would change the model."""
    known = {"lm_head.weight"} if spec.tied else set[str]()
    unread = sorted(name for name in names - known if not name.endswith("rotary_emb.inv_freq"))
    if unread:
        raise BadInput(
            f"the checkpoint has {len(unread)} tensors that config.json does not explain, {unread[0]!r} first; "
            f"the stock {spec.family} forward would ignore them"
        )


def _highest_token(tokenizer: Tokens) -> int:
    """Highest id in a `tokenizer.json`; -1 if it lists none."""
    words = tokenizer.model.vocab
    known = words.values() if isinstance(words, dict) else range(len(words))
    return max([-1, *known, *(token.id for token in tokenizer.added_tokens)])


def _checked(entries: Mapping[str, TensorEntry], name: str, shape: tuple[int, ...]) -> TensorEntry:
    if name not in entries:
        raise BadInput(f"the checkpoint has no tensor {name!r}, which its config.json asks for; download it again")
    if entries[name].shape != shape:
        raise BadInput(f"tensor {name!r} has shape {entries[name].shape}, but config.json asks for {shape}")
    return entries[name]


def _json(path: Path, kind: type[T]) -> T:
    """A JSON document of this shape; `BadInput` says what is missing or of another type, and where."""
    if not path.is_file():
        raise BadInput(
            f"{str(path)!r} does not exist; pass a folder with config.json, *.safetensors and tokenizer.json"
        )
    try:
        plain: Any = json.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(plain, kind)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{str(path)!r} is damaged ({error}); download the file again") from None
