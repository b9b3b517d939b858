"""Texts without speculation, every prompt decoded once a process; and runs in this process."""

from collections.abc import Callable, Sequence
from functools import cache

from bench.speculative import decode_plain
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.build import with_positions
from specfleet.engine.node.node import Node, Stations
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import verifier_node
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of

TEXTS: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}  # greedy texts after (model, precision, prompt)


def plain_outputs(scenario: Scenario) -> dict[int, list[int]]:
    """The new tokens of every request of a scenario by plain greedy decoding with its target's model."""
    fleet = resolve(scenario)
    prompts, outputs = prompts_of(fleet), dict[int, list[int]]()
    for tag, requests in streams_of(fleet).items():
        model, text = fleet.target_model(fleet.target_of(tag)), list[int]()
        for request in requests:
            told = prompts[request.number][: request.prompt_tokens]
            prompt = text[: request.prompt_tokens - len(told)] + told  # a later turn goes on with the text so far
            assert len(prompt) == request.prompt_tokens
            outputs[request.number] = plain_text(model, scenario.precision, prompt, request.new_tokens)
            text = prompt + outputs[request.number]
    return outputs


def plain_text(model: str, precision: str, prompt: list[int], new_tokens: int) -> list[int]:
    """`new_tokens` tokens after a prompt; a greedy text is a prefix of every longer one."""
    key = model, precision, tuple(prompt)
    if len(TEXTS.get(key, ())) < new_tokens:
        TEXTS[key] = decode_plain(Target(model_of(model, precision)), prompt, new_tokens)
    return TEXTS[key][:new_tokens]


@cache
def model_of(folder: str, precision: str) -> CausalLM:
    """A target for plain decoding, loaded once a process."""
    return load_model(folder, "target", precision)


def target_node(fleet: Fleet, prompts: Sequence[Sequence[int]]) -> Node:
    """The node of the one target of a fleet without drafters elsewhere."""
    return verifier_node(fleet, 0, prompts, {})


def served_here(make: Callable[..., Stations], scenario: Scenario) -> tuple[Run, dict[int, list[int]]]:
    """The run and the new tokens of a scenario that is served in this process by what `make` returns."""
    fleet = with_positions(resolve(scenario))
    stations = make(fleet, prompts_of(fleet))
    return make_run(scenario, "engine", stations.serve(now_s()), fleet), stations.outputs
