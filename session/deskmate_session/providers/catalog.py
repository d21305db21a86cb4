"""What is known of models: data, overridable by `[providers.NAME.models.MODEL]`.

Ids are those of the SDKs' types (anthropic 2.14, openai 3.57); windows and prices stand only where the
providers' published tables gave them, else None. The last table checked is of May 2026.
"""

from dataclasses import dataclass

from deskmate_session.model.messages import Usage

DEFAULT_MAX_OUTPUT = 8192


@dataclass(frozen=True, slots=True)
class Price:
    """Micro-dollars per million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model's measures; None where unknown."""

    context_window: int | None = None
    """Tokens of prompt and answer together."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Tokens of one answer at most."""
    price: Price | None = None

    def cost(self, usage: Usage) -> int | None:
        """Return the cost in micro-dollars, rounded up; None when the price is unknown."""
        if self.price is None:
            return None
        total = (
            usage.input * self.price.input
            + usage.output * self.price.output
            + usage.cache_read * self.price.cache_read
            + usage.cache_write * self.price.cache_write
        )
        return -(-total // 1_000_000)


DEFAULT_MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5.5"}
"""What an API key alone starts with."""


def _anthropic(dollars_in: int, dollars_out: int) -> Price:
    # A cache hit costs a tenth of the input, writing it for 5 minutes a quarter more.
    micro = dollars_in * 1_000_000
    return Price(micro, dollars_out * 1_000_000, micro // 10, micro * 5 // 4)


def _openai(input: int, output: int, cached: int) -> Price:
    return Price(input, output, cached, input)


CATALOG: dict[str, dict[str, ModelInfo]] = {
    "anthropic": {
        "claude-sonnet-5-5": ModelInfo(),
        "claude-opus-5-5": ModelInfo(),
        "claude-haiku-5-5": ModelInfo(),
        "claude-fable-5-2": ModelInfo(),
        "claude-mythos-5-2": ModelInfo(),
        "claude-sonnet-5": ModelInfo(),
        "claude-opus-5": ModelInfo(),
        "claude-opus-4-8": ModelInfo(),
        "claude-opus-4-7": ModelInfo(1_000_000, 128_000, _anthropic(5, 25)),
        "claude-opus-4-6": ModelInfo(1_000_000, 128_000, _anthropic(5, 25)),
        "claude-opus-4-5": ModelInfo(200_000, 64_000, _anthropic(5, 25)),
        "claude-sonnet-4-6": ModelInfo(1_000_000, 64_000, _anthropic(3, 15)),
        "claude-sonnet-4-5": ModelInfo(200_000, 64_000, _anthropic(3, 15)),
        "claude-haiku-4-5": ModelInfo(200_000, 64_000, _anthropic(1, 5)),
    },
    "openai": {
        "gpt-6.2-sol": ModelInfo(),
        "gpt-6-luna": ModelInfo(),
        "gpt-5.6-sol": ModelInfo(),
        "gpt-5.5": ModelInfo(),
        "gpt-5.4": ModelInfo(),
        "gpt-5.4-mini": ModelInfo(),
        "gpt-5": ModelInfo(400_000, 128_000, _openai(1_250_000, 10_000_000, 125_000)),
        "gpt-5-mini": ModelInfo(400_000, 128_000, _openai(250_000, 2_000_000, 25_000)),
        "gpt-4.1": ModelInfo(1_047_576, 32_768, _openai(2_000_000, 8_000_000, 500_000)),
        "gpt-4.1-mini": ModelInfo(1_047_576, 32_768, _openai(400_000, 1_600_000, 100_000)),
    },
}
"""Provider name → model → what is known."""
