"""Drives vLLM one step at a time; it runs in vLLM's options environment, without specfleet.

The first line of input is the engine's settings, each further one a workload; `engine/outside/job.py` has
both, and the answers: what vLLM's scheduler put into each step, what was accepted, and when.
"""

import json
import os
import sys
import time
from collections import deque

import torch

ON_CPU = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
WARM_UP = {  # first steps compile
    "streams": [[{"number": number, "prompt": [1] * 16, "new_tokens": 16, "not_before_s": 0.0}] for number in range(2)],
    "sampling": {},
}


def main():
    """Answer each line of input with one of output; all else that is printed goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    on_cpu = not torch.cuda.is_available()
    os.environ.update(IN_PROCESS | (ON_CPU if on_cpu else {}))
    if on_cpu:  # one thread on one core: times of more vary with whatever else runs
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    engine, facts = started(settings, on_cpu)
    observed = Observed(engine)
    served(engine, observed, WARM_UP)
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(served(engine, observed, json.loads(line))), file=answers, flush=True)


def started(settings, on_cpu):
    """Start the engine; return it with its version and the settings that it took."""
    import vllm  # noqa: PLC0415  (it reads the environment)

    options = {"model": settings["target"], "dtype": settings["precision"], "skip_tokenizer_init": True}
    options |= {name: settings[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    options |= {"max_model_len": settings["max_model_len"] or None}
    options |= {"enforce_eager": on_cpu, "enable_prefix_caching": False, "async_scheduling": False, "seed": 0}
    block = 32 if on_cpu else 16  # tokens
    if settings["kv_tokens"]:  # one of vLLM's blocks stays empty
        options |= {"num_gpu_blocks_override": settings["kv_tokens"] // block + 1, "block_size": block}
    if settings["speculative"]:
        options["speculative_config"] = settings["speculative"]
    engine = vllm.LLM(**options).llm_engine
    cache = engine.vllm_config.cache_config
    return engine, {"version": vllm.__version__, "block_size": cache.block_size, "kv_blocks": cache.num_gpu_blocks - 1}


class Observed:
    """What an engine did in its last step, noted by wrappers of the methods that do it."""

    def __init__(self, engine):
        core = engine.engine_core.engine_core
        scheduler, runner = core.scheduler, core.model_executor.driver_worker.worker.model_runner
        self.clear()
        around(scheduler, "schedule", before=lambda *_, **__: self.at("start_s"), after=self.scheduled)
        around(scheduler, "update_from_output", before=self.sampled)
        around(scheduler, "update_draft_token_ids", before=self.drafted)
        around(runner, "propose_draft_token_ids", before=lambda *_, **__: self.at("draft_s"))

    def clear(self):
        """Forget the last step."""
        self.step = {"rows": {}, "preempted": [], "drafts": {}}

    def at(self, name):
        """Note the time at which all work so far is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.step[name] = time.perf_counter()

    def scheduled(self, output):
        """Note the tokens of each row, and how many of them are drafts."""
        drafts = output.scheduled_spec_decode_tokens
        self.step["rows"] = {
            number_of(name): [tokens, len(drafts.get(name, ())), 0]
            for name, tokens in output.num_scheduled_tokens.items()
        }
        self.step["preempted"] = [number_of(name) for name in output.preempted_req_ids or ()]

    def sampled(self, _scheduled, output):
        """Note how many tokens each row got."""
        for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True):
            self.step["rows"][number_of(name)][2] = len(tokens)

    def drafted(self, drafts):
        """Note how many tokens were drafted for each row."""
        self.step["drafts"] = {
            number_of(name): len(tokens) for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True)
        }


def number_of(name):
    """Return the number of a request; vLLM appends letters to its name."""
    return name.split("-")[0]


def around(owner, name, before=None, after=None):
    """Call functions with the arguments of a method before it runs, and with its result afterwards."""
    method = getattr(owner, name)

    def wrapped(*args, **kwargs):
        if before is not None:
            before(*args, **kwargs)
        result = method(*args, **kwargs)
        if after is not None:
            after(result)
        return result

    setattr(owner, name, wrapped)


def served(engine, observed, job):
    """Serve the streams of a workload; return its requests, and the steps in order."""
    from vllm import SamplingParams  # noqa: PLC0415

    streams = {tag: deque(requests) for tag, requests in enumerate(job["streams"])}
    tags, joined, steps, texts = {}, {}, [], {}
    zero_s = time.perf_counter()

    def join(tag):
        request = streams[tag].popleft()
        name = str(request["number"])
        sampling = SamplingParams(
            max_tokens=request["new_tokens"],
            ignore_eos=True,
            detokenize=False,
            seed=request["number"],
            **job["sampling"],
        )
        tags[name] = tag
        engine.add_request(name, {"prompt_token_ids": request["prompt"]}, sampling)
        joined[name] = time.perf_counter() - zero_s

    opening = deque(sorted(streams, key=lambda tag: streams[tag][0]["not_before_s"]))
    while opening or engine.has_unfinished_requests():
        while opening and streams[opening[0]][0]["not_before_s"] <= time.perf_counter() - zero_s:
            join(opening.popleft())
        if not engine.has_unfinished_requests():
            time.sleep(max(streams[opening[0]][0]["not_before_s"] - (time.perf_counter() - zero_s), 0))
            continue
        observed.clear()
        outputs = engine.step()
        step = observed.step
        if not step["rows"]:
            continue
        observed.at("end_s")
        steps.append({key: value - zero_s if key.endswith("_s") else value for key, value in step.items()})
        for output in outputs:
            if output.finished:
                name = number_of(output.request_id)
                texts[name] = list(output.outputs[0].token_ids)
                if streams[tags[name]]:
                    join(tags[name])
    return {"joined_s": joined, "steps": steps, "texts": texts}


if __name__ == "__main__":
    main()
