"""Moved to gq_proto.bitmaps."""

from gq_proto.bitmaps import SHORT as SHORT
from gq_proto.bitmaps import TOP as TOP
from gq_proto.bitmaps import bitmap_between as bitmap_between
from gq_proto.bitmaps import bitmap_of as bitmap_of
from gq_proto.bitmaps import clipped as clipped
from gq_proto.bitmaps import count_of as count_of
from gq_proto.bitmaps import first_of as first_of
from gq_proto.bitmaps import next_in as next_in
from gq_proto.bitmaps import ranges_of as ranges_of
from gq_proto.bitmaps import run_end as run_end
from gq_proto.bitmaps import union_of as union_of
from gq_proto.bitmaps import within as within
