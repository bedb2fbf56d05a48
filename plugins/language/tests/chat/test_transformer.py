"""The small transformer: what it writes with a cache is what it computes from whole rows."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rlenv_language.chat.transformer import ChatTransformer  # noqa: E402  (needs torch)


def test_a_cache_gives_the_logits_of_whole_rows_whatever_the_padding():
    torch.manual_seed(0)
    model = ChatTransformer(words=11, width=8, layers=2, heads=2, context=16).eval()
    rows = [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10]]
    further = [[4, 2, 1], [5, 5, 3]]
    with torch.no_grad():
        expected = [model(torch.tensor([row + more]))[0][0] for row, more in zip(rows, further, strict=True)]
        padded = torch.zeros(2, 7, dtype=torch.long)
        for row, ids in enumerate(rows):
            padded[row, : len(ids)] = torch.tensor(ids)
        cache = model.cache(2, 10)
        logits = model.extend(padded, torch.arange(7).expand(2, 7), cache)
        lengths = torch.tensor([7, 3])
        for row in range(2):
            end = len(rows[row])
            assert torch.allclose(logits[row, :end], expected[row][:end], atol=1e-5)
        for number in range(3):
            ids = torch.tensor([[further[row][number]] for row in range(2)])
            after = model.extend(ids, (lengths + number)[:, None], cache)[:, 0]
            for row in range(2):
                assert torch.allclose(after[row], expected[row][len(rows[row]) + number], atol=1e-5)


def test_a_token_depends_on_no_later_one():
    torch.manual_seed(1)
    model = ChatTransformer(words=7, width=8, layers=2, heads=2, context=8).eval()
    with torch.no_grad():
        one, other = model(torch.tensor([[1, 2, 3, 4]])), model(torch.tensor([[1, 2, 6, 5]]))
    assert torch.equal(one[0][0, :2], other[0][0, :2])
    assert torch.equal(one[1][0, :2], other[1][0, :2])
    assert not torch.allclose(one[0][0, 2], other[0][0, 2])
