"""A small causal transformer with heads for tokens and values, and a cache of keys and values for generation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

__all__ = ["Cache", "ChatTransformer"]

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (B, heads, positions, width / heads)."""


class _Layer(nn.Module):
    """A residual layer: attention, then two linear maps, each after a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self,
        inputs: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor] | None,
        places: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the layer's output, (B, T, width).

        Args:
            inputs: (B, T, width).
            cache: keys and values of earlier tokens, to which those of these tokens are added; None for no cache.
            places: position of each token in its row, (B, T), which a cache needs.
        """
        batch, length, width = inputs.shape
        projected = self.project(self.before(inputs)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        if cache is None or places is None:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            rows = torch.arange(batch)[:, None]
            for cached, new in zip(cache, (key, value), strict=True):
                cached[rows, :, places] = new.transpose(1, 2)
            earlier = torch.arange(cache[0].shape[2]) <= places[:, None, :, None]
            mixed = scaled_dot_product_attention(query, *cache, attn_mask=earlier)
        hidden = inputs + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = hidden + self.narrow(gelu(self.wide(self.between(hidden))))
        return result


class ChatTransformer(nn.Module):
    """A causal transformer that predicts tokens and values.

    Args:
        words: number of tokens in the vocabulary.
        width: width of the hidden state, a multiple of ``heads``.
        layers: number of layers.
        heads: number of attention heads.
        context: largest number of tokens in a sequence.
    """

    def __init__(self, words: int, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.1)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head, self.value = nn.Linear(width, words), nn.Linear(width, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, L, words) and values (B, L) after each token of complete sequences, int64 (B, L)."""
        hidden = self.hidden(ids)
        return self.head(hidden), self.value(hidden)[..., 0]

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the heads' inputs (B, L, width) after each token of complete sequences, int64 (B, L)."""
        inside = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            inside = layer(inside, None, None)
        last: torch.Tensor = self.last(inside)
        return last

    def cache(self, rows: int, places: int) -> Cache:
        """Return an empty cache for ``rows`` sequences of at most ``places`` tokens."""
        shape = (rows, self.heads, places, self.width // self.heads)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in self.layers]

    def extend(self, ids: torch.Tensor, places: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Return the logits (B, T, words) after further tokens of each sequence.

        Args:
            ids: the tokens, (B, T).
            places: position of each token in its sequence, (B, T). A later token may replace padding.
            cache: cache of the earlier tokens, to which these are added.
        """
        hidden = self.words(ids) + self.places(places)
        for layer, cached in zip(self.layers, cache, strict=True):
            hidden = layer(hidden, cached, places)
        logits: torch.Tensor = self.head(self.last(hidden))
        return logits
