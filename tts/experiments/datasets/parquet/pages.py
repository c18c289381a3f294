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
_PAGE_TYPE, _UNPACKED_SIZE, _PACKED_SIZE = 1, 2, 3  # fields of PageHeader
_NUM_VALUES: Final = 1  # the field of the header of each type of page
_HEADER_OF: Final = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}  # the field of PageHeader by type of page
# the field of the encoding in the header of each type of page
_ENCODING_FIELD: Final = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_WINDOW: Final = 1 << 12  # bytes of a first attempt to read a header
_LONGEST: Final = 1 << 24  # bytes of a header that readers take
_DEEPEST: Final = 16  # bound of the depth of structs within structs


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
    page_start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < page_start:
        page_start = column.dictionary_page_offset
    column_end = page_start + column.total_compressed_size
    values_so_far = 0
    while values_so_far < column.num_values:
        header, header_size = _header_at(file, page_start, column_end)
        kind = _number(header, _PAGE_TYPE)
        details = header.get(_HEADER_OF.get(kind, -1))
        num_values, encoding = 0, 0
        if isinstance(details, dict):
            num_values = _number(details, _NUM_VALUES)
            encoding = _number(details, _ENCODING_FIELD[kind])
        if kind == _DICTIONARY:
            num_values = 0  # its entries are no values
        unpacked_size, packed_size = _number(header, _UNPACKED_SIZE), _number(header, _PACKED_SIZE)
        page_start += header_size + packed_size
        if page_start > column_end:
            raise ValueError("a page ends outside of its column")
        values_so_far += num_values
        yield Page(size=unpacked_size, values=num_values, encoding=encoding)


def _header_at(file: IO[bytes], start: int, end: int) -> tuple[dict[int, Any], int]:
    """Return the header at a place, and its length.

    Args:
        file: The open file.
        start: The place of the header's first byte.
        end: The end of the column.
    """
    window = _WINDOW
    while True:
        file.seek(start)
        data = file.read(min(window, end - start))
        reader = _Compact(data)
        try:
            return reader.struct(0), reader.position
        except IndexError:  # the header may continue beyond the window
            if len(data) < window or window >= _LONGEST:
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
        self.position = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Read a struct, and return its values by field.

        Each value has a head byte with a type in its lower half. The upper half is the difference of the field to the
        field before; 0: the field follows as a number. A head byte of 0 ends the struct.
        """
        values = dict[int, Any]()
        field = 0
        while True:
            head = self._byte()
            if head == 0:
                return values
            difference, kind = head >> 4, head & 15
            field = field + difference if difference else self._zigzag()
            values[field] = self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        """Read a value of a type, by the number of the type; None: the value is skipped."""
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        if kind in (1, 2):  # true and false
            return kind == 1
        if kind == 3:  # a byte
            return self._byte()
        if kind in (4, 5, 6):  # whole numbers
            return self._zigzag()
        if kind == 7:  # a number of 64 bits with a fraction
            return self._skip(8)
        if kind == 8:  # bytes, after their number
            return self._skip(self._varint())
        if kind in (9, 10):  # a list and a set
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"the header of a page has a field of the type {kind}")

    def _list(self, depth: int) -> None:
        """Skip a list. Its head byte has the type of items, and the number of items; 15: the number follows."""
        head = self._byte()
        size, kind = head >> 4, head & 15
        if size == 15:
            size = self._varint()
        for _ in range(size):
            if kind in (1, 2):
                self._skip(1)
            else:
                self._value(kind, depth + 1)

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _varint(self) -> int:
        """Read a number of groups of seven bits, the lowest first. The last group's byte is below 128."""
        value = 0
        for group in range(10):
            byte = self._byte()
            value |= (byte & 127) << 7 * group
            if byte < 128:
                return value
        raise ValueError("the header of a page has a number of more than 64 bits")

    def _zigzag(self) -> int:
        """Read a number whose lowest bit is its sign."""
        value = self._varint()
        magnitude, is_negative = value >> 1, value & 1
        return ~magnitude if is_negative else magnitude

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self._data):
            raise IndexError(self.position)
