"""Readers of other engines' records, one small file a format; each gives a `Recording`, of which a scenario is made.

recording.py        what every reader gives
entries.py          JSON, a list of JSON or JSON Lines, as named entries
laws.py             identities that a format promises, checked to the digits that are written
counts.py           counts of rounds by drafted and accepted tokens, as an acceptance model
requests.py         the counts of one request under our names, and their laws
responses.py        vLLM, SGLang, AIPerf: where their responses and records have these counts
vllm_metrics.py     vLLM: Prometheus text, one scrape or two
vllm_log.py         vLLM: its log's lines "SpecDecoding metrics"
specdecode_bench.py SpecDecode-Bench: acceptance by place
amusd.py            AMUSD: run files of its authors
amusd_clocks.py     AMUSD: what the clocks of those runs leave out
"""
