"""Readers of other engines' records, one small file a format; each gives a `Recording`, of which a scenario is made.

recording.py        what every reader gives
entries.py          JSON, a list of JSON or JSON Lines, as named entries
laws.py             identities that a format promises, checked to the digits that are written
counts.py           counts of rounds by drafted and accepted tokens, as an acceptance model
requests.py         the counts of one request under our names, and their laws
responses.py        vLLM, SGLang, AIPerf: where their responses and records have these counts
load.py             the load of a server, and ways to the time of a round
prometheus.py       Prometheus text: samples, differences, histograms, counters of drafts
vllm_metrics.py     vLLM: Prometheus text, one scrape or two
llama_cpp.py        llama.cpp: answers of its server, and its log
llama_cpp_metrics.py llama.cpp: Prometheus text, one scrape or two
log_lines.py        the load in lines of a log
vllm_log.py         vLLM: its log's lines of acceptance and load
sglang_log.py       SGLang: its log's lines "Decode batch"
clients.py          the load as a client timed it, request by request
bench.py            vLLM, SGLang: results of their benchmarks
reports.py          GuideLLM, inference-perf: reports of clients
signatures.py       which tool wrote a file, where a reader gives up
served.py           a load as a scenario: step times, settings, workload
"""
