"""Archives of Inspect: members that are compressed with Zstandard, and a header that is missing."""

from __future__ import annotations

import sys
import zipfile

import pytest

import tts
from tests.addons.logs.test_logs import write_log
from tts.errors import ConfigError


def test_an_archive_without_a_header_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("samples/a_epoch_1.json", "{}")
    with pytest.raises(ConfigError, match=r"log\.eval:.*neither header\.json.*_journal/start\.json"):
        tts.Pool.from_inspect(tmp_path / "log.eval")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="zipfile reads Zstandard itself")
@pytest.mark.parametrize("broken", [False, True])
def test_members_that_are_compressed_with_zstandard_are_read(tmp_path, monkeypatch, broken):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "log.eval"
    compress = pyarrow.Codec("zstd").compress
    with monkeypatch.context() as patched:
        kept = zipfile.ZipFile.writestr
        told = {"samples/2_epoch_1.json": b"no Zstandard"} if broken else {}
        patched.setattr(
            zipfile.ZipFile,
            "writestr",
            lambda self, name, body: kept(self, name, told.get(name) or compress(body.encode(), asbytes=True)),
        )
        write_log(path, compression=zipfile.ZIP_STORED)
    path.write_bytes(_marked(path.read_bytes(), method=93))
    if broken:
        with pytest.raises(ConfigError, match=r"log\.eval: it.*damaged:.*decompressed"):
            tts.Pool.from_inspect(path)
    else:
        assert tts.Pool.from_inspect(path).report.samples == 4
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tts.MissingDependency, match=r"reading an \.eval log"):
        tts.Pool.from_inspect(path)


def _marked(archive: bytes, *, method: int) -> bytes:
    """Return a zip archive whose headers name another compression method for all members."""
    marked = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = marked.find(signature)
        while at >= 0:
            marked[at + offset : at + offset + 2] = method.to_bytes(2, "little")
            at = marked.find(signature, at + 4)
    return bytes(marked)
