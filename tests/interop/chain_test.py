#!/usr/bin/env python3
"""A second reader of chains, written from docs/format.md alone, section 4: records, links, parts, hop records.

usage: chain_test.py DELTAWIRE

It follows a chain in a folder version by version, makes every state of the parts alone and compares it with
what was published; then it takes the hop records. Digests are left to others.
"""
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from format_test import WIDTH, apply, elements_of, read_safetensors

SEEN = set()  # codecs of whole tensors


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read_record(path, kind):
    """Canonical JSON: parsing and writing gives the same bytes."""
    data = path.read_bytes()
    record = json.loads(data)
    again = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again.encode() == data, f"{path}: not canonical"
    assert record["format"] == kind, record["format"]
    return record, sha256(data)


def weights(path):
    return {name: (dtype, shape, elements_of(data, WIDTH[dtype]))
            for name, (dtype, shape, data) in read_safetensors(path)[1].items()}


def packed_weights(path):
    metadata, entries = read_safetensors(path)
    assert metadata["deltawire"].startswith("whole/1 ")
    header, *payloads = [data for _, _, data in entries.values()]
    assert len(header) == 8 + int.from_bytes(header[:8], "little")
    plain = json.loads(header[8:])
    plain.pop("__metadata__", None)
    tensors = sorted(plain.items(), key=lambda item: item[1]["data_offsets"])
    size = len(header) + (tensors[-1][1]["data_offsets"][1] if tensors else 0)
    assert metadata["deltawire"] == f"whole/1 {size}"
    state = {}
    for (name, entry), codec, payload in zip(tensors, metadata["deltawire.codecs"].split(";"), payloads, strict=True):
        begin, end = entry["data_offsets"]
        count = (end - begin) // WIDTH[entry["dtype"]]
        state[name] = (entry["dtype"], entry["shape"], apply(codec, payload, [0] * count, entry["dtype"], entry["shape"]))
        SEEN.add(codec)
    return state


class Reader:
    def __init__(self, store):
        self.store = store
        self.run = read_record(store / "run.json", "run/1")[0]["run"]
        assert re.fullmatch("[0-9a-f]{32}", self.run)

    def part(self, ref):
        path = self.store / ref["name"]
        data = path.read_bytes()
        assert len(data) == ref["bytes"] and sha256(data) == ref["sha-256"], path
        return path

    def manifest(self, version):
        manifest, digest = read_record(self.store / f"manifests/{version:010}.json", "manifest/1")
        assert manifest["run"] == self.run and manifest["version"] == version
        schema = manifest["schema"]
        assert schema["name"] == f"schemas/{schema['sha-256']}.json"
        tensors, _ = read_record(self.part(schema), "schema/1")
        names = [name for name, _, _ in tensors["tensors"]]
        assert names == sorted(names) and manifest["digest"] == "sum128"
        assert len(base64.b64decode(manifest["digests"])) == 16 * len(names)
        return manifest, digest

    def files(self, manifest):
        """The side files, by name."""
        names = [name for name, *_ in manifest["files"]]
        assert names == sorted(set(names), key=str.encode)
        found = {}
        for name, size, digest, attempt in manifest["files"]:
            assert int(attempt.split("-")[0]) <= manifest["version"]
            data = (self.store / "files" / attempt / digest).read_bytes()
            assert len(data) == size and sha256(data) == digest
            found[name] = data
        return found

    def copies(self, parts):
        """Copies of the side files in the folder of a full version."""
        return {ref["name"].rsplit("/", 1)[1]: self.part(ref).read_bytes() for ref in parts
                if not ref["name"].endswith((".safetensors", ".safetensors.packed"))}

    def whole(self, parts):
        state = {}
        for ref in parts:
            if ref["name"].endswith(".safetensors"):
                state.update(weights(self.part(ref)))
            elif ref["name"].endswith(".safetensors.packed"):
                state.update(packed_weights(self.part(ref)))
        return state

    def patched(self, state, parts):
        state = dict(state)
        for ref in parts:
            metadata, payloads = read_safetensors(self.part(ref))
            words = metadata["deltawire"].split(" ")
            assert words[0] == "delta/1" and words[3] == "-", words  # what it leads to is in the manifest
            for (name, (_, _, payload)), record in zip(payloads.items(), metadata["deltawire.entries"].split(";")):
                codec, dtype, _, box, changed, *_ = record.split(" ")
                assert box == "-"
                before = state[name][2]
                after = apply(codec, payload, before, dtype, state[name][1])
                assert sum(a != b for a, b in zip(before, after)) == int(changed), name
                state[name] = (dtype, state[name][1], after)
        return state


def check_chain(store, published):
    """Check every version by itself. Returns manifests' digests, sums of bytes, and states."""
    reader = Reader(store)
    state, parent, total, before = {}, None, 0, set()
    digests, sums, states = [], [], []
    for version, path in enumerate(published):
        manifest, digest = reader.manifest(version)
        assert manifest["parent"] == parent
        full = manifest["kind"] == "full"
        assert manifest["base"] == (None if full else version - 1) and ("reason" in manifest) == full
        prefix = f"{'full' if full else 'parts'}/{version:010}-"
        assert all(ref["name"].startswith(prefix) for ref in manifest["parts"])
        state = reader.whole(manifest["parts"]) if full else reader.patched(state, manifest["parts"])
        assert state == weights(path / "model.safetensors"), f"version {version}"
        beside = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".safetensors"}
        assert reader.files(manifest) == beside, f"version {version}"
        if full:
            assert reader.copies(manifest["parts"]) == plain(beside)
        named = {(attempt, digest) for _, _, digest, attempt in manifest["files"]}
        assert all(one in before or one[0].startswith(f"{version:010}-") for one in named)
        before = named
        total += sum(ref["bytes"] for ref in manifest["parts"])
        assert manifest["chain_bytes"] == total
        parent = digest
        digests.append(digest), sums.append(total), states.append(state)
    assert (store / "HEAD").read_text().strip() == str(len(published) - 1)
    return digests, sums, states


def plain(files):
    """The files whose names are valid object names."""
    return {name: data for name, data in files.items() if re.fullmatch("[A-Za-z0-9_-][A-Za-z0-9._-]*", name)}


def check_hops(store, digests, sums, states):
    kinds = set()
    for path in sorted((store / "hops").iterdir()):
        version, base, size, base_sum, own_sum = path.stem.split("-")
        hop, _ = read_record(path, "hop/1")
        anchor = base == "full"
        assert hop["version"] == int(version) and hop["manifest"] == digests[int(version)]
        assert hop["base"] == (None if anchor else int(base))
        assert hop["base_manifest"] == (None if anchor else digests[int(base)])
        assert int(size, 16) == sum(ref["bytes"] for ref in hop["parts"])
        assert int(base_sum, 16) == (0 if anchor else sums[int(base)]) and int(own_sum, 16) == sums[int(version)]
        reader = Reader(store)
        state = reader.whole(hop["parts"]) if anchor else reader.patched(states[int(base)], hop["parts"])
        assert state == states[int(version)], path.name
        if anchor:
            assert reader.copies(hop["parts"]) == plain(reader.files(reader.manifest(int(version))[0]))
        kinds.add("anchor" if anchor else "merged")
    return kinds


def main():
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        store = at / "store"

        def run(*args):
            subprocess.run([sys.argv[1], *map(str, args), "-q"], check=True, env={**os.environ, "HOME": folder})

        run("simulate", "--params", "20k", "--steps", "5", "--density", "0.03", "-o", at / "sim")
        published = [at / f"step-{i}" for i in range(6)]
        for i, path in enumerate(published):
            path.mkdir()
            (at / f"sim/v{i}.safetensors").rename(path / "model.safetensors")
            (path / "config.json").write_text(f'{{"step": {i // 2}}}')
            if i in (1, 2, 4):
                (path / "Größe 語.txt").write_text("ß")
        for path, codec in zip(published, ["auto", "tight", "gaps", "adaptive", "raw", "tight"]):
            run("publish", path, store, "--codec", codec, "--part-size", "8KiB")
        run("compact", store, "--anchor", "--upto", 3)
        run("compact", store, "--span", "2", "--codec", "tight")
        found = check_hops(store, *check_chain(store, published))
        assert found == {"anchor", "merged"}, found
        assert "exponents" in SEEN, SEEN
    print(f"a chain of {len(published)} versions, its anchors and merged deltas read by docs/format.md alone")


if __name__ == "__main__":
    main()
