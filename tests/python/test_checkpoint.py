"""Checkpoints against numpy: what is saved from one mesh is loaded on another, on every kind of session and number of workers."""

import json
import os
import random
import zlib

import numpy as np
import pytest
from conftest import WORKERS, make_session
from test_distributed import DTYPES, is_partial, some_array, some_mesh, some_placement

import tutti
from tutti.distributed import DeviceMesh, DTensor, TensorStructInfo, stored_metadata, stored_tensors

CASES = int(os.environ.get("TUTTI_TEST_PROGRAMS", "40")) // 4
LACKING = ["complex128"]  # by safetensors


def header_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def elements_of(path):
    """The arrays of a safetensors file, read by hand."""
    names = {"F16": "f2", "F32": "f4", "F64": "f8", "BOOL": "?", "C64": "c8"}
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        dtype = names.get(entry["dtype"]) or f"{entry['dtype'][0].lower()}{int(entry['dtype'][1:]) // 8}"
        first, last = entry["data_offsets"]
        found[name] = np.frombuffer(data[begin + first : begin + last], dtype).reshape(entry["shape"])
    return found


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("ending", [".safetensors", ".safetensors.index.json", ".npy"])
def test_any_mesh_to_any_other(tmp_path, ending):
    draw = random.Random(f"{ending} {WORKERS}")
    with make_session() as session:
        for case in range(CASES):
            arrays, tensors = {}, {}
            for i in range(1 if ending == ".npy" else draw.randint(0, 5)):
                dtype = draw.choice([name for name in DTYPES if ending == ".npy" or name not in LACKING])
                shape = [draw.randint(0, 12) for _ in range(draw.randint(0, 4))]
                array, mesh = some_array(case * 8 + i, shape, dtype), some_mesh(draw)
                placement = some_placement(draw, mesh, shape, dtype)
                while is_partial(placement):
                    placement = some_placement(draw, mesh, shape, dtype)
                arrays[f"layer.{i}"] = array
                tensors[f"layer.{i}"] = session.distribute(array, mesh, placement)
            path = tmp_path / f"x{ending}"
            save = session.save if draw.random() < 0.5 else lambda *args, **kwargs: session.save_async(*args, **kwargs).wait()
            save(path, tensors, file_bytes=draw.choice([None, 1, 1000]), direct=draw.random() < 0.5)
            if ending == ".safetensors":
                by_hand = elements_of(path)
                assert by_hand.keys() == arrays.keys() and all(same(by_hand[name], array) for name, array in arrays.items())
                crcs = json.loads(header_of(path)["__metadata__"]["tutti.crc32"])
                assert crcs == {name: f"{zlib.crc32(array.tobytes()):08x}" for name, array in arrays.items()}
            elif ending == ".npy":
                assert same(np.load(path), arrays["layer.0"])
                arrays = {"": arrays["layer.0"]}
            info = stored_tensors(path)
            assert info == {name: TensorStructInfo(array.shape, str(array.dtype)) for name, array in arrays.items()}
            mesh = some_mesh(draw)
            placements = {name: some_placement(draw, mesh, array.shape, str(array.dtype)) for name, array in arrays.items()}
            loaded = session.load(path, mesh, placements, direct=draw.random() < 0.5)
            assert loaded.keys() == arrays.keys()
            for name, array in arrays.items():
                assert loaded[name].placement == placements[name] and same(loaded[name].full().numpy(), array), (case, name, placements[name])
    files = set(json.loads(path.read_text())["weight_map"].values()) if ending.endswith("json") else set()
    assert set(os.listdir(tmp_path)) == files | {path.name}  # nothing is left over


def test_large_tensors_in_small_pieces(tmp_path):
    """Several buffers long, and cut so that a file is read and written in short runs."""
    array = np.random.default_rng(1).integers(0, 255, (3000, 1700), dtype=np.uint8)
    with make_session() as session:
        everyone = DeviceMesh(WORKERS)
        for placement in ("S[0]", "S[1]", "R"):
            for direct in (False, True):
                session.save(tmp_path / "x.safetensors", {"x": session.distribute(array, everyone, placement)}, direct=direct)
                for other in ("S[0]", "S[1]", "R"):
                    assert same(session.load(tmp_path / "x.safetensors", everyone, other, direct=direct)["x"].full().numpy(), array)


def test_what_can_be_chosen(tmp_path):
    with make_session() as session:
        everyone = DeviceMesh(WORKERS)
        x = session.distribute(np.arange(12.0).reshape(3, 4), everyone, "S[0]")
        session.save(str(tmp_path / "x.safetensors"), {"a.weight": x, "b": x, "\u00e4\"": x}, metadata={"step": "7"})
        assert header_of(tmp_path / "x.safetensors")["__metadata__"]["step"] == "7"
        assert stored_metadata(tmp_path / "x.safetensors") == {"step": "7"}
        session.save(tmp_path / "y.safetensors.index.json", {"x": x}, metadata={"step": "8", "": "\u00e4"})
        assert stored_metadata(tmp_path / "y.safetensors.index.json") == {"step": "8", "": "\u00e4"}
        session.save(tmp_path / "z.npy", {"x": x})
        assert stored_metadata(tmp_path / "z.npy") == {}
        session.save(tmp_path / "again.npy", session.load(tmp_path / "z.npy", everyone, "S[0]"))  # as it was loaded, without a name
        assert same(np.load(tmp_path / "again.npy"), np.load(tmp_path / "z.npy"))
        with pytest.raises(tutti.SystemError):
            stored_metadata(tmp_path / "none.npy")
        assert session.load(tmp_path / "x.safetensors", everyone, {"b": "S[1]"}).keys() == {"b"}
        chosen = session.load(tmp_path / "x.safetensors", everyone, lambda name, info: "S[1]" if name.endswith("weight") and info.shape == (3, 4) else None)
        assert chosen.keys() == {"a.weight"} and str(chosen["a.weight"].placement) == "S[1]"
        assert isinstance(session.load(tmp_path / "x.safetensors", everyone, "R", verify=False)["\u00e4\""], DTensor)
        saving = session.save_async(tmp_path / "y.safetensors", {"x": x})
        saving.wait(timeout=60)
        assert saving.is_done and saving.bytes_written == saving.total_bytes == 96
        session.save_async(tmp_path / "z.safetensors", {"x": x})  # nobody keeps it: it is waited for
        assert (tmp_path / "z.safetensors").exists()
        session.save(tmp_path / "none.safetensors", {})
        assert session.load(tmp_path / "none.safetensors", everyone, "R") == {}


def test_bytes_written_grow_to_the_end(tmp_path):
    with make_session() as session:
        x = session.distribute(np.zeros((300, 1024), np.float32), DeviceMesh(WORKERS), "S[0]")
        for _ in range(CASES):  # at the end what the workers say goes
            saving, seen = session.save_async(tmp_path / "x.safetensors", {"x": x}), [0]
            while not saving.is_done:
                seen.append(saving.bytes_written)
            saving.wait()
            seen.append(saving.bytes_written)
            assert seen == sorted(seen) and seen[-1] == x.info.tensor_sinfo.shape[0] * 4096, seen


def test_a_bar_shows_the_bytes(tmp_path, capsys):
    with make_session() as session:
        x = session.distribute(np.zeros((300, 1024), np.float32), DeviceMesh(WORKERS), "S[0]")
        session.save(tmp_path / "x.safetensors", {"x": x}, progress=True)
        shown = capsys.readouterr().err
        assert "100%" in shown and "1.17M/1.17M" in shown, shown
        saving = session.save_async(tmp_path / "y.safetensors", {"x": x})
        saving.wait(progress=True)
        assert "100%" in capsys.readouterr().err
        with pytest.raises(tutti.SystemError):
            session.save(tmp_path / "none" / "x.safetensors", {"x": x}, progress=True)
        shown = capsys.readouterr().err
        assert "0%" in shown and "100%" not in shown, shown


def test_what_is_refused(tmp_path):
    with make_session() as session:
        everyone = DeviceMesh(WORKERS)
        x = session.distribute(np.arange(12.0).reshape(3, 4), everyone, "S[0]")
        session.save(tmp_path / "x.safetensors", {"x": x})
        for call, error, words in [
            (lambda: session.save(tmp_path / "x.pt", {"x": x}), tutti.UsageError, "expected a name that ends in"),
            (lambda: session.save(tmp_path / "x.safetensors", {"x": 3}), tutti.UsageError, "dict of DTensors"),
            (lambda: session.save(tmp_path / "x.safetensors", [x]), tutti.UsageError, "dict of DTensors"),
            (lambda: session.save(tmp_path / "x.npy", {}), tutti.UsageError, "one tensor, not 0"),
            (lambda: session.load(tmp_path / "x.safetensors", everyone, {"y": "R"}), tutti.UsageError, "no tensor is named 'y'"),
            (lambda: session.load(tmp_path / "x.safetensors", everyone, "S[2]"), tutti.UsageError, "axis 2"),
            (lambda: session.load(tmp_path / "x.safetensors", everyone, 3), tutti.UsageError, "placements: expected"),
            (lambda: session.load(tmp_path / "x.safetensors", DeviceMesh(1, [WORKERS]), "R"), tutti.UsageError, "not in this session"),
            (lambda: session.load(tmp_path / "y.safetensors", everyone, "R"), tutti.SystemError, "No such file"),
            (lambda: session.load(tmp_path / "x.safetensors", everyone, {5: "R"}), tutti.UsageError, "expected names, got int"),
            (lambda: session.load("a\0b.safetensors", everyone, "R"), tutti.UsageError, "NUL"),
            (lambda: session.save(tmp_path / "x.safetensors", {"x": x}, metadata={"a": b"\xff"}), tutti.UsageError, "not UTF-8"),
            (lambda: session.save(tmp_path / "no" / "x.safetensors", {"x": x}), tutti.SystemError, "No such file"),
        ]:
            with pytest.raises(error, match=words.replace("[", r"\[")):
                call()
        header = b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
        (tmp_path / "bad.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        with pytest.raises(tutti.UsageError, match="bad.safetensors is no JSON.*UTF-8"):
            stored_tensors(tmp_path / "bad.safetensors")
        os.remove(tmp_path / "bad.safetensors")
        assert session.load(tmp_path / "x.safetensors", everyone, {"x": None}) == {}
        os.mkfifo(tmp_path / "pipe.safetensors")
        with pytest.raises(tutti.UsageError, match="no regular file"):
            session.load(tmp_path / "pipe.safetensors", everyone, "R")
        assert sorted(os.listdir(tmp_path)) == ["pipe.safetensors", "x.safetensors"]
        assert same(session.load(tmp_path / "x.safetensors", everyone, "S[1]")["x"].full().numpy(), np.arange(12.0).reshape(3, 4))


def write_cache(folder, arrays, short=()):
    """A folder as TVM's tvmjs writes it: two parameters a file."""
    files, names = [], list(arrays)
    for number in range(0, len(names), 2):
        data, records = b"", []
        for name in names[number : number + 2]:
            array = arrays[name]
            raw = (array.view("uint32") >> 16).astype("uint16").tobytes() if name in short else array.tobytes()
            records.append({"name": name, "shape": array.shape, "dtype": str(array.dtype), "format": "f32-to-bf16" if name in short else "raw",
                            "nbytes": len(raw), "byteOffset": len(data)})  # fmt: skip
            data += raw
        path = f"params_shard_{number // 2}.bin"
        (folder / path).write_bytes(data)
        files.append({"dataPath": path, "format": "raw-shard", "nbytes": len(data), "records": records})
    text = json.dumps({"metadata": {"ParamSize": len(arrays)}, "records": files})
    (folder / "tensor-cache.json").write_text(text)
    return str(folder / "tensor-cache.json"), text


def test_shard_loader(session, tmp_path):
    """Disco's functions, with a number of parts that is the number of workers."""
    n = WORKERS
    arrays = {f"param_{i}": some_array(i, shape, dtype) for i, (shape, dtype) in enumerate([((4, 3 * n), "float16"), ((2 * n, 5), "float32"), ((7,), "int32")])}
    whole = arrays["param_3"] = (some_array(9, (3, 5), "int16").astype("float32")).view("uint32")
    arrays["param_3"] = whole = (whole >> 16 << 16).view("float32")
    path, cache = write_cache(tmp_path, arrays, short=["param_3"])
    shard_info = json.dumps({"param_0": [["test.shard_columns", [[n, 4, 3], "float16"], n]],
                             "param_1": [["test.twice", [[2 * n, 5], "float32"]], ["test.shard_rows", [[n, 2, 5], "float32"], n]]})  # fmt: skip
    get = session.get_global_func
    loader = get("runtime.disco.ShardLoader")(path, cache, shard_info, None)
    everything = get("runtime.disco.ShardLoaderLoadAll")(loader)
    one = get("runtime.disco.ShardLoaderLoad")(loader, tutti.Shape([0]))
    on_0 = get("runtime.disco.ShardLoaderLoadParamOnWorker0")(loader, 2)
    for worker in range(n):
        parts = [part.numpy() for part in everything.debug_get_from_remote(worker)]
        assert same(parts[0], np.ascontiguousarray(arrays["param_0"][:, 3 * worker : 3 * worker + 3])) and same(parts[0], one.debug_get_from_remote(worker).numpy())
        assert same(parts[1], 2 * arrays["param_1"][2 * worker : 2 * worker + 2]) and same(parts[2], arrays["param_2"]) and same(parts[3], whole)
    assert same(on_0.debug_get_from_remote(0).numpy(), arrays["param_2"])
    for wrong, words in [('{"param_0": [["test.shard_columns", [[%d, 4, 3], "float16"], 1]]}' % (n + 1), "one for each worker"), ('{"param_0": [["none", [[1], "int8"]]]}', "none"),
                         ('{"param_0": 3}', "expected a list"), ("[", "no JSON")]:  # fmt: skip
        with pytest.raises(tutti.RemoteError, match=words):
            get("runtime.disco.ShardLoaderLoad")(get("runtime.disco.ShardLoader")(path, cache, wrong, None), tutti.Shape([0])).debug_get_from_remote(0)
            session.sync_all()
    with pytest.raises(tutti.RemoteError, match="parameter 4 of 4"):
        get("runtime.disco.ShardLoaderLoad")(loader, tutti.Shape([4]))
        session.sync_all()
    with pytest.raises(tutti.RemoteError, match="expected 24"):
        get("runtime.disco.ShardLoader")(path, cache.replace('"shape": [7]', '"shape": [6]'), None, None)
        session.sync_all()
    os.remove(tmp_path / "params_shard_1.bin")
    with pytest.raises(tutti.RemoteError, match="params_shard_1.bin: No such file"):
        get("runtime.disco.ShardLoaderLoad")(loader, tutti.Shape([2]))
        session.sync_all()
    assert same(get("runtime.disco.ShardLoaderLoad")(loader, 1).debug_get_from_remote(0).numpy(), 2 * arrays["param_1"][:2])


def test_shard_loader_of_shards(session, tmp_path):
    arrays = {f"param_{i}_shard-{worker + 1}-of-{WORKERS}": some_array(10 * i + worker, (i + 1, 3), "float32") for worker in range(WORKERS) for i in range(3)}
    path, cache = write_cache(tmp_path, arrays)
    loader = session.get_global_func("runtime.disco.ShardLoader")(path, cache, "", None)
    everything = session.get_global_func("runtime.disco.ShardLoaderLoadAllPresharded")(loader)
    one = session.get_global_func("runtime.disco.ShardLoaderLoadPresharded")(loader, tutti.Shape([1]))
    for worker in range(WORKERS):
        for i, part in enumerate(everything.debug_get_from_remote(worker)):
            assert same(part.numpy(), arrays[f"param_{i}_shard-{worker + 1}-of-{WORKERS}"])
        assert same(one.debug_get_from_remote(worker).numpy(), arrays[f"param_1_shard-{worker + 1}-of-{WORKERS}"])
    other, cache = write_cache(tmp_path, {name.replace(f"of-{WORKERS}", f"of-{WORKERS + 1}"): array for name, array in arrays.items()})
    loader = session.get_global_func("runtime.disco.ShardLoader")(other, cache, "", None)
    with pytest.raises(tutti.RemoteError, match="is not shard 1 of"):
        session.get_global_func("runtime.disco.ShardLoaderLoadPresharded")(loader, tutti.Shape([0]))
        session.sync_all()
