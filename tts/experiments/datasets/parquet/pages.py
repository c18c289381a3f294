"""Reads the headers of a Parquet file's pages.

The size of pages in memory is known before anything is unpacked.

Idea: the footer of a file states sizes that readers do not check. Each page begins with a header that states the memory
    allocated for the page. All headers of a column are read in the order of a reader, and their sizes are added up.
Source: the Parquet format, https://github.com/apache/parquet-format, PageHeader in parquet.thrift; Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

BY_PREFIXES: Final = 7  # the encoding DELTA_BYTE_ARRAY, in which a text may repeat the beginning of the text before
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # PageType
_HEADER_OF: Final = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}  # the field of PageHeader by type of page
_ENCODING_FIELD: Final = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_WINDOW: Final = 1 << 12  # bytes of a first attempt to read a header
_LONGEST: Final = 1 << 24  # bytes of a header that readers take
_DEEPEST: Final = 16


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a column.

    Args:
        size: The bytes of the page in memory before values are decoded.
        values: The number of values; 0 for a dictionary, whose entries are no values.
        encoding: The number of the encoding.
    """

    size: int
    values: int
    encoding: int


def pages_of(file: IO[bytes], column: Any) -> Iterator[Page]:
    """Yield the pages of a column of a row group, as far as a reader reads them.

    Args:
        file: The open file.
        column: The `pyarrow.parquet.ColumnChunkMetaData` of the column.

    Raises:
        ValueError: A header is damaged, or lies outside of the column.
    """
    start, values = column.data_page_offset, 0
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    while values < column.num_values:
        header, size = _header_at(file, start, end)
        kind = _number(header, 1)
        packed, unpacked = _number(header, 3), _number(header, 2)
        details = header.get(_HEADER_OF.get(kind, -1))
        count, encoding = (
            (_number(details, 1), _number(details, _ENCODING_FIELD[kind])) if isinstance(details, dict) else (0, 0)
        )
        start += size + packed
        if start > end:
            raise ValueError("a page ends outside of its column")
        values += 0 if kind == _DICTIONARY else count
        yield Page(unpacked, 0 if kind == _DICTIONARY else count, encoding)


def _header_at(file: IO[bytes], start: int, end: int) -> tuple[dict[int, Any], int]:
    """Return the header at a place, and its length."""
    window = _WINDOW
    while True:
        file.seek(start)
        piece = file.read(min(window, end - start))
        thrift = _Compact(piece)
        try:
            return thrift.struct(0), thrift.at
        except IndexError:  # the header may continue beyond the window
            if len(piece) < window or window >= _LONGEST:
                raise ValueError("the header of a page is damaged") from None
            window *= 16


def _number(header: Any, field: int) -> int:
    value = header.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"the header of a page has {value!r} as its field {field}")
    return value


class _Compact:
    """A reader of structs in Thrift's compact protocol.

    Whole numbers and structs are read by field. Other values are skipped.

    Raises:
        IndexError: from its methods: the bytes end too early.
        ValueError: the bytes are no struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Read a struct."""
        fields, field = dict[int, Any](), 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            fields[field] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind in (7, 8):
            return self._skip(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"the header of a page has a field of the type {kind}")

    def _list(self, depth: int) -> None:
        head = self._byte()
        size = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(size):
            if head & 15 in (1, 2):
                self._skip(1)
            else:
                self._value(head & 15, depth + 1)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for place in range(10):
            byte = self._byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise ValueError("the header of a page has a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError(self.at)
