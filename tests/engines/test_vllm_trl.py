"""`deltawire.trainers.trl.WeightTransfer`, as TRL calls it, with a real vLLM server that follows the store by itself."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import torch
from servers import VllmServer, need

import deltawire as dw

need("vllm")

from trainers import DTYPE, make_model
from transformers import AutoModelForCausalLM

from deltawire.trainers.trl import WeightTransfer


class Loop:
    """A trainer with float32 masters, some of which change with each step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = make_model(folder / "trainer"), str(folder / "store")
        self.model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        self.steps = 0

    def transfer(self, **options) -> WeightTransfer:
        return WeightTransfer(self.store, dtype=DTYPE, checkpoint=self.folder, timeout=90, **options)

    def step(self) -> None:
        self.steps += 1
        generator = torch.Generator().manual_seed(self.steps)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter += 0.05 * (torch.rand(parameter.shape, generator=generator) < 0.05)

    def sync(self, transfer: WeightTransfer) -> None:
        """Sync like `AsyncGRPOTrainer`."""
        transfer.pause()
        transfer.send_weights((name, parameter.detach()) for name, parameter in self.model.named_parameters())
        transfer.resume()

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        """Log-probabilities of the weights as published."""
        rounded = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        rounded.load_state_dict({name: tensor.to(DTYPE) for name, tensor in self.model.state_dict().items()})
        with torch.no_grad():
            logits = rounded(torch.tensor([tokens])).logits[0, :-1]
        return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


@pytest.fixture(scope="module")
def loop(tmp_path_factory) -> Loop:
    made = Loop(tmp_path_factory.mktemp("vllm-trl"))
    seeding = made.transfer(wait="published")
    seeding.init_weight_transfer()  # publishes the checkpoint
    seeding.destroy()
    with dw.Replica(made.store, made.folder.parent / "local") as replica:
        replica.pull()
    return made


@pytest.fixture(scope="module")
def server(loop):
    local = loop.folder.parent / "local"
    settings = {"store": loop.store, "local": str(local), "interval": 0.5}
    with VllmServer(local, loop.folder.parent / "server.log", "--enable-scale-out", deltawire=settings) as running:
        yield running


def url(server: VllmServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def served_logprobs(server: VllmServer, tokens: list[int]) -> torch.Tensor:
    found = server.complete(tokens, 1, prompt_logprobs=0)["prompt_logprobs"][1:]
    return torch.tensor([each[str(token)]["logprob"] for each, token in zip(found, tokens[1:], strict=True)])


TOKENS = list(range(40, 72))


def test_sync_ends_when_the_server_has_the_weights(loop, server):
    transfer = loop.transfer(base_url=url(server))
    transfer.init_weight_transfer()
    assert [one.version for one in transfer.served] == [0]
    loop.sync(transfer)  # as TRL begins: nothing has changed, no version is made
    assert transfer.version.number == 0
    before = loop.logprobs(TOKENS)
    for number in (1, 2, 3):
        loop.step()
        loop.sync(transfer)
        assert transfer.version.number == number
        assert [one.version for one in transfer.served] == [number]
        served, own = served_logprobs(server, TOKENS), loop.logprobs(TOKENS)
        assert (served - own).abs().max() < 0.02
        assert (served - before).abs().max() > 0.05  # which a server that had not moved would not show
        before = own
    transfer.destroy()
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"]) == (3, [])


def test_outputs_report_their_versions(loop, server):
    transfer = loop.transfer(base_url=url(server))
    answers: list[dict] = []
    body = {"token_ids": TOKENS, "sampling_params": {"max_tokens": 200, "ignore_eos": True}}
    begun = int(server.get("/weight_info")["weight_version"])

    def generated() -> float:
        return sum(
            float(number) for number in re.findall(r"^vllm:generation_tokens_total\{.*\} (.*)$", server.get("/metrics"), re.M)
        )

    while True:  # until a request is stopped in the midst of its tokens, however fast they come
        before = generated()
        asking = threading.Thread(target=lambda: answers.append(server.post("/inference/v1/generate", body)))
        asking.start()
        server.wait_until(lambda status, before=before: generated() > before)
        server.post("/pause?mode=keep&clear_cache=false")
        if generated() < before + 200:
            break
        server.post("/resume")
        asking.join(timeout=120)
        answers.clear()
    loop.step()
    loop.sync(transfer)
    reached = transfer.version.number
    server.post("/resume")
    asking.join(timeout=120)
    transfer.destroy()
    spans = answers[0]["choices"][0]["weight_versions"]
    assert [int(span["version"]) for span in spans] == [begun, reached]
    assert [spans[0]["start"], spans[0]["end"], spans[1]["end"]] == [0, spans[1]["start"], 200]
    body["sampling_params"]["max_tokens"] = 4
    (span,) = server.post("/inference/v1/generate", body)["choices"][0]["weight_versions"]
    assert span == {"version": str(reached), "start": 0, "end": 4}


def test_resumed_training_continues_with_higher_numbers(loop, server):
    held = server.status()["version"]
    resumed = loop.transfer(base_url=url(server), run=dw.Chain(loop.store).run)
    resumed.init_weight_transfer()
    assert [one.version for one in resumed.served] == [held]
    loop.model.load_state_dict(AutoModelForCausalLM.from_pretrained(loop.folder).state_dict())  # an old checkpoint
    loop.sync(resumed)
    assert [one.version for one in resumed.served] == [held + 1]
    resumed.destroy()
    assert (served_logprobs(server, TOKENS) - loop.logprobs(TOKENS)).abs().max() < 0.02


def test_reports_a_server_that_cannot_follow(loop, server, tmp_path):
    held = server.status()["version"]
    transfer = WeightTransfer(str(tmp_path / "other"), dtype=DTYPE, checkpoint=loop.folder, base_url=url(server), timeout=5)
    transfer.init_weight_transfer()
    for _ in range(held + 1):  # of another chain, which this server does not follow
        loop.step()
        transfer._open().publish(dict(loop.model.named_parameters()))
    loop.step()
    with pytest.raises(dw.Unavailable, match=rf"version {held + 2} of run .* is not served after 5 s: .*serves version {held}"):
        loop.sync(transfer)
    transfer.destroy()
