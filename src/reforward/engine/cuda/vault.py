"""The vault of a device: each shelf is sealed in host memory first, then moved to the device, where workers map it read-only."""

import os
from pathlib import Path

from reforward.engine.cuda.card import Card
from reforward.engine.cuda.holder import Holder
from reforward.engine.vault import Shelf, Vault
from reforward.engine.wire import Probed, Stored, Swept


class DeviceVault(Vault):
    """As `Vault`. `arenas` holds a descriptor of device memory by key, which forks of this process inherit."""

    def __init__(self, root: Path, *, private: bool, card: Card) -> None:
        super().__init__(root, private=private)
        self.card = card
        self.holder = Holder(card)
        self.arenas: dict[str, int] = {}

    def seal(self, key: str, tensors: tuple[Stored, ...]) -> Shelf:
        """Check as the host's vault does, copy to the device, and free the host's copy."""
        shelf = super().seal(key, tensors)
        with shelf.path.open("rb") as file:
            self.arenas[key] = self.holder.upload(key, file.fileno(), shelf.path.stat().st_size)
        super().drop(key)
        self.shelves[key] = shelf
        return shelf

    def drop(self, key: str) -> None:
        """Forget a shelf on both sides."""
        super().drop(key)
        if key in self.arenas:
            os.close(self.arenas.pop(key))
            self.holder.drop(key)

    def sweep(self) -> Swept:
        """Read all of it once, on the device."""
        return self.holder.sweep()

    def probe(self) -> Probed:
        """How fast the device reads."""
        return self.holder.probe()

    def close(self) -> None:
        """End the holder, and with it all memory that no worker maps."""
        self.holder.close()
        for descriptor in self.arenas.values():
            os.close(descriptor)
        self.arenas.clear()
        super().close()
