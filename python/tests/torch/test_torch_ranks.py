"""Sharded trainers, without a gather, on the CPU, several cases per run, from ranks_worker.py."""

import pytest
from rank_processes import preload, run_script

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

preload("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")

PLACEMENTS = ["any_placement", "replica_of_any_placement", "proof_of_any_placement", "proof_of_what_ranks_published"]
BOTH = ["resume", "fsdp", *PLACEMENTS, "replicas_of_shards", "failure_in_the_store"]
MODELS = ["fsdp_as_bfloat16", "fsdp_by_columns", "tensor_parallel", "quantised", "guide"]
REFUSALS = ["partial_sums_are_refused", "shards_need_all_ranks"]
MESHES = ["hsdp", "fsdp_and_tensor_parallel"]
CASES = {2: [*BOTH, *MODELS, *REFUSALS], 4: [*BOTH, *MESHES]}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The output of two ranks, then of four; only `resume` shares the folder of stores."""
    runs, said = tmp_path_factory.mktemp("ranks"), {}
    for world, cases in CASES.items():
        folder = runs / str(world)
        folder.mkdir()
        if world == 4 and (runs / "2" / "resume").exists():
            (runs / "2" / "resume").rename(folder / "resume")
        _, said[world] = run_script(world, "ranks_worker.py", folder / "output", folder, *cases)
    return said


@pytest.mark.parametrize(("world", "case"), [(world, case) for world, cases in CASES.items() for case in cases])
def test_sharded_trainers(outputs: dict[int, str], world: int, case: str) -> None:
    assert f"passed: {case} " in outputs[world], outputs[world]
