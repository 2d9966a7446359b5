#!/usr/bin/env python3
"""What deploy/ and .github/ hold fits the program: tests/install/deploy_test.py DELTAWIRE

Units of systemd pass its own check, and their options exist; the manifests for Kubernetes are whole, and name only what is there. 77: neither systemd-analyze nor PyYAML is installed.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted(ROOT.glob("deploy/systemd/*.service"))


def help_of(program: str, verb: str) -> str:
    texts = [
        subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        for words in ((verb, "--help"), ("--help", "options"))
    ]
    return "".join(texts)


def check_options(program: str, words: list[str]) -> None:
    """`words` start with a verb; each of their options must belong to it."""
    text = help_of(program, words[0])
    for word in words[1:]:
        option = word.partition("=")[0]
        if option.startswith("--"):
            assert re.search(rf"{option}\b", text), f"{words[0]} has no option {option}"


def test_systemd_units_are_valid(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for unit in UNITS:
            text = unit.read_text()
            [command] = re.findall(r"^ExecStart=deltawire (.*)$", text, re.MULTILINE)
            check_options(program, command.split() + " ".join(re.findall(r"\((--[^)]*)\)", text)).split())
            # The built program is not at its installed path.
            Path(folder, unit.name.replace("@", "@x")).write_text(text.replace("ExecStart=deltawire", f"ExecStart={program}"))
        files = sorted(Path(folder).iterdir())
        said = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *files], capture_output=True, text=True
        )
        about = [line for line in said.stderr.splitlines() if "deltawire" in line]
        assert said.returncode == 0 and not about, said.stderr
        # systemd's exposure score: 10 allows everything, and at most 2.0 is "OK".
        subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", *files],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        sysusers = shutil.which("systemd-sysusers")
        if sysusers:
            said = subprocess.run([sysusers, "--dry-run", ROOT / "deploy/systemd/deltawire.conf"], capture_output=True, text=True)
            assert said.returncode == 0, said.stderr


def test_kubernetes_manifests_are_valid(program: str, yaml) -> None:
    folder = ROOT / "deploy/kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    assert {path.name for path in folder.glob("*.yaml")} == {"kustomization.yaml", *kustomization["resources"]}
    [version] = re.findall(r"^project\(deltawire VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert kustomization["images"] == [{"name": "deltawire", "newTag": version}]
    maps = {
        made["name"]: {literal.partition("=")[0] for literal in made["literals"]} for made in kustomization["configMapGenerator"]
    }
    objects = [one for name in kustomization["resources"] for one in yaml.safe_load_all((folder / name).read_text())]
    for one in objects:
        assert {"apiVersion", "kind", "metadata", "spec"} == set(one)
        template = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        pod = template["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        containers = pod["initContainers"] + pod["containers"]
        assert len({container["name"] for container in containers}) == len(containers)
        mounted = set()
        for container in containers:
            mounted |= {mount["name"] for mount in container["volumeMounts"]}
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("livenessProbe", "readinessProbe"):
                assert probe not in container or container[probe]["httpGet"]["port"] in ports
            if container["image"] == "deltawire":
                check_options(program, container["args"])
                known = {entry["name"] for entry in container["env"]}
                for source in container["envFrom"]:
                    known |= maps[source["configMapRef"]["name"]] if "configMapRef" in source else set()
                assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= known
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert mounted == volumes


def test_github_workflows_are_valid(yaml) -> None:
    for path in [*ROOT.glob(".github/**/*.yml")]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    [job] = workflow["jobs"].values()
    assert job["container"] == "debian:12"
    assert job["steps"][-1] == {"run": ".ci/run"} and (ROOT / ".ci/run").exists()


def main() -> int:
    program = str(Path(sys.argv[1]).resolve())
    skipped = []
    if shutil.which("systemd-analyze"):
        test_systemd_units_are_valid(program)
    else:
        skipped.append("units: no systemd-analyze")
    try:
        import yaml
    except ImportError:
        skipped.append("manifests: no PyYAML")
    else:
        test_kubernetes_manifests_are_valid(program, yaml)
        test_github_workflows_are_valid(yaml)
    print("skipped", "; ".join(skipped) or "nothing")
    return 77 if len(skipped) == 2 else 0


if __name__ == "__main__":
    sys.exit(main())
