"""Nothing that a header says of people, devices or machines is published or printed."""

from __future__ import annotations

import datetime
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import mne
import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat

from tests.conftest import commit_all
from tests.readers.test_brainvision import header
from tests.readers.test_edf import Signal, edf_bytes, record, tal
from tests.readers.test_eeglab import fields
from tests.readers.test_mne_readers import BTI, CTF, EGI, KIT, copied

NAME, IDENTIFIER, TECHNICIAN, SERIAL = "Quigley", "PATID90210", "Obristova", "SN55QX77"
FOLDER = "zeldas_records"
LOCAL_PATH = f"/home/{FOLDER}/{NAME}/run.raw"
DATES = ("05-MAR-1911", "1911-03-05", "05.03.1911", "19110305")
SECRETS = (NAME, IDENTIFIER, TECHNICIAN, SERIAL, FOLDER, *DATES)
ALL = f"{NAME} {IDENTIFIER} {TECHNICIAN} {SERIAL} {DATES[1]} {LOCAL_PATH}"


def edf(path: Path, version: bytes = b"0") -> None:
    sample_bytes = 2 if version == b"0" else 3
    kind = "EDF" if sample_bytes == 2 else "BDF"
    signals = [Signal("Fp1", 100), Signal("Cz", 100), Signal(f"{kind} Annotations", 60)]
    text = tal(f"+0\x14\x14+0.5\x14{NAME} {TECHNICIAN}", 60 * sample_bytes // 2)
    content = edf_bytes(
        signals,
        [record(np.arange(200) % 50 - 7)[: 200 * sample_bytes].ljust(200 * sample_bytes) + text],
        version=version,
        reserved=f"{kind}+C",
    )
    patient = f"{IDENTIFIER} F {DATES[0]} {NAME}".encode()
    local = f"Startdate {DATES[0]} {IDENTIFIER} {TECHNICIAN} {SERIAL}".encode()
    content = content[:8] + patient.ljust(80) + local.ljust(80) + content[168:]
    # Transducers stand after all labels, prefilters after the transducers and six fields more.
    at = 256 + 3 * 16
    content = content[:at] + f"AgAgCl {SERIAL}".encode().ljust(80) + content[at + 80 :]
    at += 3 * (80 + 5 * 8)
    content = content[:at] + f"HP:0.1Hz {TECHNICIAN}".encode().ljust(80) + content[at + 80 :]
    path.write_bytes(content)


def brainvision(path: Path) -> None:
    text = header(
        ["Fp1,,0.5,µV", f"Cz,,0.5,µV,{TECHNICIAN}"],
        common={"DataFile": "", "SubjectName": NAME, "PatientID": IDENTIFIER, "Device": SERIAL},
    )
    path.write_text(f"; {ALL}\n".join(text.partition("\r\n")[::2]) + f"\r\n{ALL}\r\n")
    lines = ["Brain Vision Data Exchange Marker File, Version 1.0", f"; {ALL}", "[Marker Infos]"]
    lines += [f"Mk1=New Segment,{NAME},1,1,0,19110305161403794232", f"Mk2=Comment,{ALL},9,1,0"]
    lines += [f"Mk3=New Segment,{NAME},40,1,0,19110305161403794232"]
    path.with_suffix(".vmrk").write_text("\n".join(lines))
    path.with_suffix(".eeg").write_bytes(np.arange(200, dtype="<i2").tobytes())


def fif(path: Path) -> None:
    info = mne.create_info(["EEG001", "EEG002"], 200.0, "eeg")
    with info._unlock():
        info["experimenter"] = TECHNICIAN
        info["description"] = ALL
        info["proj_name"] = NAME
        info["subject_info"] = {
            "his_id": IDENTIFIER,
            "last_name": NAME,
            "first_name": TECHNICIAN,
            "birthday": datetime.date(1911, 3, 5),
        }
        info["device_info"] = {"type": "x", "model": "y", "serial": SERIAL, "site": FOLDER}
    raw = mne.io.RawArray(np.random.default_rng(0).normal(0, 1e-5, (2, 400)), info, verbose="ERROR")
    raw.set_annotations(mne.Annotations([0.5], [0.1], [ALL]))
    raw.save(path, verbose="ERROR")


def eeglab(path: Path) -> None:
    notes = dict.fromkeys(("setname", "subject", "comments", "history", "session", "group"), ALL)
    notes |= {"filename": f"{NAME}.set", "filepath": LOCAL_PATH, "ref": TECHNICIAN}
    notes |= {"etc": {"serial": SERIAL, "id": IDENTIFIER}}
    savemat(path, {"EEG": fields(**notes)}, appendmat=False)


def into(file: Path, offset: int, width: int, text: str) -> None:
    data = bytearray(file.read_bytes())
    data[offset : offset + width] = text.encode()[:width].ljust(width, b"\0")
    file.write_bytes(data)


def ctf(path: Path, real: Path) -> None:
    stem = copied(real / CTF, path) / Path(CTF).stem
    resource = stem.with_suffix(".res4")
    for offset, width in [(8, 256), (264, 256), (520, 256), (1392, 256), (1776, 60)]:
        into(resource, offset, width, ALL)
    for offset, text in [(1648, SERIAL), (1712, IDENTIFIER), (1744, TECHNICIAN)]:
        into(resource, offset, 32, text)
    for member in ("infods", "hist", "newds"):
        stem.with_suffix(f".{member}").write_text(ALL)


def kit(path: Path, real: Path) -> None:
    file = copied(real / KIT, path)
    system = struct.unpack_from("<i", file.read_bytes(), 16)[0]
    into(file, system + 12, 128, f"{SERIAL} {NAME}")
    into(file, system + 140, 120, f"{SERIAL} {NAME}")
    content = file.read_bytes()
    for known, text in [(b"Z:\\Users\\teon\\data\\NMG", LOCAL_PATH), (b"N@12345678", IDENTIFIER)]:
        assert known in content
        content = content.replace(known, text.encode()[: len(known)].ljust(len(known)))
    file.write_bytes(content)


def egi(path: Path, real: Path) -> None:
    folder = copied(real / EGI, path)
    info = folder / "info.xml"
    info.write_text(info.read_text("latin-1").replace("A012210519", SERIAL), "latin-1")
    subject = folder / "subject.xml"
    subject.write_text(subject.read_text("latin-1").replace("TEST", ALL), "latin-1")
    (folder / "notes.xml").write_text(f"<notes><note>{ALL}</note></notes>")


def bti(path: Path, real: Path) -> None:
    file = copied(real / BTI, path) / "config"
    content = file.read_bytes()
    assert b"Juelich-II" in content
    file.write_bytes(content.replace(b"Juelich-II", IDENTIFIER.encode()))


def dataset(folder: Path, real: Path | None) -> Path:
    """A dataset whose headers tell secrets, whole files and broken ones."""
    root = folder / "nm099001"

    def place(subject: str, modality: str, extension: str) -> Path:
        directory = root / f"sub-{subject}" / modality
        directory.mkdir(parents=True)
        return directory / f"sub-{subject}_task-rest_{modality}{extension}"

    root.mkdir()
    (root / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.9.0"}')
    edf(place("01", "eeg", ".edf"))
    edf(place("02", "eeg", ".bdf"), b"\xffBIOSEMI")
    brainvision(place("03", "eeg", ".vhdr"))
    fif(place("04", "meg", ".fif"))
    eeglab(place("05", "eeg", ".set"))
    for subject, write, extension in [("11", edf, ".edf"), ("15", eeglab, ".set")]:
        write(place(subject, "eeg", extension))
        broken = next((root / f"sub-{subject}").rglob(f"*{extension}"))
        os.truncate(broken, broken.stat().st_size * 2 // 3)
    brainvision(lost := place("13", "eeg", ".vhdr"))
    lost.with_suffix(".eeg").unlink()
    lost.write_text(lost.read_text().replace("DataFile=", f"DataFile={LOCAL_PATH}"))
    brainvision(renamed := place("16", "eeg", ".vhdr"))
    renamed.with_suffix(".eeg").unlink()
    renamed.write_text(renamed.read_text().replace("DataFile=", f"DataFile={NAME}.eeg"))
    for number, shift in enumerate((8, 88, 228)):  # other fields come to lie where numbers should
        edf(shifted := place(f"2{number}", "eeg", ".edf"))
        content = shifted.read_bytes()
        text = f"{NAME} {TECHNICIAN} {IDENTIFIER} ".encode() * 9
        shifted.write_bytes(content[:shift] + text[: 256 - shift] + content[256:])
    fif(cut := place("14", "meg", ".fif"))
    os.truncate(cut, cut.stat().st_size // 2)
    if real is not None:
        ctf(place("06", "meg", ".ds"), real)
        kit(place("07", "meg", ".sqd"), real)
        egi(place("08", "eeg", ".mff"), real)
        bti(place("09", "meg", ""), real)
    return root


@pytest.mark.parametrize("with_real", [False, True])
def test_no_secret_of_a_header_gets_out(
    with_real: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    real = request.getfixturevalue("real_dataset") if with_real else None
    repository = dataset(tmp_path, real)
    commit_all(repository)
    planted = b"".join(p.read_bytes() for p in repository.rglob("sub-*/**/*") if p.is_file())
    assert all(secret.encode() in planted for secret in SECRETS if secret != DATES[2])
    report, log = tmp_path / "report.json", tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "converter", str(repository), "--dest", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--json", str(report), "--log-json", str(log), "--callback", str(log) + ".run"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    serving = tmp_path / "out" / "nm099001" / "zarr"
    index = json.loads((serving / "index.json").read_bytes())
    assert index["store_count"] == (9 if with_real else 5), index["failures"]
    assert index["failure_count"] == 8
    published: dict[str, str] = {
        "stdout": done.stdout,
        "stderr": done.stderr,
        "report": report.read_text(),
        "log": log.read_text(),
        "callback": Path(f"{log}.run").read_text(),
    }
    for file in serving.rglob("*"):
        if file.is_file():
            published[str(file)] = file.read_bytes().decode("latin-1")
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            published["parquet"] = f"{table.schema.metadata} {table.to_pydict()}"
    assert len(published) > 30
    for name, text in published.items():
        found = [secret for secret in SECRETS if secret.casefold() in text.casefold()]
        assert not found, (name, found)
