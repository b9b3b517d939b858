"""Drives OpenVINO GenAI's continuous batching; it runs in an environment of its own, without specfleet.

The first line of input is the engine's settings, each further one a workload; `engine/outside/job.py` has both. The
answers say when the tokens of each request came: the scheduler does not tell what it put into a step.
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
WARM_UP = {  # first steps compile
    "streams": [[{"number": number, "prompt": [1] * 16, "new_tokens": 16, "not_before_s": 0.0}] for number in range(2)]
}


def main():
    """Answer each line of input with one of output; all else that is printed goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one thread on one core: others would disturb its times
    pipeline, depth = started(settings), settings["speculative"].get("num_speculative_tokens", 0)
    served(pipeline, depth, WARM_UP)
    print(json.dumps({"version": openvino_genai.__version__, "answers": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(served(pipeline, depth, json.loads(line))), file=answers, flush=True)


def started(settings):
    """Start the engine with the settings."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = settings["max_num_batched_tokens"]
    scheduler.max_num_seqs = settings["max_num_seqs"]
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = 1  # GB
    options = {"scheduler_config": scheduler, "device": "CPU", "properties": ONE_THREAD}
    if settings["speculative"]:
        drafter = exported(Path(settings["speculative"]["model"]))
        options["properties"] = ONE_THREAD | {"draft_model": openvino_genai.draft_model(drafter, "CPU", **ONE_THREAD)}
    return openvino_genai.ContinuousBatchingPipeline(exported(Path(settings["target"])), **options)


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


def read(handle):
    """Return how many tokens a request got since the last call, in a list; an empty one for none."""
    tokens = sum(len(output.generated_ids) for output in handle.read().values()) if handle.can_read() else 0
    return [tokens] if tokens else []


def served(pipeline, depth, job):
    """Serve the streams of a workload; return when the tokens of each request came."""
    streams = {tag: deque(requests) for tag, requests in enumerate(job["streams"])}
    running, answers = {}, []
    zero_s = time.perf_counter()

    def join(tag):
        request = streams[tag].popleft()
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = request["new_tokens"], True, False
        config.set_eos_token_id(0)  # ignored, but it has to be one
        if depth:
            config.num_assistant_tokens = depth
        prompt = openvino.Tensor(numpy.array([request["prompt"]], dtype=numpy.int64))
        handle = pipeline.add_request(request["number"], prompt, config)
        running[request["number"]] = tag, request, handle, time.perf_counter() - zero_s, []

    opening = deque(sorted(streams, key=lambda tag: streams[tag][0]["not_before_s"]))
    while opening or running:
        while opening and streams[opening[0]][0]["not_before_s"] <= time.perf_counter() - zero_s:
            join(opening.popleft())
        if not running:
            time.sleep(max(streams[opening[0]][0]["not_before_s"] - (time.perf_counter() - zero_s), 0))
            continue
        pipeline.step()
        now_s = time.perf_counter() - zero_s
        for number, (tag, request, handle, sent_s, chunks) in list(running.items()):
            chunks.extend((now_s, tokens) for tokens in read(handle))
            if sum(tokens for _, tokens in chunks) >= request["new_tokens"]:
                del running[number]
                answers.append({"number": number, "sent_s": sent_s, "chunks": chunks})
                if streams[tag]:
                    join(tag)
    return {"answers": answers, "counted": {}}


if __name__ == "__main__":
    main()
