#!/usr/bin/env python3
"""Makes an LTFS cartridge as another program would, from the standard (ISO/IEC 20919) and without code of the program
under test: ltfs_writer.py CARTRIDGE_DIRECTORY CONTENTS_DIRECTORY.

It writes two generations of the index, records of 64 KiB, directories within each other, a symbolic link, extended
attributes, an empty file, a file of several extents, one with a hole, and one on the index partition. What a reader must
get is put into CONTENTS_DIRECTORY, but for the last. The cartridge must have two partitions already.
"""

import base64
import os
import shutil
import sys
from xml.sax.saxutils import escape

BLOCK = 65536
UUID = "5e0ff5a3-4f25-4e4e-9a4e-8f0f6ad3c0aa"
TIME = "2019-03-04T05:06:07.000000008Z"


class Medium:
    """Objects of one partition."""

    def __init__(self, directory, number):
        self.directory, self.number, self.block = directory, number, 0

    def put(self, kind, data=b""):
        with open(os.path.join(self.directory, f"{self.number}_{self.block}_{kind}"), "wb") as out:
            out.write(data)
        self.block += 1

    def record(self, data):
        self.put("R", data)

    def mark(self):
        self.put("F")

    def stream(self, data):
        """Cuts data into records; gives the first block."""
        first = self.block
        for at in range(0, len(data), BLOCK):
            self.record(data[at : at + BLOCK])
        return first

    def end(self):
        self.put("E")


def label(partition):
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<ltfslabel version="2.2.0">
    <creator>Somebody LTFS 3.1 - Linux - mkltfs</creator>
    <formattime>{TIME}</formattime>
    <volumeuuid>{UUID}</volumeuuid>
    <location><partition>{partition}</partition></location>
    <partitions><index>a</index><data>b</data></partitions>
    <blocksize>{BLOCK}</blocksize>
    <compression>true</compression>
</ltfslabel>
""".encode()


def times():
    names = ("creationtime", "changetime", "modifytime", "accesstime", "backuptime")
    return "".join(f"<{name}>{TIME}</{name}>" for name in names)


def attribute(key, value):
    kind, text = ("text", escape(value)) if isinstance(value, str) else ("base64", base64.b64encode(value).decode())
    return f'<xattr><key>{key}</key><value type="{kind}">{text}</value></xattr>'


class Tree:
    """The XML of an index."""

    def __init__(self):
        self.uid = 1
        self.out = []

    def next_uid(self):
        self.uid += 1
        return self.uid

    def file(self, name, length, extents, attributes="", link=None, readonly="false"):
        body = f"<symlink>{escape(link)}</symlink>" if link else ""
        for partition, block, offset, count, at in extents:
            body += (
                f"<extent><fileoffset>{at}</fileoffset><partition>{partition}</partition><startblock>{block}</startblock>"
                f"<byteoffset>{offset}</byteoffset><bytecount>{count}</bytecount></extent>"
            )
        if extents:
            body = f"<extentinfo>{body}</extentinfo>"
        if attributes:
            attributes = f"<extendedattributes>{attributes}</extendedattributes>"
        self.out.append(
            f"<file><name>{escape(name)}</name><length>{length}</length><readonly>{readonly}</readonly>{times()}"
            f"<fileuid>{self.next_uid()}</fileuid>{attributes}{body}</file>"
        )

    def enter(self, name):
        self.out.append(
            f"<directory><name>{escape(name)}</name><readonly>false</readonly>{times()}"
            f"<fileuid>{self.next_uid()}</fileuid><contents>"
        )

    def leave(self):
        self.out.append("</contents></directory>")

    def index(self, generation, partition, block, previous):
        before = ""
        if previous:
            before = (
                "<previousgenerationlocation><partition>b</partition>"
                f"<startblock>{previous}</startblock></previousgenerationlocation>"
            )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ltfsindex version="2.2.0">'
            f"<creator>Somebody LTFS 3.1</creator><volumeuuid>{UUID}</volumeuuid>"
            f"<generationnumber>{generation}</generationnumber><updatetime>{TIME}</updatetime>"
            f"<location><partition>{partition}</partition><startblock>{block}</startblock></location>{before}"
            "<allowpolicyupdate>true</allowpolicyupdate>"
            f"<highestfileuid>{self.uid}</highestfileuid>"
            f"<directory><name>Their volume</name><readonly>false</readonly>{times()}<fileuid>1</fileuid>"
            f"<contents>{''.join(self.out)}</contents></directory></ltfsindex>"
        ).encode()


def noise(length, seed):
    return bytes((at * 7919 + seed * 31 + (at >> 8)) & 255 for at in range(length))


def main():
    cartridge, contents = sys.argv[1:]
    for name in os.listdir(cartridge):
        os.remove(os.path.join(cartridge, name))
    shutil.rmtree(contents, ignore_errors=True)
    os.makedirs(os.path.join(contents, "first dir", "below"))
    os.makedirs(os.path.join(contents, "empty dir"))

    def expect(path, data):
        with open(os.path.join(contents, path), "wb") as out:
            out.write(data)

    index, data = Medium(cartridge, 0), Medium(cartridge, 1)
    serial = b"".join([b"VOL1", b" " * 6, b"L", b" " * 13, b"LTFS", b" " * 51, b"4"])
    for medium, letter in ((index, "a"), (data, "b")):
        medium.record(serial)
        medium.mark()
        medium.record(label(letter))
        medium.mark()
        medium.mark()
    first = data.block
    data.stream(Tree().index(1, "b", first, None))
    data.mark()

    large, holed = noise(200_000, 1), noise(3000, 2)
    one = data.stream(large[:100_000])
    two = data.stream(large[100_000:])
    shared = data.stream(b"small" + holed + b"tail")
    on_index = b"on the index partition"

    tree = Tree()
    tree.enter("first dir")
    tree.enter("below")
    tree.file("large", 200_000, [("b", one, 0, 100_000, 0), ("b", two, 0, 100_000, 100_000)])
    tree.file("holes", 1_000_000, [("b", shared, 5, 3000, 500_000)])
    tree.leave()
    tree.file("small <&>", 5, [("b", shared, 0, 5, 0)], attribute("colour", "blue") + attribute("raw", b"\0\1\xff"))
    tree.file("link", 0, [], link="below/large")
    tree.leave()
    tree.enter("empty dir")
    tree.leave()
    tree.file("empty", 0, [], readonly="true")
    tree.file("misplaced", len(on_index), [("a", 7, 0, len(on_index), 0)])
    expect("first dir/below/large", large)
    expect("first dir/below/holes", b"\0" * 500_000 + holed + b"\0" * (500_000 - 3000))
    expect("first dir/small <&>", b"small")
    expect("empty", b"")
    os.symlink("below/large", os.path.join(contents, "first dir", "link"))

    data.mark()
    second = data.block
    data.stream(tree.index(2, "b", second, first))
    data.mark()
    data.end()
    index.record(on_index)
    # The data of the index partition lies before its index.
    index.mark()
    here = index.block
    index.stream(tree.index(2, "a", here, second))
    index.mark()
    index.end()


if __name__ == "__main__":
    main()
