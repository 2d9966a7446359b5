"""Scales of sharded tensors, on the CPU. quantised_ranks_worker.py has the cases."""

import pytest
from rank_processes import preload, run_script

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

preload("deltawire.quantize", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")

CASES = [
    "quantised_together",
    "what_no_rank_has_is_carried_along",
    "a_rank_with_nan_is_named",
    "a_rank_that_died_is_told",
]


@pytest.fixture(scope="module", params=[2, 4])
def output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ranks")
    _, said = run_script(request.param, "quantize/quantised_ranks_worker.py", folder / "output", folder, *CASES)
    return said


@pytest.mark.parametrize("case", CASES)
def test_quantised_ranks(output: str, case: str) -> None:
    assert f"passed: {case} " in output, output
