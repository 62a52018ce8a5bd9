#!/usr/bin/env python3
"""Random calls on one file through the C library's own functions, compared with a list of bytes: FILE SEED CALLS.

Every way in which programs come by a descriptor and use it: copies, children that share the position, other programs that
inherit it, mappings, sendfile, lengths set, closing and opening again with other flags."""

import mmap
import os
import random
import subprocess
import sys

path, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
model = bytearray()
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
at = 0  # position of the descriptor


def put(data, offset):
    if len(model) < offset:
        model.extend(bytes(offset - len(model)))
    model[offset:offset + len(data)] = data


def data():
    return dice.randbytes(dice.choice([1, 13, 512, 4096, 70_000, 300_000]))


def where():
    return dice.choice([0, len(model), dice.randrange(len(model) + 5000)])


def same(got, wanted, what):
    if got != wanted:
        sys.exit(f"{what}: {len(got)} bytes, {len(wanted)} expected, seed {seed}, call {call}, at {at}")


for call in range(calls):
    act = dice.randrange(17)
    if act < 2:
        d = data()
        assert os.write(fd, d) == len(d)
        put(d, at)
        at += len(d)
    elif act < 4:
        n = dice.choice([0, 1, 4096, 100_000, 1_000_000])
        got = os.read(fd, n)
        same(got, bytes(model[at:at + n]), "read")
        at += len(got)
    elif act == 4:
        d, o = data(), where()
        assert os.pwrite(fd, d, o) == len(d)
        put(d, o)
    elif act == 5:
        n, o = dice.choice([1, 5000, 200_000]), where()
        same(os.pread(fd, n, o), bytes(model[o:o + n]), "pread")
    elif act == 6:
        d, e, o = data(), data(), where()
        assert os.pwritev(fd, [d, b"", e], o) == len(d) + len(e)
        put(d + e, o)
        assert os.writev(fd, [e, d]) == len(d) + len(e)
        put(e + d, at)
        at += len(d) + len(e)
    elif act == 7:
        a, b, o = bytearray(3000), bytearray(50_000), where()
        n = os.preadv(fd, [a, b], o)
        same(bytes(a + b)[:n], bytes(model[o:o + 53_000]), "preadv")
        n = os.readv(fd, [a, b])
        same(bytes(a + b)[:n], bytes(model[at:at + 53_000]), "readv")
        at += n
    elif act == 8:
        o = where()
        how, by = dice.choice([(os.SEEK_SET, o), (os.SEEK_CUR, o - at), (os.SEEK_END, o - len(model))])
        at = os.lseek(fd, by, how)
        assert at == o, (how, by, at, o)
    elif act == 9:
        n = where()
        os.ftruncate(fd, n)
        del model[n:]
        put(b"", n)
        if dice.random() < 0.3:
            os.fsync(fd)
    elif act == 10:
        assert os.fstat(fd).st_size == os.stat(path).st_size == len(model), (os.fstat(fd).st_size, len(model))
    elif act == 11:  # copies share the position
        other = dice.choice([lambda: os.dup(fd), lambda: os.dup2(fd, 77 if fd != 77 else 78)])()
        d = data()
        assert os.write(other, d) == len(d)
        put(d, at)
        at += len(d)
        if dice.random() < 0.5:
            fd, other = other, fd
        os.close(other)
    elif act == 12:  # so do children
        d = data()
        child = os.fork()
        if child == 0:
            os._exit(0 if os.write(fd, d) == len(d) else 1)
        assert os.waitpid(child, 0)[1] == 0
        put(d, at)
        at += len(d)
        assert os.lseek(fd, 0, os.SEEK_CUR) == at
    elif act == 13:  # and other programs
        subprocess.run(["echo", f"call {call}"], stdout=fd, check=True)
        d = f"call {call}\n".encode()
        put(d, at)
        at += len(d)
    elif act == 14:
        assert os.lseek(fd, 0, os.SEEK_CUR) == at
        flags = dice.choice([os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDWR])
        other = os.open(path, flags)
        d = data()
        assert os.write(other, d) == len(d)
        put(d, len(model) if flags & os.O_APPEND else 0)
        os.close(fd)
        fd, at = other, os.lseek(other, 0, os.SEEK_CUR)
        if flags & os.O_APPEND:
            os.close(fd)
            fd, at = os.open(path, os.O_RDWR), 0
    elif act == 15 and model:
        copy = os.memfd_create("copy")
        n = os.sendfile(copy, fd, 0, len(model))
        same(os.pread(copy, n, 0), bytes(model[:n]), "sendfile")
        os.close(copy)
    elif act == 16 and model and dice.random() < 0.2:
        with mmap.mmap(fd, len(model)) as mapped:
            same(mapped[:], bytes(model), "mapping")
            o = dice.randrange(len(model))
            mapped[o] = model[o] ^ 255
            model[o] ^= 255
        same(os.pread(fd, 1, o), bytes(model[o:o + 1]), "read of what a mapping wrote")
        os.close(fd)
        fd, at = os.open(path, os.O_RDWR), 0
os.close(fd)
with open(path, "rb") as file:
    same(file.read(), bytes(model), "at the end")
