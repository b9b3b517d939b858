"""Drives OpenVINO GenAI's continuous batching; it runs in an environment of its own, without specfleet.

The first line of input is the engine's settings, each further one a workload (`engine/outside/job.py`); the answers
are how many rows each step had, which of them got tokens, and when (`bench/others.py`). Numbers of drafts are unknown.
"""

import hashlib
import json
import os
import sys
import time
from collections import deque
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino_tokenizers import convert_tokenizer
from optimum.intel import OVModelForCausalLM
from transformers import AutoTokenizer

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
BLOCK = 32  # tokens of a KV block on the cpu
WARM_UP_S = 10.0  # at most, for prompts of different lengths


def main():
    """Answer each line of input with one of output; all else that is printed goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one thread on one core: others would disturb its times
    pipeline = started(settings)
    warm_up(pipeline, settings)
    facts = {"version": openvino_genai.__version__, "block_size": BLOCK, "kv_blocks": settings["kv_tokens"] // BLOCK}
    # Times of drafts are unknown, and rows share a short cache by another rule.
    facts["answers"] = bool(settings["speculative"] or settings["kv_tokens"])
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(served(pipeline, settings, json.loads(line))), file=answers, flush=True)


def started(settings):
    """Start the engine with the settings."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = settings["max_num_batched_tokens"]
    scheduler.max_num_seqs = settings["max_num_seqs"]
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    if settings["kv_tokens"]:
        scheduler.num_kv_blocks = settings["kv_tokens"] // BLOCK
    else:
        scheduler.cache_size = 1  # GB
    properties, drafts = dict(ONE_THREAD), settings["speculative"]
    if drafts and drafts["method"] == "ngram":
        properties["prompt_lookup"] = True
    elif drafts:
        properties["draft_model"] = openvino_genai.draft_model(exported(Path(drafts["model"])), "CPU", **ONE_THREAD)
    return openvino_genai.ContinuousBatchingPipeline(
        exported(Path(settings["target"])), scheduler_config=scheduler, device="CPU", properties=properties
    )


def warm_up(pipeline, settings):
    """Run each number of rows, and prompts of all lengths: the first step of a size takes some milliseconds more."""
    rows, zero_s = settings["max_num_seqs"], time.perf_counter()
    run(pipeline, settings, [(16, 16 + 4 * row) for row in range(rows)])
    for tokens in range(1, min(settings["max_num_batched_tokens"], settings["max_model_len"] or 512)):
        if time.perf_counter() - zero_s > WARM_UP_S:
            return
        run(pipeline, settings, [(tokens, 1)])


def run(pipeline, settings, lengths):
    """Run requests of given lengths, all at once."""
    requests = [
        {"number": number, "prompt": [1] * tokens, "new_tokens": new_tokens, "not_before_s": 0.0}
        for number, (tokens, new_tokens) in enumerate(lengths)
    ]
    job = {"streams": [[request] for request in requests], "sampling": {"temperature": 0}}
    served(pipeline, settings, job)


def exported(folder):
    """Export a model beside this environment, unless it is there; return its folder."""
    content = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        content.update(path.read_bytes())
    place = Path(sys.prefix) / "models" / content.hexdigest()[:16]
    if not (place / "openvino_model.xml").exists():
        tokenizer, detokenizer = convert_tokenizer(AutoTokenizer.from_pretrained(folder), with_detokenizer=True)
        place.mkdir(parents=True, exist_ok=True)
        openvino.save_model(tokenizer, place / "openvino_tokenizer.xml")
        openvino.save_model(detokenizer, place / "openvino_detokenizer.xml")
        OVModelForCausalLM.from_pretrained(folder, export=True, compile=False, load_in_8bit=False).save_pretrained(
            place
        )
    return str(place)


def config_of(settings, sampling, request):
    """Return how a request is decoded: to its length, whatever the text."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos = request["new_tokens"], True
    config.set_eos_token_id(0)  # ignored, but it has to be one
    config.do_sample = sampling["temperature"] > 0
    if config.do_sample:
        config.temperature, config.top_p = sampling["temperature"], sampling["top_p"]
        if sampling["top_k"] > 0:  # else all tokens
            config.top_k = sampling["top_k"]
        config.rng_seed = request["number"]
    drafts = settings["speculative"]
    if drafts:
        config.num_assistant_tokens = drafts["num_speculative_tokens"]
        config.max_ngram_size = drafts.get("prompt_lookup_max", 0)
    return config


def admit(pipeline, settings, sampling, waiting, running):
    """Hand requests over in order; with `dynamic_split_fuse` the scheduler itself does not look at `max_num_seqs`."""
    while waiting and len(running) < settings["max_num_seqs"]:
        tag, request = waiting.popleft()
        prompt = openvino.Tensor(numpy.array([request["prompt"]], dtype=numpy.int64))
        handle = pipeline.add_request(request["number"], prompt, config_of(settings, sampling, request))
        running[request["number"]] = tag, request, handle


def stepped(pipeline, running):
    """Run a step; return the tokens of each request that got some, and how many requests were in it."""
    pipeline.step()
    tokens = {}
    for number, (_, _, handle) in running.items():
        while handle.can_read():
            for output in handle.read().values():
                tokens.setdefault(number, []).extend(output.generated_ids)
    return tokens, pipeline.get_metrics().scheduled_requests


def served(pipeline, settings, job):
    """Serve the streams of a workload; return its requests, and the steps in order."""
    streams = {tag: deque(requests) for tag, requests in enumerate(job["streams"])}
    waiting, running, joined, steps, texts = deque(), {}, {}, [], {}
    zero_s = time.perf_counter()

    def now_s():
        return time.perf_counter() - zero_s

    def join(tag):
        request = streams[tag].popleft()
        joined[request["number"]], texts[request["number"]] = now_s(), []
        waiting.append((tag, request))

    opening = deque(sorted(streams, key=lambda tag: streams[tag][0]["not_before_s"]))
    while opening or waiting or running:
        while opening and streams[opening[0]][0]["not_before_s"] <= now_s():
            join(opening.popleft())
        admit(pipeline, settings, job["sampling"], waiting, running)
        if not running:
            time.sleep(max(streams[opening[0]][0]["not_before_s"] - now_s(), 0))
            continue
        start_s = now_s()
        tokens, counted = stepped(pipeline, running)
        rows = {number: [0, 0, len(own)] for number, own in tokens.items()}
        steps.append({"rows": rows, "start_s": start_s, "end_s": now_s(), "counted": counted})
        for number, own in tokens.items():
            texts[number] += own
            tag, request, _ = running[number]
            if len(texts[number]) >= request["new_tokens"]:
                del running[number]
                if streams[tag]:
                    join(tag)
    return {"joined_s": joined, "steps": steps, "texts": texts}


if __name__ == "__main__":
    main()
