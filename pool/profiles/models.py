"""What a model is, as far as memory and launch flags ask: its shape, its weights, its parsers. Pure data and sums."""

from __future__ import annotations

from pool.types import Frozen

BITS = {
    "float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "mxfp4": 4.25, "int4": 4.5, "fp4": 4.5,
}  # fmt: skip
"""Bits a weight takes on average; the 4-bit forms carry a scale for each group of 32 or so."""


class Shape(Frozen):
    """The sizes that KV cache and weights follow from.

    ``full`` layers keep KV of the whole context, ``sliding`` ones of the last ``reach`` tokens, ``linear`` ones a state
    of fixed size. ``latent`` is the number of values that MLA caches a token and layer, instead of keys and values.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    full: int
    sliding: int = 0
    reach: int = 0
    linear: int = 0
    latent: int | None = None

    def kv_values(self, tensor_parallel: int = 1) -> int:
        """Values cached for one token in one layer on one GPU; heads are split, fewer than one of them never is."""
        if self.latent is not None:
            return self.latent  # every rank of MLA holds the whole latent
        return 2 * -(-self.kv_heads // tensor_parallel) * self.head_dim


class Model(Frozen):
    """One model. ``parameters`` and ``active`` are counts; None is unknown, never zero.

    ``stored`` says how weights are kept (a key of BITS), ``weight_bytes`` how many bytes they take where that was
    measured. ``sparse``: DeepSeek's sparse attention (DSA), which HiSparse needs. ``parsers_from`` and ``weights_from``
    tell where those facts come from; ``flags`` are what the model needs beyond its parsers, each with its reason.
    """

    name: str
    kind: str
    shape: Shape
    window: int | None
    parameters: float | None = None
    active: float | None = None
    stored: str = "bfloat16"
    weight_bytes: int | None = None
    weights_from: str = ""
    experts: int = 0
    sparse: bool = False
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    parsers_from: str = ""
    flags: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def bytes_of_weights(self) -> int | None:
        """Measured where known, else parameters times bits; None where neither is known."""
        if self.weight_bytes is not None:
            return self.weight_bytes
        return None if self.parameters is None else int(self.parameters * BITS[self.stored] / 8)


class Sizes(Frozen):
    """What the parameter count of a transformer follows from, as its config.json names them."""

    vocab: int
    hidden: int
    layers: int
    inner: int = 0
    tied: bool = False
    experts: int = 0
    expert_inner: int = 0
    shared_inner: int = 0
    dense_layers: int = 0
    per_token: int = 0


def counted(sizes: Sizes, attention: int) -> tuple[float, float]:
    """Parameters in all, and those used for one token, from the sizes; ``attention`` is the count of one layer.

    Norms and biases are left out (well under 1 %). Gated feed-forward layers are assumed: three matrices each.
    """
    dense = sizes.dense_layers if sizes.experts else sizes.layers
    sparse = sizes.layers - dense
    one = 3 * sizes.hidden * sizes.expert_inner
    shared = 3 * sizes.hidden * sizes.shared_inner + sizes.hidden * sizes.experts
    always = (
        sizes.vocab * sizes.hidden * (1 if sizes.tied else 2)
        + sizes.layers * attention
        + dense * 3 * sizes.hidden * sizes.inner
        + sparse * shared
    )
    return float(always + sparse * sizes.experts * one), float(always + sparse * sizes.per_token * one)
