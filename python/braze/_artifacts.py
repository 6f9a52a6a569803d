"""Compiled graphs and machine code of one process for another: what the cache on disk holds of them, as bytes."""

import io
import os
import re
import tempfile
import zipfile
import zlib

from . import _C


def save_cache_artifacts() -> bytes | None:
    """What the cache on disk holds of what this process compiled or found there, for load_cache_artifacts() on another machine. None where
    that is nothing: nothing was compiled, or the cache is off."""
    folder, paths = _C.cache_files()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        for path in paths:
            try:
                z.write(path, os.path.basename(path))
            except (FileNotFoundError, ValueError):  # trimmed meanwhile, or of a time that zip cannot say
                pass
        kept = len(z.namelist())
    return out.getvalue() if kept else None


def load_cache_artifacts(artifacts: bytes) -> int:
    """Puts what save_cache_artifacts() gave into the cache on disk (BRAZE_CACHE_DIR) and returns the number of files; the first calls of
    programs that are in it then compile nothing. Code for another build of Braze or another processor is never used. It is machine
    code: load what you trust.

    ValueError for other bytes, OSError where there is no cache that can be written."""
    if not isinstance(artifacts, (bytes, bytearray, memoryview)):
        raise TypeError(f"braze.load_cache_artifacts takes the bytes of save_cache_artifacts(), not {artifacts!r}")
    folder, _ = _C.cache_files()
    if not folder:
        raise OSError("no cache on disk can be written: BRAZE_CACHE_DIR is to name a folder of your own")
    try:
        with zipfile.ZipFile(io.BytesIO(artifacts)) as z:
            files = [(name, z.read(name)) for name in z.namelist()]
    # Other bytes, damaged, cut off, encrypted or packed otherwise.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        files = [("", b"")]
    if any(not re.fullmatch(r"\w[\w.-]*\.o", name) or data[:8] != b"BRAZEOBJ" for name, data in files):
        raise ValueError("braze.load_cache_artifacts takes the bytes of save_cache_artifacts(); these are others")
    for name, data in files:
        number, part = tempfile.mkstemp(dir=folder, prefix=".")  # for the owner alone
        with os.fdopen(number, "wb") as f:
            f.write(data)
        os.replace(part, os.path.join(folder, name))
    return len(files)
