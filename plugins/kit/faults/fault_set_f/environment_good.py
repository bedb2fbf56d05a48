"""Two more correct environments, of unusual traits."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hal import EpisodeError
from plugins.kit.faults.fault_set_f.common import NOTHING, check_turn, good
from plugins.kit.faults.fault_set_f.environments import Auction, Cisterns


@good("environment")
class ReadOnlyCisterns(Cisterns):
    """Cisterns whose observations are read-only arrays in a read-only mapping; frames count over the whole life."""

    def first_frame(self) -> int:
        return self.frame + 1 if self.frame else 0

    def seen(self) -> Any:
        seen = super().seen()
        for value in seen.values():
            value.setflags(write=False)
        return MappingProxyType(seen)


@good("environment")
class ShortAuction(Auction):
    """An auction of one item by default, whose tables are layered mappings; a refused reset ends the episode."""

    description = replace(
        Auction.description,
        reset_options={**Auction.description.reset_options, "left": "whole number from 1 to 6: items, by default 1"},
    )

    def check_options(self, options: Any) -> None:
        self.running = False
        super().check_options(options)

    def begin(self, options: Any) -> None:
        super().begin({"left": 1, **options})

    def seen(self) -> Any:
        seen = super().seen()
        return ChainMap({"item": seen.pop("item")}, seen)

    def step(self, action: Any, extra_info: Any = NOTHING) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            check_turn(self.running, "step")
        except EpisodeError as error:
            raise RuntimeError(str(error)) from None
        return super().step(action, extra_info)


@good("environment")
class ListedAuction(Auction):
    """An auction whose hidden state is a list of the items that follow, which is empty at last."""

    description = replace(
        Auction.description,
        extra_info={**Auction.description.extra_info, "state": "hidden from the agents: the items that follow"},
    )

    def hidden(self) -> dict[str, Any]:
        return {"next": list(self.items[1:])}
