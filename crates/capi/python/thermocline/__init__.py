"""Files of a Thermocline namespace for Python, without a mount.

    import thermocline
    with thermocline.connect("/var/lib/thermo/control.sock") as session:
        print(session.state("/runs/42/field.dat"))       # where it is, and when it will be back
        with session.open("/runs/42/field.dat") as file:  # a binary file object; reading waits for tape
            header = file.read(512)

Needs libthermo.so.0, which is looked for where the loader looks; the environment variable LIBTHERMO may name it. Errors are
OSError with errno and the node's own sentence.
"""

import collections
import ctypes
import contextlib
import errno as _errno
import fcntl
import io
import math
import os
import time

__all__ = ["connect", "Session", "File", "Stat", "State", "Request", "Held"]

_lib = ctypes.CDLL(os.environ.get("LIBTHERMO", "libthermo.so.0"), use_errno=True)

RESIDENCY = ["", "resident", "dual", "offline", "staging"]
REQUEST_STATE = ["queued", "active", "done", "failed", "cancelled"]

Stat = collections.namedtuple("Stat", "ino size disk_bytes rdev mode nlink uid gid atime mtime ctime btime")
State = collections.namedtuple("State", "residency copies copies_required percent eta_s request")
Held = collections.namedtuple("Held", "exclusive start length pid")
Request = collections.namedtuple("Request", "id state percent queue_position bytes eta_s")


class _Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_int64), ("ns", ctypes.c_uint32)]


class _Stat(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_uint64) for name in ("ino", "size", "disk_bytes", "rdev")]
        + [(name, ctypes.c_uint32) for name in ("mode", "nlink", "uid", "gid")]
        + [(name, _Time) for name in ("atime", "mtime", "ctime", "btime")]
    )

    def value(self):
        times = [getattr(self, n) for n in ("atime", "mtime", "ctime", "btime")]
        rest = [getattr(self, n) for n in Stat._fields[:8]]
        return Stat(*rest, *(t.s + t.ns / 1e9 for t in times))


class _Dirent(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 256), ("stat", _Stat)]


class _State(ctypes.Structure):
    _fields_ = [
        ("residency", ctypes.c_int), ("copies", ctypes.c_uint32), ("copies_required", ctypes.c_uint32),
        ("percent", ctypes.c_int32), ("eta_s", ctypes.c_int64), ("request", ctypes.c_uint64),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64), ("state", ctypes.c_int), ("percent", ctypes.c_uint32),
        ("queue_position", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("eta_s", ctypes.c_int64),
    ]

    def value(self):
        eta = None if self.eta_s < 0 else self.eta_s
        return Request(self.id, REQUEST_STATE[self.state], self.percent, self.queue_position, self.bytes, eta)


class _Flock(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_short), ("whence", ctypes.c_short), ("start", ctypes.c_int64), ("length", ctypes.c_int64),
        ("pid", ctypes.c_int),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("patience_ms", ctypes.c_uint32), ("streams", ctypes.c_uint32), ("read_ahead", ctypes.c_int64),
        ("write_behind", ctypes.c_int64), ("no_descriptors", ctypes.c_int32),
    ]


_P, _S, _N, _O, _I = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int
_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64
_FUNCTIONS = {
    "error": (_S, []),
    "connect": (_P, [_S, _P]),
    "disconnect": (None, [_P]),
    "sync": (_I, [_P]),
    "open": (_P, [_P, _S, _I, _U32]),
    "close": (_I, [_P]),
    "pread": (_O, [_P, _P, _N, _O]),
    "pwrite": (_O, [_P, _P, _N, _O]),
    "lock": (_I, [_P, _I, _O, _O, _O]),
    "test_lock": (_I, [_P, _P]),
    "flock": (_I, [_P, _I, _O]),
    "flush": (_I, [_P]),
    "fsync": (_I, [_P]),
    "ftruncate": (_I, [_P, _O]),
    "is_direct": (_I, [_P]),
    "fstat": (_I, [_P, _P]),
    "stat": (_I, [_P, _S, _P]),
    "lstat": (_I, [_P, _S, _P]),
    "mkdir": (_I, [_P, _S, _U32]),
    "rmdir": (_I, [_P, _S]),
    "unlink": (_I, [_P, _S]),
    "chmod": (_I, [_P, _S, _U32]),
    "chown": (_I, [_P, _S, _U32, _U32]),
    "utimes": (_I, [_P, _S, _Time, _Time]),
    "truncate": (_I, [_P, _S, _O]),
    "rename": (_I, [_P, _S, _S, ctypes.c_uint]),
    "symlink": (_I, [_P, _S, _S]),
    "link": (_I, [_P, _S, _S]),
    "readlink": (_O, [_P, _S, _P, _N]),
    "getxattr": (_O, [_P, _S, _S, _P, _N]),
    "listxattr": (_O, [_P, _S, _P, _N]),
    "setxattr": (_I, [_P, _S, _S, _S, _N]),
    "removexattr": (_I, [_P, _S, _S]),
    "opendir": (_P, [_P, _S]),
    "readdir": (_I, [_P, _P]),
    "closedir": (None, [_P]),
    "state": (_I, [_P, _S, _P]),
    "stage": (_I, [_P, ctypes.POINTER(_S), _N, _I, _P]),
    "request": (_I, [_P, _U64, _P]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(_lib, "thermo_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


def _call(name, *arguments):
    """Calls a function of the library; what fails becomes OSError."""
    result = getattr(_lib, "thermo_" + name)(*arguments)
    if result is None or (isinstance(result, int) and result < 0):
        if _FUNCTIONS[name][0] is not None:
            code = ctypes.get_errno()
            raise OSError(code, _lib.thermo_error().decode("utf-8", "replace"))
    return result


def _time(seconds):
    ns = round(seconds * 1_000_000_000)
    return _Time(ns // 1_000_000_000, ns % 1_000_000_000)


def connect(socket, *, patience=0.0, streams=0, read_ahead=None, write_behind=None, descriptors=True):
    """A session with the node whose control socket this is; bytes of read-ahead and write-behind may be 0."""

    def size(given):
        return 0 if given is None else given or -1

    options = _Options(
        round(patience * 1000), streams, size(read_ahead), size(write_behind), 0 if descriptors else 1
    )
    return Session(_call("connect", os.fsencode(socket), ctypes.byref(options)))


class Session:
    """A way to a namespace. May be used by several threads."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._files = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """After all files of it are closed."""
        if self._pointer:
            pointer, self._pointer = self._pointer, None
            _call("disconnect", pointer)

    def _do(self, name, *arguments):
        if not self._pointer:
            raise ValueError("the session is closed")
        return _call(name, self._pointer, *arguments)

    def _fill(self, kind, name, *arguments):
        value = kind()
        self._do(name, *arguments, ctypes.byref(value))
        return value

    def open(self, path, mode="r", permissions=0o644, buffering=io.DEFAULT_BUFFER_SIZE):
        """A binary file object: "r", "w", "x", "a", with "+" for both ways (and "b", which changes nothing)."""
        raw = File(self, path, mode, permissions)
        if buffering == 0:
            return raw
        if raw.readable() and raw.writable():
            return io.BufferedRandom(raw, buffering)
        return (io.BufferedWriter if raw.writable() else io.BufferedReader)(raw, buffering)

    def sync(self):
        """Names and flushed content survive a power failure from now on."""
        self._do("sync")

    def stat(self, path, *, follow_symlinks=True):
        """Attributes; times in seconds."""
        name = "stat" if follow_symlinks else "lstat"
        return self._fill(_Stat, name, os.fsencode(path)).value()

    def exists(self, path):
        """Whether there is something at this path."""
        try:
            self.stat(path)
            return True
        except FileNotFoundError:
            return False

    def mkdir(self, path, mode=0o755):
        """Makes a directory."""
        self._do("mkdir", os.fsencode(path), mode)

    def makedirs(self, path, mode=0o755):
        """Makes a directory and those above it that are missing."""
        parts = os.fsencode(path).strip(b"/").split(b"/")
        for n in range(1, len(parts) + 1):
            try:
                self._do("mkdir", b"/" + b"/".join(parts[:n]), mode)
            except FileExistsError:
                pass

    def rmdir(self, path):
        """Removes an empty directory."""
        self._do("rmdir", os.fsencode(path))

    def unlink(self, path):
        """Removes a name that is not a directory."""
        self._do("unlink", os.fsencode(path))

    def rename(self, old, new, *, flags=0):
        """Renames; flags of renameat2(2)."""
        self._do("rename", os.fsencode(old), os.fsencode(new), flags)

    def chmod(self, path, mode):
        """Sets permission bits."""
        self._do("chmod", os.fsencode(path), mode)

    def chown(self, path, uid=-1, gid=-1):
        """Sets owner and group; -1 leaves one as it is."""
        self._do("chown", os.fsencode(path), uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)

    def utime(self, path, times):
        """Sets times of access and change (seconds)."""
        self._do("utimes", os.fsencode(path), _time(times[0]), _time(times[1]))

    def truncate(self, path, length):
        """Sets the length."""
        self._do("truncate", os.fsencode(path), length)

    def symlink(self, target, path):
        """Makes a symbolic link at path."""
        self._do("symlink", os.fsencode(target), os.fsencode(path))

    def link(self, existing, path):
        """Makes a hard link at path."""
        self._do("link", os.fsencode(existing), os.fsencode(path))

    def _bytes(self, name, *arguments):
        size = self._do(name, *arguments, None, 0)
        while True:
            buffer = ctypes.create_string_buffer(size + 64)
            try:
                given = self._do(name, *arguments, buffer, size + 64)
                return buffer.raw[:given]
            except OSError as error:
                longer = self._do(name, *arguments, None, 0)
                if error.errno != _errno.EINVAL or longer <= size + 64:
                    raise
                size = longer

    def readlink(self, path):
        """Where a symbolic link points to."""
        return os.fsdecode(self._bytes("readlink", os.fsencode(path)))

    def getxattr(self, path, name):
        """An extended attribute."""
        return self._bytes("getxattr", os.fsencode(path), os.fsencode(name))

    def listxattr(self, path):
        """Names of extended attributes."""
        names = self._bytes("listxattr", os.fsencode(path))
        return [os.fsdecode(name) for name in names.split(b"\0") if name]

    def setxattr(self, path, name, value):
        """Sets an extended attribute."""
        self._do("setxattr", os.fsencode(path), os.fsencode(name), bytes(value), len(value))

    def removexattr(self, path, name):
        """Removes an extended attribute."""
        self._do("removexattr", os.fsencode(path), os.fsencode(name))

    def scandir(self, path):
        """Names and attributes of a directory, one after the other."""
        listing = self._do("opendir", os.fsencode(path))
        try:
            entry = _Dirent()
            while _call("readdir", listing, ctypes.byref(entry)):
                yield os.fsdecode(entry.name), entry.stat.value()
        finally:
            _call("closedir", listing)

    def listdir(self, path):
        """Names of a directory."""
        return [name for name, _ in self.scandir(path)]

    def state(self, path):
        """Where a file is: residency ("" for what is not a file), copies, and how far and how long its recall is."""
        found = self._fill(_State, "state", os.fsencode(path))
        known = [None if value < 0 else value for value in (found.percent, found.eta_s)]
        residency = RESIDENCY[found.residency]
        return State(residency, found.copies, found.copies_required, *known, found.request or None)

    def stage(self, paths, *, recursive=False):
        """Brings files back from tape; all are planned as one request."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            paths = [paths]
        names = [os.fsencode(path) for path in paths]
        request = _Request()
        self._do("stage", (_S * len(names))(*names), len(names), int(recursive), ctypes.byref(request))
        return request.value()

    def request(self, number):
        """How far a request is."""
        return self._fill(_Request, "request", number).value()


class File(io.RawIOBase):
    """An open file with a position; `pread` and `pwrite` need none."""

    def __init__(self, session, path, mode, permissions):
        super().__init__()
        self._pointer = None
        kind, both = mode.replace("b", "").replace("+", ""), "+" in mode
        flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
        if kind not in flags:
            raise ValueError(f"unknown mode {mode!r}")
        self.name = path
        self.mode = mode
        self._way = (both or kind == "r", both or kind != "r")
        way = os.O_RDWR if both else os.O_RDONLY if kind == "r" else os.O_WRONLY
        self._session = session  # lives as long as its files
        self._pointer = session._do("open", os.fsencode(path), flags[kind] | way, permissions)
        self._at = self._size() if kind == "a" else 0

    def _do(self, name, *arguments):
        if not self._pointer:
            raise ValueError("the file is closed")
        return _call(name, self._pointer, *arguments)

    def _size(self):
        return self.stat().size

    def readable(self):
        return self._way[0]

    def writable(self):
        return self._way[1]

    def seekable(self):
        return True

    def is_direct(self):
        """Whether bytes go to the object on this host without passing through the node."""
        return bool(self._do("is_direct"))

    def stat(self):
        """Attributes now."""
        found = _Stat()
        self._do("fstat", ctypes.byref(found))
        return found.value()

    def pread(self, length, offset):
        """Bytes at an offset; fewer only at the end of the file."""
        buffer = ctypes.create_string_buffer(length)
        read = self._do("pread", buffer, length, offset)
        return buffer.raw[:read]

    def pwrite(self, data, offset):
        """Writes all of it at an offset."""
        data = bytes(data)
        return self._do("pwrite", data, len(data), offset)

    def readinto(self, buffer):
        view = memoryview(buffer).cast("B")
        room = (ctypes.c_char * len(view)).from_buffer(view)
        read = self._do("pread", room, len(view), self._at)
        self._at += read
        return read

    def write(self, data):
        view = memoryview(data).cast("B")
        written = self.pwrite(view, self._at)
        self._at = self._size() if "a" in self.mode else self._at + written
        return written

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        at = (self._size() if whence == os.SEEK_END else base[whence]) + offset
        if at < 0:
            raise OSError(_errno.EINVAL, "a place before the beginning of the file")
        self._at = at
        return at

    def tell(self):
        return self._at

    def truncate(self, size=None):
        size = self._at if size is None else size
        self._do("ftruncate", size)
        return size

    def flush(self):
        super().flush()
        if self._pointer and self.writable():
            self._do("flush")

    def fsync(self):
        """Content and name survive a power failure from now on (flush buffers of Python before)."""
        self._do("fsync")

    def _patiently(self, name, *arguments, wait):
        """Signal handlers run, and what they raise ends the wait; else it goes on, with a place further behind."""
        end = None if wait is None else time.monotonic() + wait
        while True:
            left = -1 if end is None else max(0, math.ceil((end - time.monotonic()) * 1000))
            try:
                return self._do(name, *arguments, left)
            except InterruptedError:
                pass

    def lock(self, start=0, length=0, *, exclusive=True, wait=None):
        """Locks bytes (length 0: to the end) against all programs; waits so many seconds (None: however long it takes), then BlockingIOError."""
        kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
        self._patiently("lock", kind, start, length, wait=wait)

    def unlock(self, start=0, length=0):
        """Flushes, and gives back what is locked of these bytes."""
        self._do("lock", fcntl.F_UNLCK, start, length, 0)

    @contextlib.contextmanager
    def locked(self, start=0, length=0, *, exclusive=True, wait=None):
        """with file.locked(...): as lock, given back at the end of the block."""
        self.lock(start, length, exclusive=exclusive, wait=wait)
        try:
            yield self
        finally:
            self.unlock(start, length)

    def test_lock(self, start=0, length=0, *, exclusive=True):
        """A lock of somebody else that is in the way (pid 0: on another host), or None."""
        found = _Flock(fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
        self._do("test_lock", ctypes.byref(found))
        if found.type == fcntl.F_UNLCK:
            return None
        return Held(found.type == fcntl.F_WRLCK, found.start, found.length, found.pid)

    def flock(self, *, exclusive=True, wait=None):
        """Locks the file, as flock(2): another matter than lock."""
        self._patiently("flock", fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, wait=wait)

    def funlock(self):
        """Flushes, and gives back the lock of flock."""
        self._do("flock", fcntl.LOCK_UN, 0)

    def close(self):
        if not self._pointer:
            super().close()
            return
        try:
            super().close()
        finally:
            pointer, self._pointer = self._pointer, None
            _call("close", pointer)
