#!/usr/bin/env python3
"""Tests of ltfs_reader.py with a cartridge made by hand: a sound one passes, each fault is named."""

import contextlib
import hashlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ltfs_reader  # noqa: E402

UUID = "30a91a08-daae-48d1-ae75-69804e61d2ea"
NOW = "2026-01-28T19:39:57.245954278Z"
BLOCK = 4096
SMALL, BIG = b"small file", bytes(range(256)) * 40


def label(letter, uuid=UUID):
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ltfslabel version="2.4.0"><creator>by hand</creator>'
        f"<formattime>{NOW}</formattime><volumeuuid>{uuid}</volumeuuid>"
        f"<location><partition>{letter}</partition></location>"
        f"<partitions><index>a</index><data>b</data></partitions>"
        f"<blocksize>{BLOCK}</blocksize><compression>true</compression></ltfslabel>"
    ).encode()


def entry(name, uid, percent=False):
    flag = ' percentencoded="true"' if percent else ""
    times = "".join(f"<{t}>{NOW}</{t}>" for t in ltfs_reader.TIMES)
    return f"<name{flag}>{name}</name><readonly>false</readonly>{times}<fileuid>{uid}</fileuid>"


def extent(file_offset, block, offset, count):
    return (
        f"<extent><fileoffset>{file_offset}</fileoffset><partition>b</partition><startblock>{block}</startblock>"
        f"<byteoffset>{offset}</byteoffset><bytecount>{count}</bytecount></extent>"
    )


def file(name, uid, length, extents="", digest=None, percent=False):
    hashed = ""
    if digest:
        hashed = f"<extendedattributes><xattr><key>ltfs.hash.sha256sum</key><value>{digest}</value></xattr></extendedattributes>"
    info = f"<extentinfo>{extents}</extentinfo>" if extents else ""
    return f"<file>{entry(name, uid, percent)}<length>{length}</length>{hashed}{info}</file>"


def index(generation, place, previous, files, uuid=UUID):
    def where(tag, at):
        return f"<{tag}><partition>{at[0]}</partition><startblock>{at[1]}</startblock></{tag}>" if at else ""

    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ltfsindex version="2.4.0"><creator>by hand</creator>'
        f"<volumeuuid>{uuid}</volumeuuid><generationnumber>{generation}</generationnumber>"
        f"<updatetime>{NOW}</updatetime>{where('location', place)}{where('previousgenerationlocation', previous)}"
        f"<allowpolicyupdate>true</allowpolicyupdate><highestfileuid>9</highestfileuid>"
        f"<directory>{entry('', 1)}<contents>{files}</contents></directory></ltfsindex>"
    ).encode()


class Cartridge:
    """Objects of both partitions as lists; None is a filemark."""

    def __init__(self):
        serial = b"VOL1TEST01L" + b" " * 13 + b"LTFS" + b" " * 51 + b"4"
        self.sides = [[serial, None, label(letter), None, None] for letter in "ab"]
        self.memory = {}

    def append(self, side, data):
        self.sides[side] += [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]

    def put_index(self, side, data):
        self.append(side, data)
        self.sides[side].append(None)

    def coherency(self, side, generation, block, vcr=7):
        value = struct.pack(">BQQQH", 8, vcr, generation, block, 43) + b"LTFS\0" + UUID.encode() + b"\0\1"
        self.memory[side, 0x80C] = value

    def store(self, directory):
        for side, objects in enumerate(self.sides):
            for block, data in enumerate(objects):
                with open(os.path.join(directory, f"{side}_{block}_{'F' if data is None else 'R'}"), "wb") as out:
                    out.write(data or b"")
            open(os.path.join(directory, f"{side}_{len(objects)}_E"), "wb").close()
        for (side, identifier), value in self.memory.items():
            with open(os.path.join(directory, f"attr_{side}_{identifier:x}"), "wb") as out:
                out.write(struct.pack(">HBH", identifier, 0, len(value)) + value)


def default_files():
    sparse = extent(0, 7, 0, len(SMALL)) + extent(20, 7, 0, len(SMALL))
    return (
        file("small", 2, len(SMALL), extent(0, 7, 0, len(SMALL)), hashlib.sha256(SMALL).hexdigest())
        + file("big", 3, len(BIG), extent(0, 7, len(SMALL), len(BIG)), hashlib.sha256(BIG).hexdigest())
        + file("empty%3A", 4, 0, percent=True)
        + file("sparse", 5, 40, sparse)
        + f"<directory>{entry('d', 6)}<contents>{file('small', 7, 0)}</contents></directory>"
    )


def sound(files=None):
    cartridge = Cartridge()
    cartridge.put_index(1, index(1, ("b", 5), None, ""))
    assert len(cartridge.sides[1]) == 7
    cartridge.append(1, SMALL + BIG)
    cartridge.sides[1].append(None)
    start = len(cartridge.sides[1])
    files = default_files() if files is None else files
    cartridge.put_index(1, index(2, ("b", start), ("b", 5), files))
    cartridge.put_index(0, index(2, ("a", 5), ("b", start), files))
    cartridge.coherency(0, 2, 5)
    cartridge.coherency(1, 2, start)
    cartridge.memory[0, 9] = (7).to_bytes(4, "big")
    return cartridge


class ReaderTest(unittest.TestCase):
    def judge(self, cartridge, *options):
        out, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as directory:
            cartridge.store(directory)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                code = ltfs_reader.main([directory, *options])
        return code, [json.loads(line) for line in out.getvalue().splitlines()], errors.getvalue()

    def refuses(self, cartridge, expected, *options):
        code, _, errors = self.judge(cartridge, *options)
        self.assertEqual(code, 1)
        self.assertIn(expected, errors)

    def test_sound(self):
        code, lines, errors = self.judge(sound(), "--compare-sha", "--require-memory", "--generation=2", "--files=5")
        self.assertEqual((code, errors), (0, ""))
        found = {line["tape_path"]: line["sha256"] for line in lines}
        wanted = {
            "/small": SMALL,
            "/big": BIG,
            "/empty:": b"",
            "/sparse": SMALL + bytes(10) + SMALL + bytes(10),
            "/d/small": b"",
        }
        self.assertEqual(found, {path: hashlib.sha256(data).hexdigest() for path, data in wanted.items()})

    def test_extract(self):
        with tempfile.TemporaryDirectory() as target:
            code, _, _ = self.judge(sound(), "--extract", target)
            with open(os.path.join(target, "3"), "rb") as big:
                self.assertEqual((code, big.read()), (0, BIG))

    def test_labels(self):
        cartridge = sound()
        cartridge.sides[1][2] = label("b", UUID.replace("3", "4"))
        self.refuses(cartridge, "disagree")
        cartridge = sound()
        cartridge.sides[0][0] = cartridge.sides[0][0].replace(b"LTFS", b"XXXX")
        self.refuses(cartridge, "not an LTFS VOL1 label")
        cartridge = sound()
        cartridge.sides[1][2] = label("a")
        self.refuses(cartridge, "contrary to the labels")

    def test_inconsistent(self):
        cartridge = sound()
        cartridge.sides[1].append(b"more")
        self.refuses(cartridge, "1 blocks behind the newest index")
        cartridge = sound()
        cartridge.sides[0].pop()
        self.refuses(cartridge, "does not end with an index")

    def test_index(self):
        cartridge = sound()
        cartridge.sides[0] = cartridge.sides[0][:5]
        cartridge.put_index(0, index(2, ("a", 6), ("b", 5), ""))
        self.refuses(cartridge, "it says that it lies at")
        cartridge.sides[0] = cartridge.sides[0][:5]
        cartridge.put_index(0, index(2, ("a", 5), ("b", 5), "", UUID.replace("3", "4")))
        self.refuses(cartridge, "is not that of the labels")
        self.refuses(sound(), "expected 3", "--generation=3")

    def test_coherency(self):
        cartridge = sound()
        cartridge.coherency(1, 1, 5)
        self.refuses(cartridge, "the newest index is")
        cartridge = sound()
        cartridge.coherency(0, 2, 5, vcr=6)
        self.refuses(cartridge, "change reference 6")
        cartridge = sound()
        cartridge.memory.clear()
        self.refuses(cartridge, "no coherency", "--require-memory")

    def test_files(self):
        small = extent(0, 7, 0, len(SMALL))
        faults = {
            "used twice": file("a", 2, 0) + file("a", 3, 0),
            "uid 2 is used twice": file("a", 2, 0) + file("b", 2, 0),
            "out of range": file("a", 10, 0),
            "behind the end of data": file("a", 2, 5, extent(0, 900, 0, 5)),
            "is a filemark": file("a", 2, 5, extent(0, 6, 0, 5)),
            "pass the length": file("a", 2, 5, small),
            "are wanted": file("a", 2, 100, extent(0, 9, 4000, 100)),
            "its attribute says": file("a", 2, len(SMALL), small, "0" * 64),
            "should be percent-encoded": file("a:b", 2, 0),
            "not NFC": file("e\u0301", 2, 0),
        }
        for expected, files in faults.items():
            with self.subTest(expected):
                self.refuses(sound(files), expected, "--compare-sha")

    def test_gap(self):
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(io.StringIO()) as errors:
            sound().store(directory)
            os.remove(os.path.join(directory, "1_7_R"))
            self.assertEqual(ltfs_reader.main([directory]), 1)
            self.assertIn("gaps", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
