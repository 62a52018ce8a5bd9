"""The Python module against a running node: THERMO_SOCKET names its socket; /data there is a file that is only on tape."""

import errno
import os
import signal
import threading
import unittest

import thermocline


class Files(unittest.TestCase):
    def setUp(self):
        self.session = thermocline.connect(os.environ["THERMO_SOCKET"])
        self.addCleanup(self.session.close)
        self.dir = "/" + self.id()
        self.session.makedirs(self.dir + "/a/b")

    def test_a_file_object(self):
        s, path = self.session, self.dir + "/file"
        with s.open(path, "w") as file:
            file.write(b"first line\n")
            file.write(b"second line\n")
        with s.open(path) as file:
            self.assertEqual(file.readlines(), [b"first line\n", b"second line\n"])
            file.seek(-5, os.SEEK_END)
            self.assertEqual(file.read(), b"line\n")
        with s.open(path, "r+") as file:
            file.seek(6)
            file.write(b"LINE")
            file.truncate(11)
        with s.open(path, "a", buffering=0) as file:
            file.write(b"end")
            self.assertEqual(file.tell(), 14)
            file.fsync()
        with s.open(path, buffering=0) as file:
            self.assertEqual(file.pread(100, 0), b"first LINE\nend")
            with self.assertRaises(OSError):
                file.pwrite(b"x", 0)
        with self.assertRaises(FileExistsError):
            s.open(path, "x")
        with self.assertRaises(ValueError):
            file.pread(1, 0)

    def test_both_ways_give_the_same(self):
        data = bytes(range(256)) * 20000
        for descriptors in (True, False):
            with thermocline.connect(os.environ["THERMO_SOCKET"], descriptors=descriptors) as s:
                path = f"{self.dir}/{descriptors}"
                with s.open(path, "w", buffering=0) as file:
                    self.assertEqual(file.is_direct(), descriptors)
                    for at in range(0, len(data), 47008):
                        file.write(data[at : at + 47008])
                with s.open(path) as file:
                    self.assertEqual(file.read(), data)

    def test_names(self):
        s = self.session
        s.symlink("a/b", self.dir + "/link")
        self.assertEqual(s.readlink(self.dir + "/link"), "a/b")
        s.open(self.dir + "/link/f", "w").close()
        s.link(self.dir + "/a/b/f", self.dir + "/g")
        s.chmod(self.dir + "/g", 0o600)
        s.utime(self.dir + "/g", (1.5, 1_000_000_000.25))
        stat = s.stat(self.dir + "/a/b/f")
        self.assertEqual((stat.nlink, stat.mode, stat.atime, stat.mtime), (2, 0o100600, 1.5, 1_000_000_000.25))
        s.setxattr(self.dir + "/g", "user.k", b"v" * 300)
        self.assertEqual(s.getxattr(self.dir + "/g", "user.k"), b"v" * 300)
        self.assertIn("user.k", s.listxattr(self.dir + "/g"))
        s.removexattr(self.dir + "/g", "user.k")
        s.rename(self.dir + "/g", self.dir + "/h")
        self.assertEqual(sorted(s.listdir(self.dir)), ["a", "h", "link"])
        with self.assertRaises(OSError) as refused:
            s.rmdir(self.dir + "/a")
        self.assertIn(self.dir + "/a", str(refused.exception))
        with self.assertRaises(FileNotFoundError):
            s.unlink(self.dir + "/none")

    def test_tape(self):
        s = self.session
        self.assertEqual(s.state("/data").residency, "offline")
        request = s.stage("/data")
        with s.open("/data") as file:  # waits
            size = len(file.read())
        self.assertEqual(size, s.stat("/data").size)
        while request.state in ("queued", "active"):
            request = s.request(request.id)
        self.assertEqual((request.state, request.percent), ("done", 100))

    def test_locks(self):
        s, path = self.session, self.dir + "/locked"
        s.open(path, "w").close()
        with s.open(path, "r+", buffering=0) as one, s.open(path, "r+", buffering=0) as other:
            with one.locked(10, 5) as file:
                self.assertIs(file, one)
                self.assertEqual(other.test_lock(), (True, 10, 5, os.getpid()))
                self.assertIsNone(other.test_lock(15))
                other.lock(15, wait=0)
                with self.assertRaises(BlockingIOError):
                    other.lock(14, 1, exclusive=False, wait=0.05)
                self.assertEqual(one.test_lock(20, exclusive=False), (True, 15, 0, os.getpid()))
            other.lock(14, 1, exclusive=False, wait=0)
            one.lock(14, 1, exclusive=False, wait=0)
            self.assertEqual(one.test_lock(14, 1), (False, 14, 1, os.getpid()))
            other.unlock()
            one.flock()
            with self.assertRaises(BlockingIOError):
                other.flock(exclusive=False, wait=0)
            one.funlock()
            other.flock(exclusive=False, wait=0)
            with self.assertRaises(RuntimeError), one.locked():
                raise RuntimeError
            self.assertIsNone(other.test_lock())
            with self.assertRaises(OSError) as refused:
                one.lock(-1, 1)
            self.assertEqual(refused.exception.errno, errno.EINVAL)

    def test_a_signal_handler_runs_while_a_lock_is_waited_for(self):
        path = self.dir + "/locked"
        s = self.session
        with s.open(path, "x+", buffering=0) as one, s.open(path, "r+", buffering=0) as other:
            one.lock()
            # What the handler does not raise ends no wait: it gives the lock back, and the wait goes on to get it.
            before = signal.signal(signal.SIGALRM, lambda *_: one.unlock())
            self.addCleanup(signal.signal, signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            other.lock(wait=60)
            self.assertEqual(one.test_lock(), (True, 0, 0, os.getpid()))

    def test_threads(self):
        with self.session.open(self.dir + "/shared", "w+", buffering=0) as file:
            def work(n):
                for at in range(n, 400, 8):
                    file.pwrite(bytes([n]) * 1000, at * 1000)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(file.pread(400_001, 0), b"".join(bytes([n % 8]) * 1000 for n in range(400)))


if __name__ == "__main__":
    unittest.main()
