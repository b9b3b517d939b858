"""Starts llama.cpp's server; it runs in the environment of the package xllamacpp, without specfleet.

The first line of input is the engine's settings (`engine/outside/job.py`); the answer is the server's address. The
server ends with the input. Models are folders of Hugging Face Llama models, written once as GGUF files.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import gguf
import xllamacpp
from safetensors.numpy import load_file

LAYER = {  # names of a layer's tensors
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def main():
    """Serve until the input ends; all that is printed but the answer goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one thread on one core: others would disturb its times
    server = xllamacpp.Server(params_of(settings))
    print(json.dumps({"version": xllamacpp.__version__, "url": server.listening_address}), file=answers, flush=True)
    sys.stdin.read()
    os._exit(0)  # without the server's own farewell, which waits for its clients


def params_of(settings):
    """Return the server's parameters; each slot has room for the longest text."""
    params = xllamacpp.CommonParams()
    params.model.path = str(written(Path(settings["target"])))
    params.n_parallel = settings["max_num_seqs"]
    params.n_ctx = settings["kv_tokens"] or params.n_parallel * settings["max_model_len"]
    params.n_batch = params.n_ubatch = settings["max_num_batched_tokens"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_prompt = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.endpoint_metrics = True
    if settings["speculative"]:
        draft = params.speculative.draft
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft.mparams.path = str(written(Path(settings["speculative"]["model"])))
        draft.n_max = draft.n_min = settings["speculative"]["num_speculative_tokens"]
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = 1
        draft.cache_type_k = draft.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return params


def written(folder):
    """Write a model as GGUF beside this environment, unless it is there; return the file."""
    content = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        content.update(path.read_bytes())
    path = Path(sys.prefix) / "models" / f"{content.hexdigest()[:16]}.gguf"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write(folder, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


def write(folder, path):
    """Write a Llama model of Hugging Face in float32; its tokens have numbers as texts."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        sys.exit(f"{folder}: a model of type {config['model_type']}; allowed on llama.cpp: llama")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or config
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{number}" for number in range(config["vocab_size"])])
    writer.add_token_scores([0.0] * config["vocab_size"])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_add_bos_token(False)
    tensors = {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}
    for name, value in tensors.items():
        rows = {"q_proj": heads, "k_proj": kv_heads}.get(name.split(".")[-2], 0)
        numbers = value.astype("float32")
        if rows:  # llama.cpp rotates neighbouring pairs, Hugging Face halves
            numbers = numbers.reshape(rows, 2, head // 2, -1).swapaxes(1, 2).reshape(value.shape)
        writer.add_tensor(name_of(name), numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def name_of(name):
    """Return llama.cpp's name of a tensor."""
    plain = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if not name.startswith("model.layers."):
        return plain.get(name, "output.weight")
    _, _, number, *part, _ = name.split(".")
    return f"blk.{number}.{LAYER['.'.join(part)]}.weight"


if __name__ == "__main__":
    main()
