"""Timestamped robot logs: MCAP to columns of numbers, and back."""

from robopos.logs.audit import inspect_log
from robopos.logs.decoder import Decoded, Decoder
from robopos.logs.draft import draft_config
from robopos.logs.log import Log, Stream
from robopos.logs.many import Logs, read_logs
from robopos.logs.paths import log_files, separate_logs
from robopos.logs.read import read_log
from robopos.logs.records import ON_DAMAGE, LogMessage, OnDamage, RawMessage, StreamSpec, message_time_ns, topic_key
from robopos.logs.report import LogReport, TopicReport
from robopos.logs.schema import long_name, parse_schema
from robopos.logs.schemas import schema_text, standard_types
from robopos.logs.serialize import serialize
from robopos.logs.source import count_messages, iter_messages
from robopos.logs.write import write_log

__all__ = [
    "ON_DAMAGE",
    "Decoded",
    "Decoder",
    "Log",
    "LogMessage",
    "LogReport",
    "Logs",
    "OnDamage",
    "RawMessage",
    "Stream",
    "StreamSpec",
    "TopicReport",
    "count_messages",
    "draft_config",
    "inspect_log",
    "iter_messages",
    "log_files",
    "long_name",
    "message_time_ns",
    "parse_schema",
    "read_log",
    "read_logs",
    "schema_text",
    "separate_logs",
    "serialize",
    "standard_types",
    "topic_key",
    "write_log",
]
