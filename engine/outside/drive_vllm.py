"""Drives vLLM one step at a time; it runs in vLLM's options environment, without specfleet.

The first line of input is the engine's settings, each further one a workload; `engine/outside/job.py` has
both, and the answers: what vLLM's scheduler put into each step, what was accepted, and when.
"""

import json
import os
import sys
import time
from bisect import insort
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
    with open(os.path.join(settings["target"], "config.json")) as file:
        known = [settings["max_model_len"], json.load(file).get("max_position_embeddings")]
    options |= {"max_model_len": min(filter(None, known), default=None)}
    options |= {"enforce_eager": on_cpu, "async_scheduling": False, "seed": 0}
    options |= {"enable_prefix_caching": settings["prefix_cache"]}
    block = settings["block_size"] or (32 if on_cpu else 16)  # tokens
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
        cached = engine.vllm_config.cache_config.enable_prefix_caching
        self.pool = scheduler.kv_cache_manager.block_pool if cached else None
        self.evicted = 0
        self.clear()
        around(scheduler, "schedule", before=lambda *_, **__: self.at("start_s"), after=self.scheduled)
        if self.pool:
            around(self.pool, "_maybe_evict_cached_block", after=self.taken)
        around(scheduler, "update_from_output", before=self.sampled)
        around(scheduler, "update_draft_token_ids", before=self.drafted)
        around(runner, "propose_draft_token_ids", before=lambda *_, **__: self.at("draft_s"))

    def begin(self, engine):
        """Empty the prefix cache."""
        if self.pool:
            engine.reset_prefix_cache()
        self.evicted = 0

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
        if not self.pool:
            return
        again = output.scheduled_cached_reqs
        computed = dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
        computed |= {request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs}
        self.step["computed"] = {number_of(name): tokens for name, tokens in computed.items()}
        held = len(self.pool.cached_block_hash_to_block)
        self.step["blocks"] = [self.pool.get_num_free_blocks(), held, self.evicted]

    def taken(self, had_content):
        """Count the blocks that lose their contents."""
        self.evicted += bool(had_content)

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
    tags, joined, steps, texts, whole = {}, {}, [], {}, {}
    observed.begin(engine)
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
        whole[tag] = (whole[tag] if request.get("follows") else []) + request["prompt"]
        engine.add_request(name, {"prompt_token_ids": whole[tag]}, sampling)
        joined[name] = time.perf_counter() - zero_s

    def opens_s(tag):
        return streams[tag][0]["not_before_s"]

    opening = sorted(streams, key=opens_s)
    while opening or engine.has_unfinished_requests():
        while opening and opens_s(opening[0]) <= time.perf_counter() - zero_s:
            join(opening.pop(0))
        if not engine.has_unfinished_requests():
            time.sleep(max(opens_s(opening[0]) - (time.perf_counter() - zero_s), 0))
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
                texts[name], tag = list(output.outputs[0].token_ids), tags[name]
                whole[tag] = whole[tag] + texts[name]
                if streams[tag]:
                    after = streams[tag][0]
                    after["not_before_s"] = max(after["not_before_s"], time.perf_counter() - zero_s + after["think_s"])
                    insort(opening, tag, key=opens_s)
    return {"joined_s": joined, "steps": steps, "texts": texts}


if __name__ == "__main__":
    main()
