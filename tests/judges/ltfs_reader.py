#!/usr/bin/env python3
"""Judge of LTFS cartridges: reads a cartridge directory and shares no code with the program under test.

A cartridge is a flat directory: <P>_<B>_R is a record, <P>_<B>_F a filemark, <P>_<B>_E the end of data (P partition,
B object number from 0 without gaps), attr_<P>_<hexid> a cartridge memory attribute with its 5-byte header.

Checks labels, indexes, back pointers, coherency, names, uids and extents, reads every file, and prints one JSON line
per file. Exit codes: 0 sound, 1 something is wrong (each problem is one line on stderr), 2 wrong usage.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import struct
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree

OBJECT = re.compile(r"^([01])_(0|[1-9][0-9]*)_([RFE])$")
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$")
UUID = re.compile(r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
TIMES = ("creationtime", "changetime", "modifytime", "accesstime", "backuptime")


class Unsound(Exception):
    """The cartridge is not a sound LTFS volume."""


class Partition:
    """Objects of one partition: a list of 'R' and 'F' in order, without the end of data."""

    def __init__(self, directory, number, objects):
        self.directory, self.number = directory, number
        blocks = sorted(objects)
        if [block for block, _ in blocks] != list(range(len(blocks))):
            raise Unsound(f"partition {number}: object numbers have gaps or doubles")
        kinds = [kind for _, kind in blocks]
        if kinds.count("E") != 1 or kinds[-1] != "E":
            raise Unsound(f"partition {number}: there must be one end of data, behind everything else")
        self.kinds = kinds[:-1]
        for block, kind in enumerate(self.kinds):
            if kind == "F" and os.path.getsize(self.path(block)):
                raise Unsound(f"partition {number}: filemark {block} is not empty")

    def path(self, block):
        return os.path.join(self.directory, f"{self.number}_{block}_{self.kinds[block]}")

    def is_filemark(self, block):
        return 0 <= block < len(self.kinds) and self.kinds[block] == "F"

    def record(self, block):
        if not 0 <= block < len(self.kinds):
            raise Unsound(f"partition {self.number}: block {block} is behind the end of data ({len(self.kinds)})")
        if self.kinds[block] != "R":
            raise Unsound(f"partition {self.number}: block {block} is a filemark, not a record")
        with open(self.path(block), "rb") as record:
            return record.read()

    def file_at(self, block):
        """Records from block to the next filemark, which must be there; and the block of that filemark."""
        parts = []
        while block < len(self.kinds) and self.kinds[block] == "R":
            parts.append(self.record(block))
            block += 1
        if not parts or not self.is_filemark(block):
            raise Unsound(f"partition {self.number}: no records ended by a filemark at block {block}")
        return parts, block


def scan(directory):
    objects = {0: [], 1: []}
    for name in os.listdir(directory):
        match = OBJECT.match(name)
        if match:
            objects[int(match[1])].append((int(match[2]), match[3]))
    return [Partition(directory, number, objects[number]) for number in (0, 1)]


def child(element, name, where):
    found = element.findall(name)
    if len(found) != 1:
        raise Unsound(f"{where}: {len(found)} elements <{name}> instead of one")
    return found[0]


def text(element, name, where):
    return child(element, name, where).text or ""


def number(element, name, where):
    value = text(element, name, where)
    if not re.fullmatch(r"\d+", value) or int(value) >= 1 << 64:
        raise Unsound(f"{where}: <{name}> is {value!r}, not a number")
    return int(value)


def boolean(element, name, where):
    value = text(element, name, where)
    if value not in ("true", "false"):
        raise Unsound(f"{where}: <{name}> is {value!r}, not true or false")
    return value == "true"


def xml(data, root, where):
    if not re.match(rb"<\?xml[^>]*encoding=[\"']UTF-8[\"']", data):
        raise Unsound(f"{where}: no XML declaration with encoding UTF-8")
    try:
        element = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise Unsound(f"{where}: {error}") from error
    if element.tag != root:
        raise Unsound(f"{where}: <{element.tag}> instead of <{root}>")
    version = element.get("version", "")
    if not re.fullmatch(r"[12]\.\d{1,2}\.\d{1,2}", version):
        raise Unsound(f"{where}: version {version!r} is not within 1.0.0 to 2.99.99")
    return element


def read_label(partition):
    where = f"label of partition {partition.number}"
    vol1 = partition.record(0)
    if len(vol1) != 80 or vol1[:4] != b"VOL1" or vol1[24:28] != b"LTFS" or vol1[79:] != b"4":
        raise Unsound(f"{where}: record 0 is not an LTFS VOL1 label: {vol1[:80]!r}")
    if vol1[10:11] != b"L" or vol1[11:24].strip() or vol1[28:79].strip():
        raise Unsound(f"{where}: reserved bytes of VOL1 are in use: {vol1!r}")
    kinds = partition.kinds
    if kinds[1:5] != ["F", "R", "F", "F"]:
        raise Unsound(f"{where}: the objects behind VOL1 are {kinds[1:5]}, not filemark, record, filemark, filemark")
    label = xml(partition.record(2), "ltfslabel", where)
    block_size = number(label, "blocksize", where)
    if block_size < 4096:
        raise Unsound(f"{where}: block size {block_size} is below 4096")
    boolean(label, "compression", where)
    letters = child(label, "partitions", where)
    shared = {
        "barcode": vol1[4:10].decode("ascii"),
        "volumeuuid": text(label, "volumeuuid", where),
        "formattime": text(label, "formattime", where),
        "blocksize": block_size,
        "compression": text(label, "compression", where),
        "index": text(letters, "index", where),
        "data": text(letters, "data", where),
        "version": label.get("version"),
    }
    text(label, "creator", where)
    if not UUID.match(shared["volumeuuid"]) or not TIME.match(shared["formattime"]):
        raise Unsound(f"{where}: uuid or format time malformed: {shared}")
    return shared, text(child(label, "location", where), "partition", where)


def read_labels(partitions):
    (first, first_letter), (second, second_letter) = (read_label(p) for p in partitions)
    if first != second:
        raise Unsound(f"the labels of the partitions disagree: {first} and {second}")
    if (first_letter, second_letter) != (first["index"], first["data"]):
        raise Unsound(f"partition 0 is {first_letter!r} and partition 1 is {second_letter!r}, contrary to the labels")
    return first


def location(element, name, where):
    place = child(element, name, where)
    return text(place, "partition", where), number(place, "startblock", where)


def parse_index(data, label, where):
    root = xml(data, "ltfsindex", where)
    if not TIME.match(text(root, "updatetime", where)):
        raise Unsound(f"{where}: malformed update time")
    text(root, "creator", where)
    boolean(root, "allowpolicyupdate", where)
    if len(root.findtext("comment", "").encode()) > 65536:
        raise Unsound(f"{where}: comment above 64 KiB")
    index = {
        "generation": number(root, "generationnumber", where),
        "location": location(root, "location", where),
        "highest": number(root, "highestfileuid", where),
        "previous": None,
        "root": child(root, "directory", where),
    }
    if root.find("previousgenerationlocation") is not None:
        index["previous"] = location(root, "previousgenerationlocation", where)
    uuid = text(root, "volumeuuid", where)
    if uuid != label["volumeuuid"]:
        raise Unsound(f"{where}: uuid {uuid} is not that of the labels, {label['volumeuuid']}")
    return index


def index_at(partition, letter, block, label):
    """The index that starts at a block: filemark before it, full records but the last, filemark behind it."""
    where = f"index at ({letter}, {block})"
    if not partition.is_filemark(block - 1):
        raise Unsound(f"{where}: no filemark before it")
    records, end = partition.file_at(block)
    size = label["blocksize"]
    if any(len(r) != size for r in records[:-1]) or not 0 < len(records[-1]) <= size:
        raise Unsound(f"{where}: its records are not cut at the block size {size}")
    index = parse_index(b"".join(records), label, where)
    if index["location"] != (letter, block):
        raise Unsound(f"{where}: it says that it lies at {index['location']}")
    index["end"] = end
    return index


def last_index_start(partition):
    """First block of the file that ends the partition; None if it does not end with a filemark."""
    end = len(partition.kinds) - 1
    if end < 5 or partition.kinds[end] != "F":
        return None
    block = end
    while block > 0 and partition.kinds[block - 1] == "R":
        block -= 1
    return block if block < end else None


def newest_index(partitions, label, problems):
    """The newest index; a partition that does not end with an index makes the volume inconsistent."""
    starts = [last_index_start(partition) for partition in partitions]
    letters = (label["index"], label["data"])
    if starts[0] is None:
        raise Unsound("the index partition does not end with an index")
    on_index = index_at(partitions[0], letters[0], starts[0], label)
    pointer = on_index["previous"]
    if pointer is None or pointer[0] != letters[1]:
        raise Unsound(f"the index-partition index points back to {pointer}, not to the data partition")
    on_data = index_at(partitions[1], letters[1], pointer[1], label)
    if on_data["generation"] > on_index["generation"]:
        problems.append("the index partition does not hold the newest generation")
    if starts[1] != pointer[1]:
        extra = len(partitions[1].kinds) - on_data["end"] - 1
        problems.append(
            f"inconsistent: {extra} blocks behind the newest index of the data partition at block {pointer[1]}"
        )
    return on_index, on_data


def check_chain(partition, label, newest, problems):
    """Follows the back pointers on the data partition down to the first index, generation 1 at block 5."""
    seen, index = 1, newest
    while index["previous"] is not None:
        letter, block = index["previous"]
        here = index["location"][1]
        if letter != label["data"] or block >= here:
            problems.append(f"the index at block {here} points back to ({letter}, {block})")
            return seen
        older = index_at(partition, letter, block, label)
        if older["generation"] >= index["generation"]:
            problems.append(
                f"generation {older['generation']} at block {block} is not older than {index['generation']} at {here}"
            )
        index, seen = older, seen + 1
    if index["location"][1] != 5 or index["generation"] != 1:
        problems.append(f"the oldest index is generation {index['generation']} at block {index['location'][1]}")
    return seen


def attribute(directory, partition, identifier, problems):
    try:
        with open(os.path.join(directory, f"attr_{partition}_{identifier:x}"), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if len(data) < 5 or struct.unpack(">H", data[:2])[0] != identifier or len(data) - 5 != struct.unpack(">H", data[3:5])[0]:
        problems.append(f"cartridge memory attribute {identifier:#x} of partition {partition} has a wrong header")
        return None
    return data[5:]


def check_memory(directory, label, indexes, problems, required):
    vcr = attribute(directory, 0, 0x0009, problems)
    vcr = int.from_bytes(vcr, "big") if vcr else None
    for partition, index in enumerate(indexes):
        value = attribute(directory, partition, 0x080C, problems)
        if value is None:
            if required:
                problems.append(f"partition {partition} has no coherency attribute 0x80c")
            continue
        if len(value) != 70 or value[0] != 8 or value[25:32] != b"\0\x2bLTFS\0" or value[68:] != b"\0\1":
            problems.append(f"coherency attribute of partition {partition} is malformed: {value.hex()}")
            continue
        own_vcr, generation, block = struct.unpack(">QQQ", value[1:25])
        wanted = (index["generation"], index["location"][1], label["volumeuuid"].encode())
        found = (generation, block, value[32:68])
        if found != wanted:
            problems.append(f"coherency of partition {partition} says {found}, the newest index is {wanted}")
        if vcr is not None and (own_vcr == 0 or own_vcr != vcr):
            problems.append(f"coherency of partition {partition} has change reference {own_vcr}, the medium {vcr}")


def decode_name(element, where, problems):
    name = element.text or ""
    if element.get("percentencoded") == "true":
        raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), name.encode())
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise Unsound(f"{where}: name {name!r} is not UTF-8 when decoded") from None
    elif re.search(r"[:\x00-\x1f\x7f]", name):
        problems.append(f"{where}: name {name!r} should be percent-encoded")
    if unicodedata.normalize("NFC", name) != name:
        problems.append(f"{where}: name {name!r} is not NFC")
    if len(name) > 255 or "/" in name or "\0" in name or name in (".", ".."):
        problems.append(f"{where}: name {name!r} is not allowed")
    return name


def attributes(element, where):
    found = {}
    for xattr in element.findall("extendedattributes/xattr"):
        key = decode_name(child(xattr, "key", where), where, [])
        value = child(xattr, "value", where)
        data = (value.text or "").encode()
        if value.get("type", "text") == "base64":
            data = base64.b64decode(data)
        if key in found:
            raise Unsound(f"{where}: two extended attributes {key!r}")
        found[key] = data
    return found


class Tree:
    """Walks the tree of an index; yields files; gathers problems with names and uids."""

    def __init__(self, highest, problems):
        self.highest, self.problems, self.uids = highest, problems, set()

    def entry(self, element, path, is_root=False):
        where = path or "/"
        boolean(element, "readonly", where)
        for name in TIMES:
            if not TIME.match(text(element, name, where)):
                self.problems.append(f"{where}: malformed <{name}>")
        uid = number(element, "fileuid", where)
        if uid in self.uids:
            self.problems.append(f"{where}: uid {uid} is used twice")
        if not 0 < uid <= self.highest or (is_root and uid != 1):
            self.problems.append(f"{where}: uid {uid} is out of range (highest {self.highest})")
        self.uids.add(uid)
        return uid

    def walk(self, root):
        self.entry(root, "", is_root=True)
        decode_name(child(root, "name", "/"), "/", self.problems)
        pending = [("", root)]
        while pending:
            path, directory = pending.pop()
            names = set()
            for element in child(directory, "contents", path or "/"):
                if element.tag not in ("file", "directory"):
                    continue
                name = decode_name(child(element, "name", path or "/"), path or "/", self.problems)
                below = f"{path}/{name}"
                if not name or name in names:
                    self.problems.append(f"{below}: name empty or used twice")
                names.add(name)
                uid = self.entry(element, below)
                if element.tag == "directory":
                    pending.append((below, element))
                else:
                    yield below, uid, element


def extent_bytes(partitions, label, extent, where):
    """Yields the bytes of one extent; every record but the last must be full."""
    letter = text(extent, "partition", where)
    if letter not in (label["index"], label["data"]):
        raise Unsound(f"{where}: extent on unknown partition {letter!r}")
    partition = partitions[0 if letter == label["index"] else 1]
    block, left = number(extent, "startblock", where), number(extent, "bytecount", where)
    offset = number(extent, "byteoffset", where)
    if left == 0 or offset >= label["blocksize"]:
        raise Unsound(f"{where}: extent of {left} bytes at byte {offset} of a record")
    while left:
        record = partition.record(block)
        piece = record[offset : offset + left]
        if not piece or (len(piece) < left and len(record) != label["blocksize"]):
            raise Unsound(f"{where}: record {block} has {len(record)} bytes, {left} are wanted from byte {offset}")
        yield piece
        left, offset, block = left - len(piece), 0, block + 1


def read_file(partitions, label, element, where):
    """Yields the whole content, zeros for holes."""
    length, position = number(element, "length", where), 0
    extents = element.findall("extentinfo/extent")
    if element.find("extentinfo") is not None and not extents:
        raise Unsound(f"{where}: an extentinfo without extents")
    for extent in sorted(extents, key=lambda e: number(e, "fileoffset", where)):
        start = number(extent, "fileoffset", where)
        if start < position or start + number(extent, "bytecount", where) > length:
            raise Unsound(f"{where}: extents overlap or pass the length {length}")
        yield from zeros(start - position)
        yield from extent_bytes(partitions, label, extent, where)
        position = start + number(extent, "bytecount", where)
    yield from zeros(length - position)


def zeros(count):
    while count:
        step = min(count, 1 << 20)
        yield bytes(step)
        count -= step


def show(value):
    try:
        shown = value.decode()
        return shown if shown.isprintable() else {"base64": base64.b64encode(value).decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def one_file(volume, path, uid, element, options, problems):
    partitions, label = volume
    xattrs = attributes(element, path)
    line = {"tape_path": path, "uid": uid, "length": number(element, "length", path)}
    line["xattrs"] = {key: show(value) for key, value in xattrs.items()}
    if element.find("symlink") is not None:
        line["symlink"] = decode_name(child(element, "symlink", path), path, [])
        return line
    digest, out = hashlib.sha256(), None
    if options.extract:
        target = os.path.join(options.extract, str(uid))
        out = open(target, "wb")
        line["extracted"] = target
    for piece in read_file(partitions, label, element, path):
        digest.update(piece)
        if out:
            out.write(piece)
    if out:
        out.close()
    line["sha256"] = digest.hexdigest()
    wanted = xattrs.get("ltfs.hash.sha256sum")
    if options.compare_sha and wanted is not None and wanted.decode("ascii", "replace").lower() != line["sha256"]:
        problems.append(f"{path}: SHA-256 is {line['sha256']}, its attribute says {wanted.decode('ascii', 'replace')}")
    if options.require_sha and wanted is None and "thermo.part" not in xattrs:
        problems.append(f"{path}: no attribute ltfs.hash.sha256sum")
    return line


def judge(directory, options, out):
    """Returns the list of problems; prints a line for each file to out."""
    problems = []
    try:
        partitions = scan(directory)
        label = read_labels(partitions)
        on_index, on_data = newest_index(partitions, label, problems)
        kept = check_chain(partitions[1], label, on_data, problems)
        if on_index["generation"] > 2 and kept < 2:
            problems.append("fewer than two generations on the data partition")
        check_memory(directory, label, (on_index, on_data), problems, options.require_memory)
        if options.generation is not None and on_index["generation"] != options.generation:
            problems.append(f"newest generation is {on_index['generation']}, expected {options.generation}")
        count = 0
        for path, uid, element in Tree(on_index["highest"], problems).walk(on_index["root"]):
            try:
                line = one_file((partitions, label), path, uid, element, options, problems)
                out.write(json.dumps(line, sort_keys=True) + "\n")
                count += 1
            except Unsound as error:
                problems.append(str(error))
        if options.files is not None and count != options.files:
            problems.append(f"{count} files were read, expected {options.files}")
    except (Unsound, ValueError, OSError) as error:
        problems.append(str(error))
    return problems


def parser():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("cartridge", help="directory of the cartridge")
    arguments.add_argument("--compare-sha", action="store_true", help="compare with ltfs.hash.sha256sum where present")
    arguments.add_argument("--require-sha", action="store_true", help="every whole file must have ltfs.hash.sha256sum")
    arguments.add_argument("--require-memory", action="store_true", help="both coherency attributes must be there")
    arguments.add_argument("--generation", type=int, help="generation that the newest index must have")
    arguments.add_argument("--files", type=int, help="number of files that must be there")
    arguments.add_argument("--extract", metavar="DIR", help="write each file to DIR/<uid>")
    return arguments


def main(argv=None):
    options = parser().parse_args(argv)
    if options.extract:
        os.makedirs(options.extract, exist_ok=True)
    problems = judge(options.cartridge, options, sys.stdout)
    for problem in problems:
        print(f"{options.cartridge}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
