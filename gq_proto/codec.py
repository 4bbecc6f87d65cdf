"""The record codec: the compiled one where it was built, else the pure one. Same names, results, errors and bytes.

NAME says which; GOQUEUE_CODEC=pure forces the pure one, GOQUEUE_CODEC=compiled makes a missing compiled one an error.
Everyone who reads or writes records imports them from here. What each function promises is said in `pure`.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gq_proto.pure import (
        NAME,
        BatchBuilder,
        Record,
        check,
        columns,
        compress,
        crc32c,
        decode,
        decode_headers,
        decompress,
        encode_headers,
        extend_runs,
        find_valid,
        gather,
        lane_counts,
        lane_ranges,
        lane_totals,
        lanes_within,
        locate,
        partition_of,
        ranges_are,
        ranges_ascend,
        ranges_count,
        ranges_find,
        ranges_head,
        ranges_intersect,
        ranges_of,
        ranges_offsets,
        ranges_roaring,
        ranges_subtract,
        ranges_tail,
        ranges_union,
        runs_by_lane,
        scan,
        select_runs,
        stamp,
    )

__all__ = ["NAME", "BatchBuilder", "Record", "check", "columns", "compress", "crc32c", "decode", "decode_headers", "decompress",
           "encode_headers", "extend_runs", "find_valid", "gather", "lane_counts", "lane_ranges", "lane_totals", "lanes_within",
           "locate", "partition_of", "ranges_are", "ranges_ascend", "ranges_count", "ranges_find", "ranges_head",
           "ranges_intersect", "ranges_of", "ranges_offsets", "ranges_roaring", "ranges_subtract", "ranges_tail", "ranges_union",
           "runs_by_lane", "scan", "select_runs", "stamp"]


def _load(wanted: str | None) -> Any:
    if wanted != "pure":
        try:
            return importlib.import_module("gq_proto._codec")
        except ImportError:
            if wanted == "compiled":
                raise
    return importlib.import_module("gq_proto.pure")


_codec = _load(os.environ.get("GOQUEUE_CODEC"))
globals().update({name: getattr(_codec, name) for name in __all__})
