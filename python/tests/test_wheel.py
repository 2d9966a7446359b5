"""The wheel works in an environment without other packages."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import deltawire as dw

ROOT = Path(__file__).parents[2]
BUILD = Path(dw.__file__).parents[2]

SCRIPT = """
import array, json, sys
import deltawire as dw

old, mine = array.array("f", range(1000)), array.array("f", [0] * 1000)
publisher = dw.Publisher("store", {"w": old})
publisher.publish()
old[7] = -1
publisher.publish()
dw.TensorReplica("store", {"w": mine}).pull()
mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps({"equal": mine == old, "file": dw.__file__, "mapped": sorted(mapped), "numpy": "numpy" in sys.modules}))
"""

# The libraries that manylinux expects on every Linux.
SYSTEM = ("ld-linux", "libc.so", "libm.so", "libpthread", "libdl", "librt", "libresolv", "libgcc_s", "libstdc++")
SYSTEM += ("libz.so", "libexpat.so")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with only the wheel; not even numpy, which only some users need."""
    if not (BUILD / "venv/bin/auditwheel").exists():
        pytest.skip("no auditwheel in build/venv: scripts/venv build/venv wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts/wheel", BUILD, folder], check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    assert "manylinux" in wheel.name
    venv.create(folder / "bare")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bare/bin/python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True, env=_clean())
    return folder / "bare"


def _clean() -> dict[str, str]:
    """Without the build folder's package, which pip would regard as installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: str | Path, folder: Path) -> str:
    return subprocess.run(command, cwd=folder, env=_clean(), check=True, stdout=subprocess.PIPE, text=True).stdout


def test_wheel_contains_every_library(bare: Path, tmp_path: Path) -> None:
    said = json.loads(run(bare / "bin/python", "-c", SCRIPT, folder=tmp_path))
    assert said["equal"] is True
    assert said["numpy"] is False
    assert Path(said["file"]).is_relative_to(bare)
    own = [name for name in said["mapped"] if Path(name).is_relative_to(bare)]
    assert any("_core" in name for name in own)
    prefixes = (sys.base_prefix, "/usr/lib/python3", str(bare))
    foreign = [name for name in said["mapped"] if not name.startswith(prefixes) and not Path(name).name.startswith(SYSTEM)]
    assert [name for name in foreign if "python" not in name] == []


def test_wheel_contains_the_command_line(bare: Path, tmp_path: Path) -> None:
    run(bare / "bin/python", "-c", SCRIPT, folder=tmp_path)
    for command in [bare / "bin/deltawire"], [bare / "bin/python", "-m", "deltawire"]:
        assert run(*command, "--version", folder=tmp_path).split()[1] == dw.__version__
        assert json.loads(run(*command, "log", "store", "--json", folder=tmp_path))["head"] == 1


def test_wheel_contains_an_sbom(bare: Path) -> None:
    [info] = bare.glob("lib/python*/site-packages/deltawire-*.dist-info")
    sbom = json.loads((info / "sboms/deltawire.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["version"]) == ("CycloneDX", dw.__version__)
    components = {component["name"]: component for component in sbom["components"]}
    assert {"openssl", "libzstd", "xxhash", "highway", "nlohmann-json3", "cli11", "nanobind", "gcc-12"} <= components.keys()
    metadata = (info / "METADATA").read_text().partition("\n\n")[0].splitlines()
    for name, component in components.items():
        assert component["version"], name
        assert component["purl"].startswith("pkg:"), name
        assert component["licenses"], name
        assert (info / "licenses" / f"{name}.txt").stat().st_size > 100, name
        assert f"License-File: {name}.txt" in metadata


def test_wheel_has_no_lab_verbs(bare: Path, tmp_path: Path) -> None:
    program = bare / "bin/deltawire"
    verbs = ["demo", "simulate", "bench"]
    shown = run(program, "--help", folder=tmp_path).splitlines()
    assert any(line.startswith("  follow ") for line in shown)
    assert not [line for line in shown if line.startswith(tuple(f"  {verb} " for verb in verbs))]
    first_words = subprocess.run([program], cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout
    assert "deltawire follow" in first_words
    assert not [verb for verb in verbs if f"deltawire {verb}" in first_words]
    for verb in verbs:
        refused = subprocess.run([program, verb], cwd=tmp_path, capture_output=True, text=True)
        assert (refused.returncode, refused.stdout) == (3, "")
        [line] = refused.stderr.splitlines()
        assert "the Debian package has it" in line
        assert f"make build && build-program/deltawire {verb}" in line


def test_wheel_has_no_test_or_lab_code(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    defines = settings["cmake"]["define"] | {
        "CMAKE_UNITY_BUILD": "OFF",  # every source by its name
        "DELTAWIRE_CUDA": "OFF",
        "Python_EXECUTABLE": sys.executable,
    }
    set_to = [f"-D{name}={value}" for name, value in defines.items()]
    run("cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *set_to, folder=ROOT)
    commands = run("ninja", "-t", "commands", *settings["build"]["targets"], folder=tmp_path)
    compiled = {Path(word) for word in commands.split() if word.startswith(f"{ROOT}/") and word.endswith((".cpp", ".cu"))}
    sources = {str(path.relative_to(ROOT)) for path in compiled}
    assert {"cli/main.cpp", "cli/follow.cpp", "src/store/directory_store.cpp", "python/bindings/module.cpp"} <= sources
    assert not [name for name in sources if name.startswith(("lab/", "bench/", "tests/", "src/store/fault"))]
    assert "DELTAWIRE_FAULTS 0" in (tmp_path / "generated/deltawire_faults.h").read_text()
