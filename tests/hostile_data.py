"""Datasets made to do harm or to break a reader: each builder takes a place and returns what to load."""

from __future__ import annotations

import io
import json
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import numpy as np

from rl_training.data.datasets.formats.loaders import load_transitions
from rl_training.data.datasets.formats.writing import save_transitions

ROWS = 6
Builder = Callable[[Path], Path]


def good_arrays(**changes: Any) -> dict[str, Any]:
    """Two trajectories of three steps: the first ends in a terminal state, the second by a time limit."""
    obs = np.arange(2.0 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    arrays: dict[str, Any] = {
        "observations": obs,
        "actions": np.linspace(-1, 1, ROWS, dtype=np.float32)[:, None],
        "rewards": np.arange(ROWS, dtype=np.float32),
        "next_observations": obs + 2,
        "terminals": np.array([0, 0, 1, 0, 0, 0], np.bool_),
        "timeouts": np.array([0, 0, 0, 0, 0, 1], np.bool_),
    }
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


def npz(name: str = "data.npz", **changes: Any) -> Builder:
    def build(place: Path) -> Path:
        np.savez(place / name, **good_arrays(**changes))
        return place / name

    return build


def object_npz(place: Path) -> Path:
    return npz(infos=np.array([hostile.Canary(place.parent / "executed")], dtype=object))(place)


def renamed(make: Callable[[Path], bytes], name: str) -> Builder:
    def build(place: Path) -> Path:
        (place / name).write_bytes(make(place))
        return place / name

    return build


def npy(descr: str, shape: str, data: bytes) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def member(name: str, data: bytes | Callable[[Path], bytes]) -> Builder:
    """An archive in which one member is other bytes."""

    def build(place: Path) -> Path:
        path = npz()(place)
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        members[f"{name}.npy"] = data(place) if callable(data) else data
        with zipfile.ZipFile(path, "w") as archive:
            for key, content in members.items():
                archive.writestr(key, content)
        return path

    return build


def other_compression(place: Path) -> Path:
    path = npz()(place)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for key, content in members.items():
            archive.writestr(key, content, zipfile.ZIP_LZMA if key == "rewards.npy" else zipfile.ZIP_STORED)
    return path


def twice(place: Path) -> Path:
    path = npz()(place)
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("rewards.npy", npy("'<f4'", "(6,)", bytes(24)))
    return path


def encrypted(place: Path) -> Path:
    data = bytearray(npz()(place).read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag in both headers of every member
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 1)
    (place / "data.npz").write_bytes(data)
    return place / "data.npz"


def flipped(place: Path) -> Path:
    path = npz()(place)
    data = bytearray(path.read_bytes())
    at = data.find(b"next_observations.npy") - 31  # the last byte before that member: the end of the rewards
    data[at] ^= 1
    path.write_bytes(data)
    return path


def cut(name: str) -> Builder:
    def build(place: Path) -> Path:
        path = (npz() if name.endswith("npz") else hdf5())(place)
        os.truncate(path, path.stat().st_size // 2)
        return path

    return build


def fifo(name: str) -> Builder:
    def build(place: Path) -> Path:
        os.mkfifo(place / name)
        return place / name

    return build


def hdf5(change: Callable[[Any, Path], Any] | None = None, **changes: Any) -> Builder:
    """A file in the D4RL layout, with the open file altered by `change`."""

    def build(place: Path) -> Path:
        import h5py

        with h5py.File(place / "data.hdf5", "w") as file:
            for name, value in good_arrays(**changes).items():
                file.create_dataset(name, data=value)
            if change is not None:
                change(file, place)
        return place / "data.hdf5"

    return build


def replaced(name: str, put: Callable[[Any, Path], Any]) -> Builder:
    def change(file: Any, place: Path) -> None:
        del file[name]
        put(file, place)

    return hdf5(change)


def external_link(file: Any, place: Path) -> None:
    import h5py

    with h5py.File(place / "secret.hdf5", "w") as other:
        other["rewards"] = np.zeros(ROWS, np.float32)
    file["rewards"] = h5py.ExternalLink(str(place / "secret.hdf5"), "/rewards")


def soft_link(file: Any, place: Path) -> None:
    import h5py

    file["rewards"] = h5py.SoftLink("/actions")


def external_storage(file: Any, place: Path) -> None:
    (place / "secret").write_bytes(bytes(4 * ROWS))
    file.create_dataset("rewards", (ROWS,), "f4", external=[(str(place / "secret"), 0, 4 * ROWS)])


def virtual(file: Any, place: Path) -> None:
    import h5py

    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(place / "secret.hdf5"), "rewards", (ROWS,), "f4")
    file.create_virtual_dataset("rewards", layout)


def variable_length(file: Any, place: Path) -> None:
    import h5py

    file.create_dataset("rewards", (ROWS,), h5py.vlen_dtype(np.float32))


def references(file: Any, place: Path) -> None:
    import h5py

    file.create_dataset("rewards", (ROWS,), h5py.ref_dtype)


def records(file: Any, place: Path) -> None:
    file.create_dataset("rewards", (ROWS,), np.dtype([("a", "f4"), ("b", "f4")]))


def huge(file: Any, place: Path) -> None:
    file.create_dataset("observations", (2**40, 2**20), "f4", chunks=(1024, 1024))


def huge_chunk(file: Any, place: Path) -> None:
    file.create_dataset("rewards", (2**29,), "f4", chunks=(2**29,), compression="gzip")
    file["rewards"].id.write_direct_chunk((0,), bytes(2**22))


def swelling_chunk(file: Any, place: Path) -> None:
    """A chunk of 24 bytes that unpacks to 64 MiB."""
    file.create_dataset("rewards", (ROWS,), "f4", chunks=(ROWS,), compression="gzip")
    file["rewards"].id.write_direct_chunk((0,), zlib.compress(bytes(2**26)))


def swelling_large_chunk(file: Any, place: Path) -> None:
    """Not more than is declared, and unpacks to 400 MiB."""
    file.create_dataset("rewards", (2**20,), "f4", chunks=(2**20,), compression="gzip", shuffle=True)
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(2**24)) for _ in range(25)) + packer.flush()
    file["rewards"].id.write_direct_chunk((0,), packed, filter_mask=1)  # not shuffled, but packed


def twice_compressed(file: Any, place: Path) -> None:
    import h5py

    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((ROWS,))
    plist.set_deflate(9)
    plist.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL, (4, 261, 24))
    space = h5py.h5s.create_simple((ROWS,))
    h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_FLOAT, space, plist)


def other_names(file: Any, place: Path) -> None:
    file.move("observations", "observation")
    file.create_group("infos")


def plugin(file: Any, place: Path) -> None:
    """A filter that HDF5 would look for among the libraries on this machine."""
    import h5py

    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((ROWS,))
    plist.set_filter(256, h5py.h5z.FLAG_OPTIONAL, (1, 2))
    space = h5py.h5s.create_simple((ROWS,))
    h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_FLOAT, space, plist)


def empty_space(file: Any, place: Path) -> None:
    import h5py

    file.create_dataset("rewards", data=h5py.Empty("f4"))


def group(file: Any, place: Path) -> None:
    file.create_group("observations")["position"] = np.zeros(ROWS)


def minari(
    change: Callable[[Any, Path], Any] | None = None, metadata: Callable[[dict[str, Any]], Any] | None = None
) -> Builder:
    """A Minari folder of two episodes, with the open file or the metadata altered."""

    def build(place: Path) -> Path:
        import h5py

        folder = save_transitions(load_transitions(npz()(place)), place / "set")
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            if change is not None:
                change(file, place)
        if metadata is not None:
            path = folder / "data" / "metadata.json"
            path.write_text(json.dumps(metadata(json.loads(path.read_text()))))
        return folder

    return build


def linked_episode(file: Any, place: Path) -> None:
    import h5py

    del file["episode_1"]
    file["episode_1"] = h5py.ExternalLink(str(place / "secret.hdf5"), "/")


def archive_of(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def deep_npz(place: Path) -> bytes:
    """An archive in an archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **good_arrays())
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("observations.npy", buffer.getvalue())
    return outer.getvalue()


NUMBERS = "numbers of at most 64 bits are expected"
NPZ_CASES: dict[str, tuple[Builder, str]] = {
    "objects": (object_npz, "{path}: 'infos' contains Python objects, which are never loaded"),
    "pickle": (renamed(hostile.canary, "data.npz"), "{path}: not an npz file (File is not a zip file)"),
    "pickle member": (member("rewards", hostile.canary), "{path}: 'rewards' is not a numpy array"),
    "torch file": (renamed(hostile.torch_file, "data.npz"), "{path}: has no observations, actions, rewards; {text}"),
    "nested archive": (renamed(deep_npz, "data.npz"), "{path}: 'observations' is not a numpy array"),
    "records": (
        member("rewards", npy("[('a', '<f4')]", "(6,)", bytes(24))),
        "{path}: 'rewards' has elements of type \"[('a', '<f4')]\", " + NUMBERS,
    ),
    "texts": (
        member("rewards", npy("'<U4'", "(6,)", bytes(96))),
        "{path}: 'rewards' has elements of type '<U4', {text}",
    ),
    "a number of no such size": (
        member("rewards", npy("'<f1'", "(6,)", bytes(6))),
        "{path}: 'rewards' has elements of type '<f1', {text}",
    ),
    "another compression": (
        other_compression,
        "{path}: 'rewards' is damaged (neither stored nor deflated)",
    ),
    "expression": (
        member("rewards", npy("__import__('os').system('true')", "(6,)", bytes(24))),
        "{path}: 'rewards' has a header that numpy does not write",
    ),
    "declared too large": (
        member("observations", npy("'<f4'", "(1099511627776, 2)", bytes(48))),
        "{path}: 'observations' declares 8796093022208 bytes and holds 48",
    ),
    "overflowing shape": (
        member("observations", npy("'<f4'", f"({2**62}, 4)", bytes(48))),
        "{path}: 'observations' is of shape {text}, which no array has",
    ),
    "empty and vast": (
        member("observations", npy("'<f4'", f"(0, {2**62})", b"")),
        "{path}: 'observations' is of shape '(0, 4611686018427387904)', which no array has",
    ),
    "many axes": (
        member("rewards", npy("'<f4'", f"({'1, ' * 70})", bytes(4))),
        "{path}: 'rewards' is of shape {text}, which no array has",
    ),
    "long number": (
        member("observations", npy("'<f4'", f"({'9' * 5000},)", b"")),
        "{path}: 'observations' is damaged ({text})",
    ),
    "long header": (
        member("rewards", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31)),
        "{path}: 'rewards' has a header of 2147483648 bytes",
    ),
    "twice": (twice, "{path}: has 7 members, at most 1000 with distinct names are expected"),
    "encrypted": (encrypted, "{path}: 'observations' is damaged (File 'observations.npy' is encrypted, {text})"),
    "flipped": (flipped, "{path}: 'rewards' is damaged (Bad CRC-32 for file 'rewards.npy')"),
    "cut off": (cut("data.npz"), "{path}: not an npz file (File is not a zip file)"),
    "empty file": (renamed(lambda place: b"", "data.npz"), "{path}: not an npz file ({text})"),
    "pipe": (fifo("data.npz"), "{path}: not a regular file"),
    "a name to deceive": (
        renamed(lambda place: archive_of("x\x1b[31m\nerror: fake.npy", npy("'<f4'", "(1,)", bytes(4))), "data.npz"),
        "{path}: has no observations, actions, rewards; it has x [31m error: fake",
    ),
}
HDF5_CASES: dict[str, tuple[Builder, str]] = {
    "external link": (
        replaced("rewards", external_link),
        "{path}: 'rewards' is an external link, which is not followed",
    ),
    "soft link": (replaced("rewards", soft_link), "{path}: 'rewards' is a link, which is not followed"),
    "external storage": (replaced("rewards", external_storage), "{path}: 'rewards' is stored in other files, {text}"),
    "virtual": (replaced("rewards", virtual), "{path}: 'rewards' is stored in other files, which are not read"),
    "variable length": (
        replaced("rewards", variable_length),
        "{path}: 'rewards' has elements of variable length {text}",
    ),
    "references": (replaced("rewards", references), "{path}: 'rewards' has elements of variable length {text}"),
    "HDF5 records": (replaced("rewards", records), "{path}: 'rewards' has elements of type {text}, " + NUMBERS),
    "huge": (
        replaced("observations", huge),
        "{path}: 'observations' declares 4294967296.0 GiB (shape (1099511627776, 1048576)) and holds 0 bytes",
    ),
    "huge chunk": (replaced("rewards", huge_chunk), "{path}: 'rewards' is stored in chunks of shape {text}"),
    "swelling chunk": (
        replaced("rewards", swelling_chunk),
        "{path}: 'rewards' declares chunks of 24 bytes and holds one of {text}",
    ),
    "swelling large chunk": (
        replaced("rewards", swelling_large_chunk),
        "{path}: 'rewards' declares chunks of 4194304 bytes and holds one that is larger",
    ),
    "twice compressed": (
        replaced("rewards", twice_compressed),
        "{path}: 'rewards' is compressed more than once, which is not supported",
    ),
    "other names": (
        hdf5(other_names),
        "{path}: has no observations; it has actions, infos, next_observations, observation, rewards, {text}",
    ),
    "plugin": (replaced("rewards", plugin), "{path}: 'rewards' is compressed with filter 256, which is not supported"),
    "empty space": (replaced("rewards", empty_space), "{path}: 'rewards' is not an array"),
    "group": (replaced("observations", group), "{path}: 'observations' is a group, one array is expected {text}"),
    "HDF5 pickle": (renamed(hostile.canary, "data.hdf5"), "{path}: not a usable HDF5 file ({text})"),
    "HDF5 cut off": (cut("data.hdf5"), "{path}: not a usable HDF5 file ({text})"),
    "HDF5 pipe": (fifo("data.h5"), "{path}: not a regular file"),
    "Minari link": (
        minari(linked_episode),
        "{path}/data/main_data.hdf5: 'episode_1' is an external link, which is not followed",
    ),
    "Minari JSON": (minari(metadata=lambda values: [1]), "{path}/data/metadata.json: must be a mapping"),
}
