"""Profiles about how the engine computes: long prompts, speculation, small machines, split layers. Pure."""

from __future__ import annotations

from pool.errors import PoolConfigError
from pool.profiles.parts import AFD, HOST_MEMORY, LMCACHE, Made, Part, wants_gpu
from pool.profiles.pieces import Variable, Wish, flag, transfer

AFD_VERSION = "0.30.0"
AFD_KINDS = frozenset({
    "DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
    "Qwen3MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
})  # fmt: skip


def agents(_wish: Wish) -> Made:
    return Made(parts=(Part(),))


def long_context(wish: Wish) -> Made:
    pieces = [
        flag(
            "--long-prefill-token-threshold",
            4096,
            why="a long prompt takes at most so many tokens of a step, so that the others go on decoding",
        )
    ]
    notes = []
    width = _context_parallel(wish)
    if width > 1:
        why = f"KV is spread over {width} GPUs that would each hold the same"
        pieces.append(flag("--decode-context-parallel-size", width, why=why))
        notes.append(f"with it a server holds about {width} times the KV tokens that the plan counts")
    else:
        notes.append("decode context parallel is left out: no two GPUs of this split hold the same KV")
    return Made(parts=(Part(pieces=tuple(pieces)),), notes=tuple(notes))


def _context_parallel(wish: Wish) -> int:
    """How many GPUs hold the same KV: all with MLA, else those beyond one for each KV head (vLLM's own rule)."""
    shape = wish.model.shape
    if shape.latent is not None:
        return wish.tensor_parallel
    width = wish.tensor_parallel // shape.kv_heads if wish.tensor_parallel > shape.kv_heads else 1
    queries = shape.heads // shape.kv_heads
    return max(n for n in range(1, width + 1) if width % n == 0 and queries % n == 0)


def speculative(wish: Wish) -> Made:
    notes: tuple[str, ...]
    if wish.draft is None:
        told: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
        why = "guesses the next tokens from the prompt: edits repeat the file they change; no second model"
        notes = ("n-gram guesses pay where output repeats input; watch vllm:spec_decode_num_accepted_tokens",)
    else:
        told = {"method": "eagle3", "model": wish.draft, "num_speculative_tokens": 3}
        why = "an EAGLE-3 head made for this very model guesses the next tokens"
        notes = ()
    return Made(parts=(Part(pieces=(flag("--speculative-config", told, why=why, must=True),)),), notes=notes)


def cpu(wish: Wish) -> Made:
    space = wish.host_memory or 4.0
    if space != int(space):
        raise PoolConfigError(
            f"vLLM takes whole GiB of KV on a CPU, not {space:g}; say --host-memory {max(1, round(space))}"
        )
    pieces = (
        flag("--dtype", "float32", why="without AVX-512 a bfloat16 product falls back to a slow path"),
        flag("--enforce-eager", why="compiling takes minutes on a CPU and gains little for a small model"),
        flag(
            "--structured-outputs-config",
            {"backend": "xgrammar", "disable_any_whitespace": True},
            why="small models spend a JSON answer's tokens on blanks where the grammar lets them",
        ),
    )
    env = [
        Variable(name="VLLM_CPU_KVCACHE_SPACE", value=f"{space:g}", why="GiB for KV"),
        Variable(name="VLLM_CPU_OMP_THREADS_BIND", value="auto", why="the processors of each rank, as vLLM finds them"),
    ]
    if wish.libraries:
        why = "vLLM's own OpenMP decodes several times faster than the one that torch would load"
        env.append(Variable(name="LD_PRELOAD", value=":".join(wish.libraries), why=why))
    notes = ("a request with its own seed and a long prompt kills a vLLM on CPU (seen in 0.32); the pool sends none",)
    return Made(parts=(Part(pieces=pieces, env=tuple(env)),), notes=notes)


def small_gpu(wish: Wish) -> Made:
    wants_gpu(wish, "small-gpu")
    pieces = (
        flag("--max-num-batched-tokens", 2048, why="smaller steps keep fewer activations, which leaves room for KV"),
        flag("--gpu-memory-utilization", 0.95, why="the card serves nothing else"),
        flag("--max-cudagraph-capture-size", 32, why="few graphs: each takes memory, and few agents fit anyway"),
    )
    return Made(parts=(Part(pieces=pieces),))


def afd(wish: Wish) -> Made:
    wants_gpu(wish, "afd")
    if wish.model.kind not in AFD_KINDS:
        raise PoolConfigError(
            f"profile afd: the plugin serves {', '.join(sorted(AFD_KINDS))}; {wish.model.name} is a {wish.model.kind}"
        )
    ranks = wish.tensor_parallel
    common = {
        "connector": "P2pNcclAFDConnector", "host": "127.0.0.1", "port": 6239,
        "num_attention_ranks": ranks, "num_ffn_ranks": ranks,
    }  # fmt: skip
    runner = Variable(name="VLLM_USE_V2_MODEL_RUNNER", value="0", why="the plugin's tried runner")
    parts = tuple(
        Part(
            role=role,
            port=place,
            pieces=(
                flag(
                    "--additional-config",
                    {"afd": {"role": name} | common},
                    why=f"this server computes the {name}",
                    must=True,
                ),
                flag("--enable-expert-parallel", why="the plugin hands tokens over at the experts"),
                flag("--enforce-eager", why="the plugin's simplest mode"),
            ),
            env=(runner,),
        )
        for place, (role, name) in enumerate((("both", "attention"), ("ffn", "ffn")))
    )
    return Made(
        parts=parts,
        modules=(AFD,),
        notes=("experimental; only the attention server is asked", "the two servers need GPUs of their own"),
        only=AFD_VERSION,
    )


def layerwise(wish: Wish) -> Made:
    wants_gpu(wish, "layerwise")
    if wish.connector in {None, "weights"}:
        pieces = (
            flag("--offload-backend", "prefetch", why="weights of some layers stay in host memory", must=True),
            flag("--offload-group-size", 8, why="of every 8 layers ...", must=True),
            flag("--offload-num-in-group", 2, why="... the last 2 are fetched while the others compute", must=True),
            flag("--offload-prefetch-step", 1, why="how many layers ahead"),
        )
        notes = ("a quarter of the layers' weights leaves the GPU; decode slows to what the host link carries",)
        return Made(parts=(Part(pieces=pieces),), notes=notes)
    if wish.connector != "lmcache":
        raise PoolConfigError(f"profile layerwise knows weights and the connector lmcache, not {wish.connector!r}")
    if wish.model.shape.latent is not None:
        raise PoolConfigError("profile layerwise: LMCache moves no MLA cache layer by layer")
    size = wish.host_memory or HOST_MEMORY
    extra = {"use_layerwise": True, "lmcache.use_layerwise": True, "lmcache.max_local_cpu_size": size}
    why = "each layer's KV is moved while the next one computes, rather than all of it before or after"
    return Made(
        parts=(Part(pieces=(transfer("LMCacheConnectorV1", "kv_both", why, **extra),)),),
        modules=(LMCACHE,),
    )
