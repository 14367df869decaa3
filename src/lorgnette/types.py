"""Types of what other libraries give us, without importing those libraries.

For a type checker they are the classes of transformers, Altair, fsspec and Arrow. At run time they are `Any`: whoever
imports this module does not wait for them, and a model of one's own with the same attributes is accepted.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

Json = dict[str, Any]
"""An object of a JSON file. Its fields are described where it is written."""
Row = Mapping[str, Any]
"""A row of a table or of a data set, by column."""

if TYPE_CHECKING:
    from altair.typing import ChartType
    from fsspec import AbstractFileSystem
    from fsspec.spec import AbstractBufferedFile
    from pyarrow import DataType, Schema
    from pyarrow.parquet import FileMetaData as FileMetaData
    from pyarrow.parquet import ParquetFile as ParquetFile
    from pyarrow.parquet import RowGroupMetaData as RowGroupMetaData
    from transformers import PretrainedConfig as PretrainedConfig
    from transformers import PreTrainedModel as PreTrainedModel
    from transformers import PreTrainedTokenizerBase as PreTrainedTokenizerBase
    from transformers import ProcessorMixin as ProcessorMixin
    from transformers.utils import ModelOutput as ModelOutput

    Chart = ChartType
    ArrowSchema, ArrowType, FileSystem, RemoteFile = Schema, DataType, AbstractFileSystem, AbstractBufferedFile
else:
    Chart = ModelOutput = PretrainedConfig = PreTrainedModel = PreTrainedTokenizerBase = ProcessorMixin = Any
    ArrowSchema = ArrowType = FileMetaData = FileSystem = ParquetFile = RemoteFile = RowGroupMetaData = Any
