from collections.abc import Iterable, Sequence
from typing import Any, final

from typing_extensions import Self

from . import Kernel, PreparedKernel, Runtime

__all__: list[str]

class ScriptedRuntime(Runtime):
    def __new__(
        cls,
        clock_offset_ns: int = 0,
        drift_ppm: float = 0.0,
        tick_ns: float = 1.0,
        counter_bits: int = 64,
        queues: int = 1,
        devices: int = 1,
    ) -> Self: ...
    def prepare(  # type: ignore[override]
        self, name: str | Kernel, inputs: Sequence[Any] = (), output_size: int | Sequence[int] | None = 0
    ) -> PreparedKernel: ...
    def script(
        self, entries: Iterable[tuple[int, int] | BaseException | None], queue: int = 0, device: int = 0
    ) -> None: ...
    @property
    def untimed_dispatches(self) -> int: ...
    @property
    def timed_dispatches(self) -> int: ...

@final
class scripted_clock:
    def __new__(cls, start_ns: int = 1_000_000) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def advance(self, ns: int, /) -> None: ...
    @property
    def now(self) -> int: ...
