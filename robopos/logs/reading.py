"""One stream of a log while it is read: its channels, its decoder, its columns."""

from __future__ import annotations

from robopos.errors import LogError
from robopos.logs.columns import Columns, Tally
from robopos.logs.decoder import Decoder
from robopos.logs.records import StreamSpec
from robopos.logs.source import Part, Source, no_topic, schema_of


class Reading:
    """One stream while it is read."""

    def __init__(self, name: str, spec: StreamSpec, source: Source) -> None:
        self.name = name
        self.spec = spec
        self.source = source
        held = source.channels(spec.topic)
        if not held:
            raise LogError(f"stream {name!r}: {no_topic(source, spec.topic)}")
        self.where = f"{source.name}: topic {held[0][1].topic}"
        container, channel = held[0]
        self.type, self.schema = schema_of(container, channel)
        self.topic, self.encoding = channel.topic, channel.encoding
        if not self.type and self.encoding != "json":
            raise LogError(f"{self.where}: no schema is declared for it, so its fields are unknown")
        self.decoder = self._decoder(self.schema)
        for other_container, other in held[1:]:
            other_type, other_schema = schema_of(other_container, other)
            if other_type != self.type or other.encoding != self.encoding:
                raise LogError(f"{self.where} carries both {self.type} and {other_type or 'no schema'}")
            if other_schema != self.schema and not self._decoder(other_schema).same_type(self.decoder):
                raise LogError(f"{self.where} carries two different definitions of {self.type}")
        self.ids = {(id(item), one.id) for item, one in held}
        self.columns = Columns.empty(0, 0)
        self.tallies: list[Tally] = []

    def _decoder(self, schema: str) -> Decoder:
        try:
            return Decoder(self.type, schema, self.spec.fields, self.encoding)
        except LogError as error:
            raise LogError(f"{self.where}: {error}") from None

    def blocks(self) -> list[tuple[Part, int, int]]:
        """(block, channel id, messages) wherever the stream has messages, in file order."""
        found = []
        for part in self.source.parts:
            for channel in part.container.channels_of(part.block):
                if (id(part.container), channel) in self.ids:
                    found.append((part, channel, part.container.count(part.block, channel)))
        return found

    @property
    def broken(self) -> int:
        """How many messages did not decode."""
        return sum(tally.broken for tally in self.tallies)

    def held(self) -> list[str]:
        """Every name below the asked fields that some message holds."""
        return list(dict.fromkeys(name for tally in self.tallies for name in tally.held))

    def expand_by_names(self) -> bool:
        """Whether blocks held names that the columns lack; the decoder has them all now."""
        found: list[dict[str, None]] = [{} for _ in self.spec.fields]
        for tally in self.tallies:
            for column, more in zip(found, tally.found, strict=True):
                column.update(more)
        return self.decoder.widen([tuple(column) for column in found])
