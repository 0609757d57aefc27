"""What a message may contain.

::

    types         the model: Atom, Tuple, List, Variant, Optional, Dynamic, Ref, Schema
    messagetype   message types: node types with attributes and references
    text          Gryphon's notation      parse(text) <-> str(schema)
    ddl           JPMQ's notation         parse(text) <-> str(schema.message_type)
    dataclass     Python's notation       from_dataclass(cls) <-> to_dataclass(schema), dataclass_source(schema)
    annotation    annotations for types that Python does not have
    node          messages of a message type, with late-bound access
    generate      typed classes for them
    evolution     what a new version may change
    versions      versions in use at the same time
    merge         the schema with the fields of two versions
    relax         the schema in which a reader of one version sees messages of another
    registry      named, versioned schemas
    flat          the flat-tuple transformation, for batches
"""

from milepost.schema.annotation import Case, DecimalOf, Named
from milepost.schema.dataclass import dataclass_source, from_dataclass, to_dataclass
from milepost.schema.evolution import Break, breaks, compatible
from milepost.schema.generate import classes, python_source
from milepost.schema.messagetype import Attribute, MessageType, NodeType, Reference
from milepost.schema.node import Node, References, build, plain
from milepost.schema.registry import Registry, RegistryStatistics
from milepost.schema.text import parse
from milepost.schema.types import Schema
from milepost.schema.versions import Versions

__all__ = [
    "Schema",
    "MessageType",
    "NodeType",
    "Attribute",
    "Reference",
    "parse",
    "from_dataclass",
    "to_dataclass",
    "dataclass_source",
    "Case",
    "DecimalOf",
    "Named",
    "Node",
    "References",
    "build",
    "plain",
    "classes",
    "python_source",
    "compatible",
    "breaks",
    "Break",
    "Versions",
    "Registry",
    "RegistryStatistics",
]
