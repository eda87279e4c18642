"""Longer recordings out of short ones: the samples of a real file, many times over.

Each function changes a copy of a recording in place. What a vendor's header says of the length is
changed with it, so that readers take the result for one long recording.
"""

from __future__ import annotations

import gzip
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import fixture_formats as formats
import h5py
import numpy as np
from fixture_signals import Channel
from numpy.typing import NDArray
from scipy.io import savemat

from converter.dataset.recording import Recording
from converter.recording.local import LocalRecording
from converter.recording.readers import Format, open_recording

_FIF_TAG = struct.Struct(">iIii")
_FIF_DATA_BUFFER, _FIF_DIRECTORY_POINTER = 300, 101


def repeat(path: Path, start: int, stop: int, times: int) -> None:
    """Have the bytes `start:stop` of a file `times` times in their place."""
    whole = path.read_bytes()
    with path.open("wb") as file:
        file.write(whole[:start])
        for _ in range(times):
            file.write(whole[start:stop])
        file.write(whole[stop:])


def patch(path: Path, position: int, content: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def numbers(path: Path, layout: str, position: int) -> tuple[int, ...]:
    """Whole numbers at a position of a file."""
    with path.open("rb") as file:
        file.seek(position)
        return struct.unpack(layout, file.read(struct.calcsize(layout)))


def edf(path: Path, times: int) -> None:
    """Of EDF and BDF: more data records."""
    header = path.read_bytes()[:256]
    repeat(path, int(header[184:192]), path.stat().st_size, times)
    patch(path, 236, f"{int(header[236:244]) * times:<8}".encode())


def brainvision(path: Path, times: int) -> None:
    """Of a multiplexed BrainVision recording whose header counts no samples."""
    data = path.with_suffix(".eeg")
    repeat(data, 0, data.stat().st_size, times)


def fif(path: Path, times: int) -> None:
    """Of FIF: more data buffers; the directory of tags is left out, as files may."""
    content = path.read_bytes()
    position, buffers = 0, []
    while position < len(content):
        kind, _, size, following = _FIF_TAG.unpack_from(content, position)
        if kind == _FIF_DATA_BUFFER:
            buffers += [position, position + _FIF_TAG.size + size]
        if kind == _FIF_DIRECTORY_POINTER:
            patch(path, position + _FIF_TAG.size, struct.pack(">i", -1))
        if following < 0:
            break
        position += _FIF_TAG.size + size
    repeat(path, buffers[0], buffers[-1], times)


def packed_fif(path: Path, times: int) -> None:
    """FIF as one gzip file, under the name `.fif.gz`."""
    fif(path, times)
    with gzip.open(path.with_suffix(".fif.gz"), "wb", compresslevel=1) as file:
        file.write(path.read_bytes())
    path.unlink()


def ctf(path: Path, times: int) -> None:
    """Of CTF: more trials, which follow one another without a gap."""
    (data,), (header,) = path.glob("*.meg4"), path.glob("*.res4")
    repeat(data, 8, data.stat().st_size, times)
    (trials,) = numbers(header, ">h", 1312)
    patch(header, 1312, struct.pack(">h", trials * times))


def kit(path: Path, times: int) -> None:
    """Of KIT: the samples move to the file's end, where their directory entry follows them."""
    position, sample_bytes = numbers(path, "<2i", 16 * 9)
    (acquisition,) = numbers(path, "<i", 16 * 8)
    (n_samples,) = numbers(path, "<i", acquisition + 16)
    (system,) = numbers(path, "<i", 16)
    (n_channels,) = numbers(path, "<i", system + 12 + 256)
    content = path.read_bytes()
    samples = content[position : position + n_samples * n_channels * sample_bytes]
    with path.open("ab") as file:
        for _ in range(times):
            file.write(samples)
    patch(path, 16 * 9, struct.pack("<i", len(content)))
    patch(path, acquisition + 16, struct.pack("<i", n_samples * times))


def bti(path: Path, times: int) -> None:
    """Of 4D/BTi with one epoch: its samples, the header behind them moving along."""
    data = next(path.glob("c,rf*"))
    size = data.stat().st_size
    (position,) = numbers(data, ">q", size - 8)
    aligned = position + -position % 8
    (data_format,), (n_epochs,) = (
        numbers(data, ">h", aligned + 8),
        numbers(data, ">i", aligned + 12),
    )
    (n_channels,), (n_samples,) = (
        numbers(data, ">h", aligned + 52),
        numbers(data, ">i", aligned + 96),
    )
    if n_epochs != 1:
        raise ValueError(f"{path.name} has {n_epochs} epochs, expected one.")
    n_bytes = n_samples * n_channels * {1: 2, 2: 4, 3: 4, 4: 8}[data_format]
    # The header begins at a multiple of 8 bytes, as before it is moved.
    times += -(times - 1) % 8
    repeat(data, 0, n_bytes, times)
    moved = n_bytes * (times - 1)
    patch(data, size + moved - 8, struct.pack(">q", position + moved))
    patch(data, aligned + moved + 96, struct.pack(">i", n_samples * times))


def egi(path: Path, times: int) -> None:
    """Of EGI with one block: as many such blocks in its one epoch."""
    _stretch_epoch(path, times, blocks=times)
    for data in path.glob("signal*.bin"):
        repeat(data, 0, data.stat().st_size, times)


def egi_in_one_block(path: Path, times: int) -> None:
    """Of EGI with one block: a single long one."""
    _stretch_epoch(path, times, blocks=1)
    for data in path.glob("signal*.bin"):
        _, header_bytes, block_bytes, n_channels = numbers(data, "<4i", 0)
        rows = np.frombuffer(data.read_bytes()[header_bytes:], "<f4").reshape(n_channels, -1)
        offsets = np.arange(n_channels, dtype="<i4") * (rows.shape[1] * times * 4)
        patch(data, 8, struct.pack("<i", block_bytes * times))
        patch(data, 16, offsets.tobytes())
        with data.open("r+b") as file:
            file.seek(header_bytes)
            for row in rows:
                file.write(np.tile(row, times).tobytes())


def _stretch_epoch(path: Path, times: int, blocks: int) -> None:
    epochs = path / "epochs.xml"
    text = epochs.read_text(encoding="latin-1")
    text = re.sub(
        r"<endTime>(\d+)<", lambda found: f"<endTime>{int(found[1]) * times}<", text, count=1
    )
    text = re.sub(r"<lastBlock>\d+<", f"<lastBlock>{blocks}<", text, count=1)
    epochs.write_text(text, encoding="latin-1")


def _microvolts(path: Path, times: int) -> tuple[list[Channel], int, NDArray[np.float32]]:
    """Channels, rate and samples (n_channels, n) of an EEGLAB recording, repeated."""
    source = open_recording(LocalRecording(path.name, "eeg", path))
    (group,) = source.groups
    samples = source.read(0, 0, group.n_samples).astype(np.float32)
    source.close()
    channels = [Channel(channel.label, channel.type, "uV", ()) for channel in group.channels]
    return channels, round(group.rate), np.tile(samples, times)


def eeglab(path: Path, times: int) -> None:
    """EEGLAB with its samples in a .fdt file."""
    channels, rate, samples = _microvolts(path, times)
    data = path.with_suffix(".fdt")
    data.write_bytes(samples.T.astype("<f4").tobytes())
    path.write_bytes(formats.eeglab(channels, rate, data.name, samples.shape[1]))


def eeglab_v5(path: Path, times: int) -> None:
    """EEGLAB with its samples in a deflated MATLAB file."""
    channels, rate, samples = _microvolts(path, times)
    labels = np.array([(channel.label,) for channel in channels], dtype=[("labels", object)])
    fields = {
        "nbchan": float(len(channels)),
        "trials": 1.0,
        "pnts": float(samples.shape[1]),
        "srate": float(rate),
        "data": samples,
        "chanlocs": labels.reshape(1, -1),
    }
    path.with_suffix(".fdt").unlink(missing_ok=True)
    savemat(path, {"EEG": fields}, do_compression=True)


def eeglab_v73(path: Path, times: int) -> None:
    """EEGLAB with its samples in a MATLAB v7.3 file that has them inside: more of its rows."""
    with h5py.File(path, "r+") as file:
        old = file["EEG/data"]
        samples, chunks, attributes = old[()], old.chunks, dict(old.attrs)
        del file["EEG/data"]
        shape = (samples.shape[0] * times, samples.shape[1])
        new = file.create_dataset("EEG/data", shape, "<f4", chunks=chunks, compression=1)
        for index in range(times):
            new[index * len(samples) : (index + 1) * len(samples)] = samples
        new.attrs.update(attributes)


def _anything(_: Path) -> bool:
    return True


def _holds_samples_as_hdf5(path: Path) -> bool:
    return h5py.is_hdf5(path) and not path.with_suffix(".fdt").exists()


# By the format's name: functions, each with what tells whether it can grow a recording.
GROWERS: dict[str, tuple[tuple[Callable[[Path, int], None], Callable[[Path], bool]], ...]] = {
    "EDF": ((edf, _anything),),
    "BDF": ((edf, _anything),),
    "BrainVision": ((brainvision, _anything),),
    "EEGLAB": (
        (eeglab, _anything),
        (eeglab_v5, _anything),
        (eeglab_v73, _holds_samples_as_hdf5),
    ),
    "FIF": ((fif, _anything), (packed_fif, _anything)),
    "CTF": ((ctf, _anything),),
    "KIT": ((kit, _anything),),
    "4D/BTi": ((bti, _anything),),
    "EGI MFF": ((egi, _anything), (egi_in_one_block, _anything)),
}


def grown(
    recording: Recording, known: Format, folder: Path, size: float, made: Path
) -> Iterator[tuple[str, Path]]:
    """The recording of a BIDS folder at about `size` bytes, in each way that its format has.

    Each comes as the way's name and `made`, a folder with nothing else, removed after its turn.
    """
    for grow, suits in GROWERS.get(known.name, ()):
        if not suits(folder / recording.path):
            continue
        for entry in (*recording.members, *recording.sidecars.entries()):
            target = made / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / entry.path, target)
        grow(made / recording.path, max(2, round(size / recording.size)))
        yield grow.__name__, made
        shutil.rmtree(made)
