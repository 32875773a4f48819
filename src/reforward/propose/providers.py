"""Who answers for a model: OpenAI's chat protocol or Anthropic's messages, each through its official client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import genai_prices
from openai import AsyncOpenAI
from pydantic_ai import ModelMessage, ModelSettings, RunContext, RunUsage
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

Protocol = Literal["openai", "anthropic"]
MOST_ANSWER = 16_384
"""Tokens of one answer; Anthropic's protocol wants a limit (https://docs.anthropic.com/en/api/messages)."""
FINISHED = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
"""An answer that breaks off is an error, not an answer."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a model is asked."""

    protocol: Protocol
    model: str
    key: str
    base_url: str | None = None
    """None for the vendor's own."""
    answer_s: float = 120.0
    """Longest silence."""
    retries: int = 2
    """Of one request, by the client itself, for errors that may pass."""

    def price(self, usage: RunUsage) -> float | None:
        """US dollars, by the list prices of https://github.com/pydantic/genai-prices; None if they do not know this model.

        pydantic-ai's own count goes by the name that the answers carry, which servers choose freely.
        """
        try:
            return float(genai_prices.calc_price(usage, self.model, provider_id=self.protocol).total_price)
        except LookupError:
            return None


class Whole(WrapperModel):
    """A model whose answers that break off are errors; OpenAI's has a setting for that."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """An answer without a reason why it ended raises `ModelAPIError`."""
        asked = (messages, model_settings, model_request_parameters, run_context)
        async with super().request_stream(*asked) as stream:
            yield stream
        if stream.finish_reason is None and not stream.cancelled:
            raise ModelAPIError(model_name=self.model_name, message="the streamed answer ended without a stop_reason")


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncGenerator[Model]:
    """The model, while its client is open."""
    if endpoint.protocol == "openai":
        async with AsyncOpenAI(
            api_key=endpoint.key, base_url=endpoint.base_url, timeout=endpoint.answer_s, max_retries=endpoint.retries
        ) as client:
            yield OpenAIChatModel(endpoint.model, provider=OpenAIProvider(openai_client=client), profile=FINISHED)
        return
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
    from pydantic_ai.providers.anthropic import AnthropicProvider

    async with AsyncAnthropic(
        api_key=endpoint.key, base_url=endpoint.base_url, timeout=endpoint.answer_s, max_retries=endpoint.retries
    ) as client:
        settings = AnthropicModelSettings(max_tokens=MOST_ANSWER, anthropic_cache_messages=True)
        provider = AnthropicProvider(anthropic_client=client)
        yield Whole(AnthropicModel(endpoint.model, provider=provider, settings=settings))
